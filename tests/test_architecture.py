"""Rules about the whole package: who imports whom, names, sentences, and hosts that no text may name."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "proofmap"

# The layers of the package. A part may import parts of its own layer and of earlier layers, never of later ones.
ORDER = (
    {"errors"},
    {"settings", "registry"},
    {"runtime"},
    {"inputs"},
    {"graph"},
    {"storage"},
    {"rules"},
    {"execution", "attack"},
    {"rounding", "bounds", "search"},
    {"verify", "proof", "text"},
    {"reasons"},
    {"explainers", "plots"},
    {"metrics", "sources"},
    {"bench", "runs", "report"},
    {"claims", "dossier"},
    {"cli"},
)
STEP = {part: step for step, parts in enumerate(ORDER) for part in parts}

# Parts outside the layers: they import only `errors`, so that nothing in them depends on how a bound is computed.
ALONE = {"zoo", "data"}

ROOT_MODULES = {"__init__", "__main__", "api", "explain"}  # entry points: they import all, and nothing imports them

# split, so that this file passes its own test
REGISTRY_HOSTS = tuple(
    ".".join(name)
    for name in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("anaconda", "org"),
        ("npmjs", "org"),
    )
)


def module_name(path: Path) -> str:
    """`src/proofmap/graph/__init__.py` -> `proofmap.graph`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(source: str) -> ast.Module:
    """Parse a module of the package once for all tests."""
    return ast.parse(source)


def imported(source: str, package: str) -> Iterator[str]:
    """Yield every dotted name that `source`, a module of `package`, imports, at the top or inside a function.

    `from a import b` yields `a.b`: b may be a module.
    """
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def part_of(name: str) -> str | None:
    """`proofmap.graph.ir.Graph` -> `graph`; None outside the package; "" for the package itself."""
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "proofmap" else None


def allowed(part: str) -> set[str]:
    if part in ALONE:
        return {"errors", part}
    return {other for other in STEP if STEP[other] <= STEP[part]} | (ALONE if STEP[part] > STEP["verify"] else set())


def violations(part: str, source: str, package: str) -> list[str]:
    targets = ((name, part_of(name)) for name in imported(source, package))
    return [f"{part} imports {name}" for name, target in targets if target is not None and target not in allowed(part)]


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE or path.stem not in ROOT_MODULES]


def test_every_module_belongs_to_a_layer() -> None:
    """In one of the layers, or outside them."""
    names = [module_name(path) for path in MODULES]
    assert len(names) > 100
    assert [name for name in names if part_of(name) not in {*STEP, *ALONE}] == []


def test_imports_go_to_earlier_layers() -> None:
    found = []
    for path in MODULES:
        name = module_name(path)
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        wrong = violations(part_of(name) or "", path.read_text(encoding="utf-8"), package)
        found += [f"{path.relative_to(PACKAGE)}: {one}" for one in wrong]
    assert found == []


@pytest.mark.parametrize(
    ("part", "source", "package"),
    [
        ("inputs", "import proofmap.bounds", "proofmap.inputs"),
        ("inputs", "from proofmap.graph.ir import Graph", "proofmap.inputs"),
        ("inputs", "from proofmap import verify", "proofmap.inputs"),
        ("inputs", "from .. import rules", "proofmap.inputs"),
        ("graph", "from ..rules import table", "proofmap.graph"),
        ("graph", "from ..rules.linear import Linear as L", "proofmap.graph"),
        ("rules", "def late() -> None:\n    from proofmap.bounds import IBP", "proofmap.rules"),
        ("rules", "import proofmap as pm", "proofmap.rules"),
        ("bounds", "from proofmap.zoo import mnist_mlp", "proofmap.bounds"),
        ("zoo", "from proofmap.data import digits", "proofmap.zoo"),
        ("data", "from proofmap.inputs.ball import Ball", "proofmap.data"),
        ("explainers", "from proofmap import metrics", "proofmap.explainers"),
    ],
)
def test_a_forbidden_import_is_found(part: str, source: str, package: str) -> None:
    assert len(violations(part, source, package)) == 1


@pytest.mark.parametrize(
    ("part", "source", "package"),
    [
        ("inputs", "import torch\nfrom proofmap.errors import InputError", "proofmap.inputs"),
        ("inputs", "from proofmap.inputs.concretise import maximise", "proofmap.inputs"),
        ("graph", "from . import ir\nfrom .walk import forward\nfrom ..errors import InputError", "proofmap.graph"),
        (
            "bounds",
            "from proofmap import graph, inputs\nfrom proofmap.rules.linear_operations import x",
            "proofmap.bounds",
        ),
        ("cli", "from proofmap.zoo import mnist_mlp\nimport proofmap.verify.overlap", "proofmap"),
        ("data", "from proofmap.data.idx import read_idx\nimport numpy as np", "proofmap.data"),
    ],
)
def test_an_allowed_import_passes(part: str, source: str, package: str) -> None:
    assert violations(part, source, package) == []


