"""The rules of the house: who may import whom, how large files are, what the library never does."""

import ast
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tiny_lm"
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def trees():
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


# The import table. Imports point one way: a row says what a module or folder of tiny_lm may import
# besides itself and Python's own library, first of tiny_lm, then from outside. Later words win and
# ! takes away. A module without a row of its own stands above the model and below the chapters.
LIBRARY = "* !probes !exercises !plots !widgets !lessons !cli !__main__"

TABLE = {
    # tiny_lm      may import of tiny_lm                     from outside
    "plain":      ("",                                       ""),
    "shapes":     ("",                                       ""),
    "taps":       ("",                                       ""),
    "extras":     ("",                                       ""),
    "files":      ("shapes",                                 ""),
    "autograd":   ("shapes taps",                            "numpy"),
    "config":     ("shapes",                                 ""),
    "rope":       ("shapes",                                 "torch"),
    "attention":  ("rope shapes taps",                       "torch"),
    "layers":     ("attention config shapes taps",           "torch"),
    "initial":    ("shapes",                                 "torch"),
    "variants":   ("attention config layers shapes taps",    "torch"),
    "model":      ("attention config initial layers shapes taps variants", "torch"),
    "fast":       ("attention layers model rope shapes taps", "numpy torch"),
    "words":      ("shapes",                                 ""),
    "tokenizer":  ("extras shapes words",                    "tokenizers"),
    "grammar":    ("",                                       ""),
    "corpus":     ("grammar shapes tokenizer words",         ""),
    "history":    ("",                                       ""),
    "formats":    ("checkpoint config extras model rope shapes tokenizer", "*"),
    "probes":     (LIBRARY,                                  "numpy torch"),
    "exercises":  (LIBRARY + " probes",                      "numpy torch platformdirs"),
    "plots":      ("",                                       "numpy matplotlib PIL"),
    "widgets":    ("exercises files plots probes shapes",
                   "ipywidgets IPython platformdirs traitlets"),
    "lessons":    (LIBRARY + " probes exercises",            "numpy torch"),
    "report":     (LIBRARY + " probes plots",               ""),
    "release":    ("exercises extras files shapes",          "nbconvert nbformat"),
    "cli":        ("*",                                      "*"),
    "cli_train":  (LIBRARY,                                  "*"),
    "cli_bench":  (LIBRARY + " plots",                       "*"),
    "cli_compare": (LIBRARY + " probes",                     "*"),
    "__main__":   ("*",                                      "*"),
    "__init__":   ("",                                       ""),
    "*":          (LIBRARY,                                  "*"),
}  # fmt: skip

# Packages with one home each, whatever the table says.
HOMES = {"matplotlib": "plots", "PIL": "plots", "ipywidgets": "widgets", "IPython": "widgets"}

MAY_PRINT = (
    "cli.py", "cli_train.py", "cli_bench.py", "cli_compare.py", "__main__.py", "lessons/*",
)  # fmt: skip
AT_THE_TOP = {
    "pyproject.toml", "README.md", "environment.yml", "LICENSE", "notebooks", "tiny_lm", "tests",
}  # fmt: skip


def unit(name):
    """The module or folder a file belongs to: plots/rms.py -> plots."""
    return name.split("/")[0].removesuffix(".py")


def absolute(name, node):
    """The full names that one import statement may load, relative imports resolved."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        above = ["tiny_lm", *name.split("/")[:-1]]
        above = above[: len(above) - node.level + 1]
        base = ".".join(above + ([base] if base else []))
    return [f"{base}.{alias.name}" for alias in node.names]


def imports(name, tree):
    """(line, full name) of every import, also inside functions and by import_module("…")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, full) for full in absolute(name, node))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__", "need"):
                yield node.lineno, node.args[0].value


