"""The scripts of the competition: their arguments, and the answers that they write."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources.files import write_known

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "vnncomp"
PROPERTY = """(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0.25)) (assert (<= X_0 0.5)) (assert (>= X_1 0.1)) (assert (<= X_1 0.3))
"""  # y_0 = relu(x_0), y_1 = x_0 - x_1

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or any(shutil.which(name) is None for name in ("bash", "timeout", "awk")),
    reason="needs bash and coreutils",
)


def run(script: str, *words: object, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PROOFMAP_PYTHON": python, "PROOFMAP_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = ["bash", str(SCRIPTS / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=settings)


@pytest.mark.slow
def test_an_instance_is_decided(tmp_path: Path) -> None:
    write_known(tmp_path / "net.onnx")
    for name, condition in (("unsat", "(assert (>= Y_0 0.6))"), ("sat", "(assert (>= Y_1 0.35))")):
        (tmp_path / f"{name}.vnnlib").write_text(PROPERTY + condition)
        words = ("v1", "test", tmp_path / "net.onnx", tmp_path / f"{name}.vnnlib")
        done = run("run_instance.sh", *words, tmp_path / "r.txt", 60)
        assert done.returncode == 0, done.stderr
        first, *rest = (tmp_path / "r.txt").read_text().splitlines()
        assert first == name
        assert len(rest) == (4 if name == "sat" else 0)
    assert rest[0].startswith("((X_0 ")
    assert rest[3].startswith("(Y_1 0.")
    assert rest[3].endswith("))")


def test_an_answer_that_proofmap_did_not_write_is_an_error_or_a_timeout(tmp_path: Path) -> None:
    """With other programs in the place of the interpreter."""
    words = ("v1", "test", tmp_path / "net.onnx", tmp_path / "x.vnnlib", tmp_path / "r.txt")
    assert run("run_instance.sh", *words, 5, python="false").returncode == 0
    assert (tmp_path / "r.txt").read_text() == "error\n"
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/bash\nexec sleep 5\n")
    slow.chmod(0o700)
    assert run("run_instance.sh", *words, 0.1, python=str(slow)).returncode == 0
    assert (tmp_path / "r.txt").read_text() == "timeout\n"


@pytest.mark.parametrize(
    ("script", "words", "message"),
    [
        ("install_tool.sh", ["v2"], "got version 'v2' of the interface, expected v1"),
        ("prepare_instance.sh", [], "got version '' of the interface, expected v1"),
        ("prepare_instance.sh", ["v1", "test", "a.onnx"], "got 3 arguments, expected 4"),
        ("prepare_instance.sh", ["v1", "test", "no-such.onnx", "b.vnnlib"], "cannot read no-such.onnx"),
        ("run_instance.sh", ["v2"], "got version 'v2' of the interface"),
        ("run_instance.sh", ["v1", "test", "a.onnx", "b.vnnlib"], "got 4 arguments, expected 6"),
    ],
)
def test_wrong_arguments_are_named(script: str, words: list[str], message: str) -> None:
    done = run(script, *words)
    assert done.returncode == 1
    assert message in done.stderr