# --- names and folders ---

MAX_ROOT_MODULES, MAX_FOLDER_MODULES = 8, 16
READERS = re.compile("graph/(torch|onnx)/")  # the two readers have modules of the same names

SOURCES = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def repeated(names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names with several places, from pairs (name, place)."""
    places: defaultdict[str, set[str]] = defaultdict(set)
    for name, place in names:
        places[name].add(place)
    return [f"{name}: {', '.join(sorted(found))}" for name, found in places.items() if len(found) > 1]


def repeated_files(paths: Iterable[str]) -> list[str]:
    """Return the file names that occur in several folders; both readers together count as one."""
    modules = (READERS.sub("graph/*/", path) for path in paths if not path.endswith("__init__.py"))
    return repeated((path.rpartition("/")[2], path) for path in modules)


def repeated_classes(sources: Mapping[str, str]) -> list[str]:
    """Return the class names that occur several times."""
    nodes = ((path, node) for path, text in sources.items() for node in ast.walk(parsed(text)))
    return repeated((node.name, f"{path}:{node.lineno}") for path, node in nodes if isinstance(node, ast.ClassDef))


def large_folders(paths: Iterable[str]) -> list[str]:
    """Return the folders with too many modules; "" is the package root."""
    counts = Counter(path.rpartition("/")[0] for path in paths if not path.endswith("__init__.py"))
    limits = {folder: MAX_FOLDER_MODULES if folder else MAX_ROOT_MODULES for folder in counts}
    return [f"{folder or 'the root'}: {count}" for folder, count in counts.items() if count > limits[folder]]


def test_no_file_name_occurs_twice() -> None:
    assert repeated_files(SOURCES) == []
    assert repeated_files(["rules/norms.py", "graph/torch/norms.py"]) != []
    assert repeated_files(["graph/onnx/norms.py", "graph/torch/norms.py", "a/__init__.py", "b/__init__.py"]) == []


def test_no_class_name_occurs_twice() -> None:
    assert repeated_classes(SOURCES) == []
    assert repeated_classes({"a.py": "class A: ...", "b.py": "class A: ..."}) == ["A: a.py:1, b.py:1"]


def test_folders_are_small() -> None:
    assert large_folders(SOURCES) == []
    assert large_folders([*(f"rules/{k}.py" for k in range(17)), *(f"{k}.py" for k in range(9))]) == [
        "rules: 17",
        "the root: 9",
    ]


# --- sentences ---

# The first word of a docstring that is a clause.
CLAUSE = re.compile(r"(what|where|of|how|which|whose|who|whether)\b", re.IGNORECASE)
OF = re.compile(r"#\s*of\b", re.IGNORECASE)

# The checker and its campaigns: their sentences are not checked yet.
UNCHECKED = {PACKAGE / "proof" / "check.py", *(ROOT / "fuzz" / "checker").glob("*.py")}


def documented(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the module, its classes and its functions; expressions contain none."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for field in ("body", "orelse", "handlers", "finalbody"):
        for one in getattr(node, field, ()):
            yield from documented(one)


def clauses(text: str) -> list[str]:
    """Return the first lines of docstrings that are a clause without a subject or a verb."""
    docstrings = (ast.get_docstring(node) or "" for node in documented(ast.parse(text)))
    return [docstring.splitlines()[0] for docstring in docstrings if CLAUSE.match(docstring)]


def comments_with_of(text: str) -> list[str]:
    """Return the comments that begin with "of"."""
    if not OF.search(text):
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT and OF.match(token.string)]


def test_docstrings_and_comments_are_sentences() -> None:
    """In the package, the tests, and all other Python code of the repository."""
    found = []
    folders = [PACKAGE, *(ROOT / name for name in ("tests", "fuzz", "benchmarks", "scripts", "examples"))]
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
        if path not in UNCHECKED:
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(ROOT)}: {one}" for one in (*clauses(text), *comments_with_of(text))]
    assert found == []


def test_a_clause_is_found() -> None:
    text = '"""What it does."""\nclass A:\n    """Of B."""\ndef f():\n    """Return how."""\n    x = 1  # of y\n'
    assert clauses(text) == ["What it does.", "Of B."]
    assert comments_with_of(text) == ["# of y"]


def options_in_errors(source: str) -> list[str]:
    """Return the texts of raised errors that name an option of the command line or one of its commands."""
    raised = (node for node in ast.walk(parsed(source)) if isinstance(node, ast.Raise))
    constants = (one.value for node in raised for one in ast.walk(node) if isinstance(one, ast.Constant))
    return [text for text in constants if isinstance(text, str) and re.search(r"(^|\W)--[a-z]|by proofmap [a-z]", text)]


def test_errors_of_the_library_name_no_options() -> None:
    """The command line adds them (`errors.ProofmapError.arguments`)."""
    apart = {"cli/", "proof/check.py"}  # they are command lines themselves
    found = {path: options_in_errors(text) for path, text in SOURCES.items() if not path.startswith(tuple(apart))}
    assert {path: texts for path, texts in found.items() if texts} == {}
    assert options_in_errors("raise InputError('give --size')\nraise InputError(f'use {x}, by proofmap explain')") != []


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the project's own text files: no environment, cache, build output or binary."""
    skipped = {"build", "dist", "out", "__pycache__"}
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [
            name
            for name in inner
            if (name == ".ci" or not name.startswith(".")) and name not in skipped and not name.endswith(".egg-info")
        ]
        for path in (Path(folder, name) for name in names):
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # noqa: PERF203 - binary files are skipped
                continue


def test_the_text_names_no_package_registry() -> None:
    read = dict(texts())
    assert ROOT / "pyproject.toml" in read
    named = [f"{path.relative_to(ROOT)}: {one}" for path, text in read.items() for one in REGISTRY_HOSTS if one in text]
    assert named == []


def warned(source: str) -> list[str]:
    """Return the category of each `warnings.warn` in a module, "" if it has none."""
    calls = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(c.args[1]) if len(c.args) > 1 else "" for c in calls if ast.unparse(c.func) == "warnings.warn"]


