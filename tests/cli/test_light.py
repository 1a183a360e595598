"""Help, completion and invalid options are answered before torch, numpy and matplotlib are loaded."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proofmap import __version__
from proofmap.bench import names as bench_names
from proofmap.bounds import METHODS
from proofmap.bounds.method import SYNONYMS
from proofmap.cli.options import option_names as names
from proofmap.runs.results_export import WRITERS
from proofmap.zoo import __all__ as zoo_names
from tests.cli.test_app import completion
from tests.sources.files import write_known

HEAVY = {"torch", "numpy", "matplotlib", "onnx", "PIL", "pandas", "captum", "safetensors", "tqdm", "ray", "skimage"}

# One process runs all cases. Each returns its exit code, its output and the loaded modules.
SCRIPT = """
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from proofmap.cli import app

heavy, found = set(json.loads(sys.argv[2])), []
for words, environment in json.loads(sys.argv[1]):
    os.environ.update(environment)
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            app(words, prog_name="proofmap")
        except SystemExit as end:
            code = end.code or 0
    found.append([code, out.getvalue(), err.getvalue(), sorted(heavy & set(sys.modules))])
    for name in environment:
        del os.environ[name]
print(json.dumps(found))
"""

COMMANDS = ("explain", "verify", "compare", "bench", "run", "export", "report", "claim", "demo")
HELP: list[list[str]] = [[], ["--help"], ["-h"], ["--version"], *([name, "-h"] for name in COMMANDS)]
MODEL = ["zoo:mnist_mlp", "no-such-file.png"]
WRONG: list[tuple[list[str], str]] = [
    (["verify", *MODEL, "--norm", "3"], "got --norm 3, expected one of 1, 2, inf"),
    (["verify", *MODEL, "--eps", "abc"], "got --eps abc, expected a number such as 0.02 or 2/255"),
    (["verify", *MODEL, "--eps", "auto"], "got --eps auto, expected a number"),
    (["verify", *MODEL, "--bounds", "ibp+foo"], "got bounds 'ibp+foo', expected names among ibp, "),
    (["verify", *MODEL, "--seconds", "5"], "got --seconds 5 with no --bounds, expected --bounds exact beside it"),
    (
        ["explain", *MODEL, "--bounds", "ibp+forward", "--seconds", "5", "--gap", "0.1"],
        "got --seconds 5 and --gap 0.1 with --bounds ibp+forward, expected --bounds exact beside it",
    ),
    (["explain", *MODEL, "--bounds", "exact", "--gap", "0"], "got --gap 0, expected a number above 0, such as 0.001"),
    (["verify", *MODEL, "--bounds", "exact", "--seconds", "nan"], "got --seconds nan, expected a number above 0"),
    (["run", "x", "--model", "y", "--out", "z", "--seconds", "5"], "got --seconds 5 with no --bounds, expected"),
    (["explain", *MODEL, "--groups", "foo"], "got --groups foo, expected pixels, grid:12, "),
    (["explain", *MODEL, "--groups", "grid:0"], "got --groups grid:0, expected pixels, grid:12, "),
    (["explain", *MODEL, "--domain", "1"], "got --domain 1, expected two numbers such as 0,1"),
    (["explain", *MODEL, "--method", "foo"], "got --method foo, expected one of first-order, "),
    (["explain", *MODEL, "--method", "targeted"], "got --method targeted alone, expected the class to move to"),
    (["explain", *MODEL, "--device", "tpu"], "got --device tpu, expected cpu, cuda or cuda:1"),
    (["explain", *MODEL, "--size", "x"], "got --size x, expected a side such as 224"),
    (["explain", *MODEL, "--mean", "a,b"], "got --mean a, expected a number"),
    (["explain", *MODEL, "--layout", "HWC"], "got --layout HWC, expected NCHW or NHWC"),
    (["compare", *MODEL, "--methods", "eva,foo"], "got the method 'foo', expected one of "),
    (["compare", *MODEL, "--metrics", "foo"], "got the metric 'foo', expected one of "),
    (["run", "x", "--model", "y", "--out", "z", "--method", "foo"], "got --method foo, expected one of "),
    (["run", "x", "--model", "y", "--out", "z", "--engine", "foo"], "got --engine foo, expected local or ray"),
    (["run", "x", "--model", "y", "--out", "z", "--set", "foo"], "got --set foo, expected a name and a value"),
    (["run", "x", "--model", "y", "--out", "z", "--memory", "0"], "got --memory 0, expected a number of GiB"),
    (["export", "run", "out.foo"], "got the name out.foo, expected one that ends in "),
    (["claim", "zoo:mnist_mlp", "x.proofmap", "--groups", "some"], "got --groups some, expected one of all, top, none"),
    (["bench", "court"], "got court, expected a table of this package: the trials with known ground truth are in "),
    (["report", "page.txt", "maps"], "got the page page.txt, expected a name that ends in .html"),
]
COMPLETED: list[tuple[str, list[str]]] = [
    ("ver", ["verify"]),
    ("bench table1-m", ["table1-mnist"]),
    ("explain z", [f"zoo:{name}" for name in sorted(zoo_names)]),
    (
        "explain zoo:mn",
        ["mnist_mlp", "mnist_provable"],
    ),  # bash splits words at colons, so only the last part is completed
    ("run --model zoo:", sorted(zoo_names)),
    ("explain net", []),  # the shell completes names of files
    ("verify --bounds cr", ["crown-ibp", "crown"]),
    ("verify --device c", ["cpu", "cuda"]),
    ("export run out", []),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    cases = [
        *([words, {}] for words in HELP),
        *([words, {}] for words, _ in WRONG),
        *([[], completion(line)] for line, _ in COMPLETED),
    ]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(cases), json.dumps(sorted(HEAVY))],
        cwd=tmp_path_factory.mktemp("light"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_nothing_heavy_is_loaded(answers: list[Any]) -> None:
    asked_for = [*HELP, *(words for words, _ in WRONG), *(line for line, _ in COMPLETED)]
    loaded = {str(words): heavy for words, (_, _, _, heavy) in zip(asked_for, answers, strict=True) if heavy}
    assert loaded == {}


def test_help_and_version_answer(answers: list[Any]) -> None:
    for words, (code, out, _, _) in zip(HELP, answers, strict=False):
        assert code == (0 if words else 2), words
        assert ("Usage: proofmap" in out) == (words != ["--version"]), words
    assert answers[HELP.index(["--version"])][1] == f"proofmap {__version__}\n"
    assert answers[HELP.index(["-h"])][1] == answers[HELP.index(["--help"])][1]


@pytest.mark.parametrize("k", range(len(WRONG)), ids=[" ".join(words) for words, _ in WRONG])
def test_an_invalid_option_is_one_sentence(k: int, answers: list[Any]) -> None:
    code, out, err, _ = answers[len(HELP) + k]
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {WRONG[k][1]}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("k", range(len(COMPLETED)), ids=[line for line, _ in COMPLETED])
def test_the_shell_completes(k: int, answers: list[Any]) -> None:
    assert answers[len(HELP) + len(WRONG) + k][1].split() == COMPLETED[k][1]


def test_option_names_equal_those_of_the_library() -> None:
    assert (*METHODS, *SYNONYMS) == names.BOUND_NAMES
    assert tuple(WRITERS) == names.EXPORT_SUFFIXES
    assert names.zoo() == sorted(zoo_names)
    assert names.benches() == sorted(bench_names())


PROPERTY = """(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0.25)) (assert (<= X_0 0.5)) (assert (>= X_1 0.1)) (assert (<= X_1 0.3)) (assert (>= Y_0 0.6))
"""


def test_the_package_loads_only_used_modules(tmp_path: Path) -> None:
    write_known(tmp_path / "net.onnx")
    (tmp_path / "x.vnnlib").write_text(PROPERTY)
    code = """
