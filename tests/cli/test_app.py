"""Every command: exit codes, help and completion."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from proofmap.cli import app
from tests.cli.invoke import called, installed
from tests.sources.files import write_linear


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_linear(tmp_path / "net.onnx", (2,))
    np.save(tmp_path / "x.npy", np.full((1, 2), 0.5, dtype=np.float32))
    return tmp_path


def test_a_closed_pipe_ends_a_command_quietly(files: Path) -> None:
    words = [sys.executable, "-m", "proofmap", "verify", "net.onnx", "x.npy", "--eps", "0.01"]
    with subprocess.Popen(words, cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_characters_that_the_terminal_lacks_are_escaped(files: Path) -> None:
    words = ["explain", str(files / "net.onnx"), str(files / "x.npy"), "--eps", "0.01", "--out", str(files / "out")]
    found = CliRunner(charset="cp1252").invoke(app, words)
    assert found.exit_code == 0, found.output
    assert r"\u03b5 = 0.01" in found.stdout


def test_a_place_that_cannot_be_written_is_one_sentence(files: Path) -> None:
    taken = files / "out" / "x.map.png"
    taken.mkdir(parents=True)
    found = called("explain", files / "net.onnx", files / "x.npy", "--eps", "0.01", "--out", files / "out")
    assert found.exit_code == 2
    assert found.stderr == (
        f"error: {taken}: Is a directory; check the path, its permissions and the space on the disk\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (OSError(28, "No space left on device"), 2, "error: No space left on device; check the path, its permissions "),
        (MemoryError(), 2, "error: there is not enough memory: close other programs, give fewer inputs at a time, "),
        (OSError(12, "Cannot allocate memory"), 2, "error: there is not enough memory: "),
        (
            ImportError("libtorch_cpu.so: cannot map it: Cannot allocate memory"),
            2,
            "error: there is not enough memory: ",
        ),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might"), 2, "error: there is not enough memory: "),
        (
            ZeroDivisionError("odd"),
            3,
            "error: ZeroDivisionError: odd; this is a bug of proofmap: proofmap --debug verify ... shows where it is\n",
        ),
    ],
)
def test_exit_codes(error: BaseException, code: int, said: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("proofmap.cli.options.samples_and_balls.read_cases", fail)
    found = called("verify", files / "net.onnx", files / "x.npy", "--eps", "0.01")
    assert found.exit_code == code
    assert found.stderr.startswith(said)
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("make", [lambda: np.empty(2**50), lambda: torch.empty(2**60)], ids=["numpy", "torch"])
def test_missing_memory_is_not_reported_as_a_bug(
    make: Callable[[], object], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are the messages of numpy and torch."""
    monkeypatch.setattr("proofmap.cli.options.samples_and_balls.read_cases", lambda *_, **__: make())
    found = called("verify", files / "net.onnx", files / "x.npy", "--eps", "0.01")
    assert found.exit_code == 2
    assert re.fullmatch(r"error: there is not enough memory: .* --bounds crown-ibp; .*llocate.*\n", found.stderr)


COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_with_an_example(name: str) -> None:
    assert f"For instance: proofmap {name} " in COMMANDS[name].help
    for one in COMMANDS[name].params:
        assert one.help, one.name
        if one.param_type_name == "option" and not one.is_flag:
            assert re.search(rf"{one.opts[0]} \S", one.help), (one.name, one.help)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ver", ["verify"]),
        ("verify --norm i", ["inf"]),
        ("verify --norm ", ["1", "2", "inf"]),
        ("verify --bounds f", ["forward"]),
        ("explain --layout NH", ["NHWC"]),
        ("explain --method hy", []),
        ("run --method hy", ["hybrid"]),
        ("run --engine r", ["ray"]),
    ],
)
def test_the_shell_completes_commands_and_values(line: str, expected: list[str]) -> None:
    assert CliRunner().invoke(app, [], prog_name="proofmap", env=completion(line)).stdout.split() == expected


def completion(line: str) -> dict[str, str]:
    """Return the environment of a completion by bash: one word in each line, split at colons too."""
    words = re.sub(r"(?<=:)(?=\w)|(?=:)", " ", f"proofmap {line}").split(" ")
    return {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_PROOFMAP_COMPLETE": "complete_bash"}


@pytest.mark.skipif(sys.platform != "linux", reason="torch brings GNU's OpenMP there, which says what it was told")
@pytest.mark.parametrize(("own", "turns"), [({}, 0), ({"OMP_WAIT_POLICY": "ACTIVE"}, 3 * 10**10)])
def test_torch_threads_wait_passively_by_default(own: dict[str, str], turns: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "verbose", **own}
    code = "from proofmap.cli import app; app(['--version'], standalone_mode=False); import torch"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert f"GOMP_SPINCOUNT = '{turns}'" in done.stderr


def test_the_installed_program_completes(tmp_path: Path) -> None:
    assert installed(folder=tmp_path, **completion("ver")).stdout.split() == ["verify"]
    script = installed(folder=tmp_path, _PROOFMAP_COMPLETE="source_bash")
    assert "complete -o default -F _proofmap_completion proofmap" in script.stdout
