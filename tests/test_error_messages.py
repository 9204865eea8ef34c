"""Every error of the package is looked for by a test, in the words it says.

The text after "expected" of each `fail(...)` and the text of each raised error is taken from the
source, what is filled in left open, and must stand in full in a string of some test. So a new
error without a test is noticed, and a message that was changed in one place only.
"""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "tiny_lm"
RAISED = ("ValueError", "OSError", "ImportError", "RuntimeError", "TypeError")
OPEN = "\0"  # stands for what is filled in


def said(node, scope):
    """A text as it stands in the source, OPEN where something is filled in."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(parts):
            return "".join(said(part, scope) for part in parts)
        case ast.BinOp(one, ast.Add(), other):
            return said(one, scope) + said(other, scope)
        case ast.Name(name):  # given a text by an assignment in the same function
            texts = (
                said(step.value, ())
                for step in scope
                if isinstance(step, ast.Assign) and name in map(ast.unparse, step.targets)
            )
            return next(texts, OPEN)
    return OPEN


def errors():
    """Where each error is raised, and its words."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            scope = list(ast.walk(function))
            for node in scope:
                match node:
                    case ast.Call(ast.Name("fail"), [_, expected, *more]):
                        words = [expected, *more[1:], *(k.value for k in node.keywords)]
                    case ast.Raise(ast.Call(ast.Name(name), [text, *_])) if name in RAISED:
                        words = [text]
                    case _:
                        continue
                texts = [text for text in (said(word, scope) for word in words) if telling(text)]
                if path.name != "shapes.py" and texts:
                    yield f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}", texts[0]


def telling(text):
    return sum(map(str.isalpha, text)) >= 4


def texts_of_tests():
    """All strings of all tests but this one; of patterns, the text that they match."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                yield re.sub(r"\\(?=\W)", "", said(node, ()))


def test_every_error_is_looked_for():
    found, texts = dict(errors()), "\n\n".join(texts_of_tests())
    assert len(found) > 200, "the rest are shapes alone"
    unsaid = [
        f"no test says {words.replace(OPEN, '…')!r} of {where}"
        for where, words in found.items()
        if not re.search(re.escape(words).replace(OPEN, r"[^\n]*?"), texts)
    ]
    assert unsaid == []
