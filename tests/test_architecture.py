"""Rules about the whole package: who imports whom, names, sentences, and hosts that no text may name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

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
    {"verify", "proof"},
    {"explainers", "text", "plots"},
    {"metrics", "sources"},
    {"bench", "ground_truth", "runs", "report"},
    {"claims", "dossier"},
    {"cli"},
)
STEP = {part: step for step, parts in enumerate(ORDER) for part in parts}

# Parts outside the layers: they import only `errors`, so that nothing in them depends on how a bound is computed.
ALONE = {"zoo", "data"}

ROOT_MODULES = {"__init__", "__main__", "api"}  # entry points: they import everything, and nothing imports them

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


def imported(source: str, package: str) -> Iterator[str]:
    """Yield every dotted name that `source`, a module of `package`, imports, at the top or inside a function.

    `from a import b` yields `a.b`: b may be a module.
    """
    for node in ast.walk(ast.parse(source)):
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


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the project's own text files: no environment, cache, build output or binary."""
    skipped = {"build", "dist", "out", "__pycache__"}
    for path in sorted(ROOT.rglob("*")):
        folders = path.relative_to(ROOT).parts[:-1]
        hidden = any(name.startswith(".") and name != ".ci" for name in folders)
        if hidden or skipped.intersection(folders) or any(name.endswith(".egg-info") for name in folders):
            continue
        if path.is_file():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_the_text_names_no_package_registry() -> None:
    read = dict(texts())
    assert ROOT / "pyproject.toml" in read
    named = [
        f"{path.relative_to(ROOT)}: {host}" for path, text in read.items() for host in REGISTRY_HOSTS if host in text
    ]
    assert named == []


def warned(source: str) -> list[str]:
    """Return the category of each `warnings.warn` in a module, "" if it has none."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call.args[1]) if len(call.args) > 1 else ""
        for call in calls
        if ast.unparse(call.func) == "warnings.warn"
    ]


def test_one_line_switches_all_warnings_off() -> None:
    """All warnings of Proofmap have one class."""
    found = [category for path in MODULES for category in warned(path.read_text(encoding="utf-8"))]
    assert set(found) == {"ProofmapWarning"}
    assert warned("import warnings\nwarnings.warn('a')\nwarnings.warn('b', UserWarning)") == ["", "UserWarning"]