def test_one_line_switches_all_warnings_off() -> None:
    """All warnings of Proofmap have one class."""
    found = [category for path in MODULES for category in warned(path.read_text(encoding="utf-8"))]
    assert set(found) == {"ProofmapWarning"}
    assert warned("import warnings\nwarnings.warn('a')\nwarnings.warn('b', UserWarning)") == ["", "UserWarning"]


class ImportCycleError(Exception):
    """A module needs a name of another module that is not defined yet."""


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that importing a module runs, in order: not those for type checkers, nor those in functions."""
    for one in body:
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test):
            continue
        yield one
        if isinstance(one, ast.If | ast.Try):
            yield from statements(one.body)


class Statement(NamedTuple):
    """A statement that importing a module runs: the module and names that it imports, and the names that it defines."""

    module: str | None
    imported: list[str]
    defined: set[str]


def load(name: str, sources: dict[str, list[Statement]], defined: dict[str, set[str]]) -> None:
    """Import a module as Python does, with its packages first. `defined` has the names of each module so far."""
    package, _, own = name.rpartition(".")
    if package in sources:
        load(package, sources, defined)
    if name in defined:
        return
    names = defined[name] = set()
    for one in sources[name]:
        if one.module in sources:
            load(one.module, sources, defined)
            for asked in one.imported:
                if f"{one.module}.{asked}" in sources and asked not in defined[one.module]:
                    load(f"{one.module}.{asked}", sources, defined)
                elif asked not in defined[one.module] and one.module != "proofmap":  # it loads names when asked
                    raise ImportCycleError(f"{name} imports {one.module}.{asked}")
        names.update(one.defined)
    if package in defined:
        defined[package].add(own)


def summary(one: ast.stmt) -> Statement:
    """Return what the walk of `load` reads of a statement."""
    module, names = (one.module, [alias.name for alias in one.names]) if isinstance(one, ast.ImportFrom) else (None, [])
    return Statement(module, names, set(bound(one)))


def bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def cycles(modules: dict[str, str]) -> list[str]:
    """The modules that cannot be imported first, each with the import that fails."""
    found = []
    sources = {name: list(map(summary, statements(parsed(text).body))) for name, text in modules.items()}
    for name in sources:
        try:
            load(name, sources, {})
        except ImportCycleError as error:  # noqa: PERF203 - all of them are listed
            found.append(f"{name}: {error}")
    return found


def test_every_module_can_be_imported_first() -> None:
    assert cycles({module_name(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}) == []


def test_an_import_cycle_is_found() -> None:
    """`a` can be imported first: its name is defined when `b` asks for it."""
    modules = {"a": "x = 1\nfrom b import y", "b": "from a import x\ny = x", "c": "from b import y"}
    assert cycles(modules) == ["b: a imports b.y", "c: a imports b.y"]
    modules["a"] = "x = 1\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from b import y"
    assert cycles(modules) == []
