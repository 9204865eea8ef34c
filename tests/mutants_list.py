"""The faults that mutants.py plants: those of mutants.txt, and all of some kinds in a file."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "tiny_lm"


class Mutant(NamedTuple):
    """One file of tiny_lm with one fault in it."""

    file: str  # within tiny_lm
    what: str  # in words
    text: str  # of the whole file, with the fault
    tests: tuple[str, ...]  # that should notice
    reason: str  # why nothing can be noticed, or ""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.what}"

    @property
    def difference(self) -> str:
        before = (PACKAGE / self.file).read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def listed(path: Path) -> list[Mutant]:
    """Read mutants.txt, whose first lines say how it is written.

    Raises ValueError for a text that does not occur exactly once, and for a line of no known kind.
    """
    text = path.read_text(encoding="utf-8")
    mutants, file, tests, record = [], "", (), {}
    for line in [*text[text.index("\n@ ") :].splitlines(), "@ :"]:
        kind, rest = line[:1], line[1:]
        if kind in ("@", "#"):
            if record:
                mutants.append(_planted(file, tests, record))
            record = {"#": rest.strip()} if kind == "#" else {}
            if kind == "@":
                file, tests = rest.strip().split(":")
                tests = tuple(tests.split())
        elif kind in ("-", "+", "=") and record:
            record[kind] = f"{record[kind]}\n{rest}" if kind in record else rest
        elif line:
            raise ValueError(f"{path.name}: expected a line that begins with one of @#-+=: {line}")
    return mutants


def _planted(file: str, tests: tuple[str, ...], record: dict[str, str]) -> Mutant:
    text, before = (PACKAGE / file).read_text(encoding="utf-8"), record.get("-", "")
    if text.count(before) != 1:
        found = f"{text.count(before)} times"
        raise ValueError(f"{file}: {record['#']}: expected once, found {found}: {before}")
    text = text.replace(before, record.get("+", ""))
    return Mutant(file, record["#"], text, tests, record.get("=", "").strip())


# Every fault of some kinds in one file

OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
LEFT_OUT = ("to", "clone", "detach", "contiguous", "double", "float", "eval", "transpose")


def every(file: str, known: list[Mutant]) -> list[Mutant]:
    """All faults of the kinds of `_changed` in a file, without the `known` ones.

    They get the tests of the known ones in that file.
    """
    source = (PACKAGE / file).read_text(encoding="utf-8")
    here = [mutant for mutant in known if mutant.file == file]
    faults, mutants = {ast.dump(ast.parse(mutant.text)) for mutant in here}, []
    for node in _computed(ast.parse(source)):
        for part, new in _changed(node):
            text = _replaced(source, part, new)
            fault = ast.dump(ast.parse(text))
            if fault not in faults:
                faults.add(fault)
                was = " ".join(ast.get_source_segment(source, part).split())
                what = f"line {part.lineno}, {was} becomes {new}"
                mutants.append(Mutant(file, what, text, here[0].tests, ""))
    return mutants


def _computed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of what is computed: no annotations, and no messages, which tests hold anyway."""
    for name, part in ast.iter_fields(tree):
        if name not in ("annotation", "returns"):
            for node in part if isinstance(part, list) else [part]:
                if isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr):
                    yield node
                    yield from _computed(node)


def _changed(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """The ways to change a node: a part of it, and what shall stand there."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            ops = [*node.ops[:i], OTHER[type(op)](), *node.ops[i + 1 :]]
            yield node, ast.unparse(ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BoolOp):
        yield node, ast.unparse(ast.BoolOp(OTHER[type(node.op)](), node.values))
    elif isinstance(node, ast.BinOp) and type(node.op) in OTHER:
        yield node, ast.unparse(ast.BinOp(node.left, OTHER[type(node.op)](), node.right))
    elif isinstance(node, ast.UnaryOp):
        yield node, ast.unparse(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield node, str(node.value + 1)
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LEFT_OUT:
        yield node, ast.unparse(node.func.value)
    elif isinstance(node, ast.If | ast.IfExp):
        yield node.test, "False"


def _replaced(source: str, part: ast.expr, new: str) -> str:
    """The source with one expression written anew; everything else stays as it stands."""
    raw = source.encode()  # ast counts bytes
    lines = raw.splitlines(keepends=True)
    start = sum(map(len, lines[: part.lineno - 1])) + part.col_offset
    end = sum(map(len, lines[: part.end_lineno - 1])) + part.end_col_offset
    return (raw[:start] + f"({new})".encode() + raw[end:]).decode()
