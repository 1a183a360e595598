"""Try the installed package in an environment with only its dependencies; `make release` runs this.

PYTHON -I scripts/try_release.py        # PYTHON: of an environment with the wheel and its dependencies, no extras

Every module must be importable, the demo must work, and each call that needs an extra must name it. The script prints
its results and the seconds of `import`. The exit code is 1 if something is wrong.
"""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

NEEDS_EXTRA = {  # the call, and the extra that its error must name
    "explain zoo:mnist_mlp digit.png --groups superpixels:8": "superpixels",
    "explain zoo:efficientnet_lite0 digit.png": "imagenet",
    "explain acos.onnx digit.png": "onnx",
    "export results results.parquet": "export",
    "export results results.zarr": "export",
    "run digits.npz --model zoo:mnist_mlp --eps 0.01 --engine ray --out elsewhere": "ray",
}
IMPORTS = """
from time import process_time as now
started = now()
import proofmap
loaded = now()
import torch
between = now()
from proofmap import *
print(f"import proofmap: {loaded - started:.2f} s of the processor; import torch: {between - loaded:.2f} s;", end=" ")
print(f"then every name of proofmap: {now() - between:.2f} s")
"""


def expect(right: bool, otherwise: str) -> None:
    """Stop with an error unless the condition is true."""
    if not right:
        raise SystemExit(f"error: {otherwise}")


def installed(*words: str) -> str:
    """Return the output of the installed program."""
    program = str(Path(sys.executable).with_name("proofmap"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    expect(done.returncode == 0, f"proofmap {' '.join(words)} ended with {done.returncode}:\n{said}")
    return done.stdout


def called(line: str, code: int) -> str:
    """Return the output of a command that must end with this code; it runs in this process, where torch is loaded."""
    from typer.testing import CliRunner

    from proofmap.cli import app

    done = CliRunner().invoke(app, line.split(), prog_name="proofmap")
    expect(done.exit_code == code, f"proofmap {line} ended with {done.exit_code}, expected {code}:\n{done.output}")
    return done.output


def try_modules() -> None:
    """Import every module of the package, and check that it is the installed one."""
    package = import_module("proofmap")
    place = str(package.__file__)
    expect(Path(place).is_relative_to(sys.prefix), f"got proofmap from {place}, expected it under {sys.prefix}")
    names = [one.name for one in pkgutil.walk_packages(package.__path__, "proofmap.")]
    names.remove("proofmap.__main__")
    expect(len(names) > 200, f"got {len(names)} modules, expected those of the package")
    for name in names:
        import_module(name)
    print(f"import of {len(names)} modules")


def write_files() -> None:
    """Write packaged digits as a picture and as an array, and a network with an operation without a rule."""
    import numpy as np
    from onnx import TensorProto, helper, save
    from PIL import Image

    from proofmap import data

    images, labels = data.digits()
    Image.fromarray((images[0, 0].numpy() * 255).round().astype(np.uint8)).save("digit.png")
    np.savez("digits.npz", images=images[:2].numpy(), labels=labels[:2].numpy())
    nodes = [helper.make_node("Acos", ["x"], ["s"], name="angle"), helper.make_node("Flatten", ["s"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 28, 28])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 784])
    save(helper.make_model(helper.make_graph(nodes, "acos", [x], [y])), "acos.onnx")


def try_demo() -> None:
    """Check the version of the installed program, and that its demo proves, draws and reports."""
    from proofmap import Explanation

    said = installed("--version")
    expect(said == f"proofmap {version('proofmap')}\n", f"got {said!r}, expected the version that is installed")
    said = installed("demo", "--out", "demo")
    expect("the lead of 9 is proven to be at most" in said, f"the demo says nothing of the 4s:\n{said}")
    page = Path("demo/report.html").read_text(encoding="utf-8")
    expect(page.count("<article") == 9, f"the demo's report shows {page.count('<article')} digits, expected 9")
    expect(len(Explanation.load("demo/digits.proofmap")) == 6, "the demo's file does not hold its 6 digits")
    print(said.splitlines()[-1])


def try_extras() -> None:
    """Check that a run needs no extra, and that each call that needs one says so in one sentence."""
    from proofmap import InputError
    from proofmap.runs import Results

    called("run digits.npz --model zoo:mnist_mlp --eps 0.01 --groups grid:4 --out results", 0)
    for line, extra in NEEDS_EXTRA.items():
        said = called(line, 2)
        right = said.startswith("error: ") and said.count("\n") == 1 and f"pip install 'proofmap[{extra}]'" in said
        expect(right, f"proofmap {line} says {said!r}, expected one sentence with pip install 'proofmap[{extra}]'")
        print(said, end="")
    try:
        Results.open("results").to_frame()
    except InputError as error:
        expect("pip install 'proofmap[export]'" in str(error), f"a frame without pandas says {error}")
    else:
        raise SystemExit("error: pandas was found, expected an environment without extras")


def main() -> None:
    """Try everything in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try_modules()
        write_files()
        try_demo()
        try_extras()
        print(subprocess.check_output([sys.executable, "-I", "-c", IMPORTS], text=True), end="")


if __name__ == "__main__":
    main()