import sys
import proofmap as pm
assert "torch" not in sys.modules
assert {"EVA", "overlap", "zoo", "__version__"} <= set(dir(pm)), dir(pm)
try:
    pm.nothing
except AttributeError as error:
    assert str(error) == "module 'proofmap' has no attribute 'nothing'", error
else:
    raise AssertionError
from proofmap.explainers import EVA
assert pm.EVA is EVA
assert callable(pm.overlap) and pm.overlap.__name__ == "overlap"
assert pm.errors.InputError is pm.InputError
from proofmap import *
assert EVA is pm.EVA and set(pm.__all__) <= set(globals())
later = {"captum", "matplotlib", "pandas", "ray", "scipy.optimize", "skimage"}    # for what needs them
assert not later & set(sys.modules), later & set(sys.modules)
from proofmap.cli import app
try:
    app(["verify", "net.onnx", "x.vnnlib", "--bounds", "exact"], prog_name="proofmap")
except SystemExit as end:
    assert not end.code, end.code
# two seconds of compilers and algebra, which torch loads for the first tensor without storage; and pictures
later |= {"torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "sympy", "PIL.Image", "scipy"}
later |= {"onnx.reference", "highspy"}
assert not later & set(sys.modules), later & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_first_module_of_the_package_names_what_it_loads() -> None:
    import proofmap as pm

    assert len(set(pm.__all__)) == len(pm.__all__)
    assert all(getattr(pm, name) is not None for name in pm.__all__)
    assert Path(pm.__file__).name == "__init__.py"