def inside_and_outside(name, tree):
    """The units of tiny_lm and the packages from outside that a file imports, with their lines."""
    inside, outside = {}, {}
    for line, full in imports(name, tree):
        first, _, rest = full.partition(".")
        if first == "tiny_lm":
            part = rest.split(".")[0]
            is_module = (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").exists()
            inside.setdefault(part if is_module and part else "__init__", line)
        elif first not in sys.stdlib_module_names:
            outside.setdefault(first, line)
    return inside, outside


def row(module):
    return TABLE.get(module) or TABLE["*"]


def allowed(what, words):
    verdict = False
    for word in words.split():
        if fnmatch(what, word.removeprefix("!")):
            verdict = not word.startswith("!")
    return verdict


def wrong_imports(name):
    here = unit(name)
    of_tiny_lm, from_outside = row(here)
    inside, outside = inside_and_outside(name, trees()[name])
    wrong = [
        f"tiny_lm/{name}:{line} imports tiny_lm.{other}"
        for other, line in inside.items()
        if other not in (here, "__init__") and not allowed(other, of_tiny_lm)
    ]
    wrong += [
        f"tiny_lm/{name}:{line} imports {package}"
        for package, line in outside.items()
        if not allowed(package, from_outside) or HOMES.get(package, here) != here
    ]
    return wrong


def test_imports_follow_the_table():
    assert [wrong for name in FILES for wrong in wrong_imports(name)] == []


def test_imports_never_run_in_a_circle():
    graph = {}
    for name, tree in trees().items():
        inside, _ = inside_and_outside(name, tree)
        graph.setdefault(unit(name), set()).update(set(inside) - {unit(name), "__init__"})

    def reachable(start):
        seen, todo = set(), list(graph.get(start, ()))
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                todo.extend(graph.get(here, ()))
        return seen

    assert [name for name in graph if name in reachable(name)] == []


def test_the_table_has_teeth():
    """The reader of imports sees each way to write one."""
    code = """
import matplotlib.pyplot as plt
from tiny_lm import widgets
from . import plots
from ..plots.rms import figure
from tiny_lm.probes import rms
import tiny_lm.cli
def late():
    import IPython.display
    need("gguf"), importlib.import_module("tiny_lm.lessons")
"""
    found = {full for _, full in imports("exercises/core.py", ast.parse(code))}
    assert found == {
        "matplotlib.pyplot", "tiny_lm.widgets", "tiny_lm.exercises.plots",
        "tiny_lm.plots.rms.figure", "tiny_lm.probes.rms", "tiny_lm.cli",
        "IPython.display", "gguf", "tiny_lm.lessons",
    }  # fmt: skip
    assert not allowed("widgets", row("exercises")[0]) and allowed("probes", row("exercises")[0])
    assert not allowed("IPython", row("exercises")[1])
    for module in ("probes", "plots", "lessons", "a_module_to_come"):
        assert not allowed("widgets", row(module)[0])
    assert allowed("formats", row("pretrained")[0]) and not allowed("probes", row("pretrained")[0])


def loaded_by(module):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("tiny_lm", "numpy torch matplotlib ipywidgets"),
        ("tiny_lm.plain", "numpy torch matplotlib ipywidgets"),
        ("tiny_lm.autograd.nn", "torch matplotlib ipywidgets"),
        ("tiny_lm.model", "matplotlib ipywidgets IPython gguf tokenizers safetensors"),
    ],
)
def test_an_import_loads_no_more_than_it_needs(module, never):
    loaded = loaded_by(module)
    assert module in loaded
    assert loaded.isdisjoint(never.split())


def test_files_are_short():
    lines = {name: len(FILES[name].read_text(encoding="utf-8").splitlines()) for name in FILES}
    assert {name: count for name, count in lines.items() if count > 250} == {}


def test_no_assert_in_the_library():
    """`python -O` removes them, and they say nothing to a reader."""
    found = [
        f"tiny_lm/{name}:{node.lineno}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_only_the_terminal_prints():
    found = [
        f"tiny_lm/{name}:{node.lineno}"
        for name, tree in trees().items()
        if not any(fnmatch(name, pattern) for pattern in MAY_PRINT)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert found == []


def is_public(node):
    return not node.name.startswith("_")


FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def test_public_functions_and_classes_have_a_docstring():
    found = []
    for name, tree in trees().items():
        if tree.body and not ast.get_docstring(tree):
            found.append(f"tiny_lm/{name}")
        for node in tree.body:
            public = isinstance(node, FUNCTION | ast.ClassDef) and is_public(node)
            if public and not ast.get_docstring(node):
                found.append(f"tiny_lm/{name}:{node.lineno} {node.name}")
    assert found == []


def without_hints(function, is_method):
    """Names of a function's arguments without a type, and "return"."""
    a = function.args
    names = a.posonlyargs + a.args + a.kwonlyargs + [one for one in (a.vararg, a.kwarg) if one]
    static = any(getattr(d, "id", "") == "staticmethod" for d in function.decorator_list)
    names = names[1:] if is_method and not static else names
    missing = [argument.arg for argument in names if argument.annotation is None]
    if function.returns is None and function.name != "__init__":
        missing.append("return")
    return missing


def functions(tree):
    """(function, is it a method?) of a file."""
    for node in tree.body:
        yield node, False
        if isinstance(node, ast.ClassDef) and is_public(node):
            yield from ((method, True) for method in node.body)


def test_public_functions_have_full_type_hints():
    found = [
        f"tiny_lm/{name}:{function.lineno} {function.name}: {', '.join(missing)}"
        for name, tree in trees().items()
        for function, is_method in functions(tree)
        if isinstance(function, FUNCTION)
        and (is_public(function) or function.name in ("__init__", "__call__"))
        and (missing := without_hints(function, is_method))
    ]
    assert found == []


# What is handed on


def tracked():
    """Every file git knows, or a skip where there is no git."""
    git = shutil.which("git")
    if not git or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = done.stdout.decode("utf-8").split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_nothing_else_at_the_top():
    at_the_top = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in at_the_top if name[0] != "."} <= AT_THE_TOP


# A home or work folder; an index, a proxy or a host that exists in one network only.
OF_ONE_MACHINE = re.compile(
    r"""
    (?<![\w.:/~-]) / (?: home | Users | root | work | workspace | mnt | opt | srv ) / \w
    | \b [A-Z] : \\\\? Users \\
    | \b (?: extra[-_] )? index [-_] url \b | \b trusted [-_] host \b | \b artifactor[y] \b
    | https?:// [^\s"'()<>]* /simple (?: / | \b )
    | https?:// (?! localhost ) [\w-]+ [:/] (?! / )
    | https?:// (?: 10 | 192\.168 | 172\.(?: 1[6-9] | 2\d | 3[01] ) ) \.
    | https?:// [\w.-]+ \. (?: internal | intranet | corp | lan | local ) \b
    """,
    re.VERBOSE | re.IGNORECASE,
)


@pytest.mark.parametrize(
    ("text", "is_of_one_machine"),
    [
        ("/" + "home/ada/x.py", True),
        ("path = '/" + "work/book'", True),
        ("/" + "Users/ada", True),
        ("C:" + "\\Users\\ada", True),
        ("--index" + "-url https://example.org", True),
        ("https" + "://mirror:8080/pypi", True),
        ("https" + "://pip.example.org/simple", True),
        ("http" + "://10.0.0.3/x", True),
        ("https" + "://files.build.internal/x", True),
        ("https://arxiv.org/abs/1910.07467", False),
        ("http://localhost:8888/lab", False),
        ("http://127.0.0.1:8888/lab", False),
        ("https://github.com/home/work", False),
        ("notebooks/work/a.ipynb, ~/work/x, and/or", False),
        ("a residual/root/mean", False),
    ],
)
def test_what_belongs_to_one_machine(text, is_of_one_machine):
    assert bool(OF_ONE_MACHINE.search(text)) == is_of_one_machine


def test_no_file_names_the_machine_it_was_written_on():
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or weights
        found += [
            f"{path.relative_to(ROOT)}: {text[max(0, hit.start() - 20) : hit.end() + 30]!r}"
            for hit in OF_ONE_MACHINE.finditer(text)
        ]
    assert found == []


def test_the_readme_has_both_commands_and_a_line_for_every_part():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    prove = 'python -m pip install -e ".[test]" && pytest --nbval'
    read = 'python -m pip install -e ".[lab,models]" && jupyter lab notebooks/00_start_here.ipynb'
    assert f"\n{prove}\n" in readme and f"\n{prove}\n" in ci
    assert f"\n{read}\n" in readme
    for part in {unit(name) for name in FILES} - {"__init__", "__main__"}:
        line = f"\n  {part}/ " if (PACKAGE / part).is_dir() else f"\n  {part}.py "
        assert line in readme, part
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"(notebooks/{path.name})" in readme
