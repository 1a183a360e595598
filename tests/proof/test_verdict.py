"""The words and the exit status of the checker: they say what is proven, about which inputs, and no more."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.cli.invoke import called
from tests.proof.making import BALL, Array, members_of, mlp_file, npy, write

X = np.array([0.3, 0.9, 0.0, 0.5], np.float32)
MASK = np.array([0, 1, 1, 2])
SENTENCE = (
    "Decision 0 is proven: no input within ε = 0.01 (L∞) of this input, with values in [0, 1], is classified "
    "otherwise. This holds in real and in float32 arithmetic."
)


class Files:
    """A certificate that can be made again with another ball or other claims."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given = folder, folder / "x.npy"
        self.model = mlp_file(folder / "net.onnx", (4, 6, 5, 3), 7)
        self.given.write_bytes(npy(X))
        network = checker.read_network(self.model, X.shape)
        question = checker.Question(X, {**BALL, "eps": "0"}, None, 0, checker.Decision(0, [1, 2]))
        self.target = int(checker.Prover(network, question, X[None]).lower[-1].argmax())

    def make(
        self,
        change: Callable[[dict[str, Any], dict[str, Array]], Any] = lambda claim, arrays: None,
        target: int | None = None,
        **ball: Any,
    ) -> list[str]:
        members = members_of(
            self.model, X, MASK, self.target if target is None else target, {**BALL, "eps": "0.01", **ball}
        )
        claim = json.loads(members.pop("claim.json"))
        arrays = {name: checker.read_array(data).copy() for name, data in members.items()}
        change(claim, arrays)
        packed = {name: npy(array) for name, array in arrays.items()}
        proof = write(self.folder / "a.proof", {"claim.json": json.dumps(claim).encode(), **packed})
        return [str(path) for path in (proof, self.model, self.given)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("verdict"))


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], tuple[int, list[str]]]:
    """The exit status and the lines of a check."""

    def run(arguments: list[str]) -> tuple[int, list[str]]:
        return checker.main(arguments), capsys.readouterr().out.splitlines()

    return run


Told = Callable[[list[str]], tuple[int, list[str]]]


def test_the_first_line_is_the_verdict_and_the_rest_names_what_it_is_about(files: Files, told: Told) -> None:
    code, lines = told(files.make())
    assert (code, lines[0]) == (0, SENTENCE.replace("Decision 0", f"Decision {files.target}"))
    assert lines[1] == f"model: SHA-256 {sha256(files.model.read_bytes()).hexdigest()}"
    assert lines[2] == f"input: SHA-256 {sha256(X.tobytes()).hexdigest()} (float32 values, C order)"
    assert lines[3] == "before the network: nothing, it gets the input as it is"
    assert lines[5] == f"ball B: {json.dumps({**BALL, 'eps': '0.01'}, sort_keys=True)}"
    assert lines[6] == "balls B_u, group u does not move: 3"
    assert lines[7].startswith("in real and in float32 arithmetic: ")


def test_a_claim_that_decides_nothing_says_so_and_ends_with_1(files: Files, told: Told) -> None:
    other = (files.target + 1) % 3
    code, lines = told(files.make(target=other))
    least, most = map(
        float, re.findall(r"NOT proven: another class gets ahead by (\S+) at .* up to (\S+)\. The", lines[0])[0]
    )
    claim = checker.read_claim(*files.make(target=other))
    assert code == 1
    assert 0 < least <= claim.ends[0][1][0] < least * 1.02
    assert most * 0.98 < claim.upper(0) <= most

    def nothing_reached(claim: dict[str, Any], arrays: dict[str, Array]) -> None:
        for part in (claim["claims"], claim["claims"]["reals"]):
            arrays.pop(part["lower"])
            part["lower"] = None
        claim["claims"]["points"] = None
        del arrays["points.npy"]

    code, lines = told(files.make(nothing_reached, target=other))
    assert (code, lines[4]) == (1, "ranking: no order of groups is proven")
    assert lines[0] == f"NOT proven: another class may get ahead by up to {most:g}. The claimed bounds are correct."


@pytest.mark.parametrize(("end", "word"), [(0.0, "may draw level"), (1e-30, "may get ahead by up to 1.01E-30")])
def test_a_tie_is_no_proof(files: Files, told: Told, end: float, word: str) -> None:
    def looser(_: dict[str, Any], arrays: dict[str, Array]) -> None:
        for name in ("upper.npy", "reals-upper.npy"):
            arrays[name][0] = np.nextafter(end, 1) if end else 0.0

    code, lines = told(files.make(looser))
    assert (code, lines[0]) == (1, f"NOT proven: another class {word}. The claimed bounds are correct.")


def test_a_softmax_that_was_taken_off_needs_more_than_a_sign(
    files: Files, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: dict[str, Any], arrays: dict[str, Array]) -> None:
        for name in ("upper.npy", "reals-upper.npy"):
            arrays[name][0] = -(2.0**-16)

    given = files.make(close)
    assert told(given)[0] == 0
    read = checker.read_network

    def behind_softmax(*arguments: Any) -> checker.Network:
        network = read(*arguments)
        network.decision_margin = 2.0**-16
        return network

    monkeypatch.setattr(checker, "read_network", behind_softmax)
    code, lines = told(given)
    assert (code, lines[0][:42]) == (1, "NOT proven: another class may draw level. ")


@pytest.mark.parametrize(("end", "said"), [(0.1234, "may get ahead by up to 0.124."), (0.0, "may draw level.")])
def test_the_reals_alone_are_named_as_such(files: Files, told: Told, end: float, said: str) -> None:
    def float32_undecided(_: dict[str, Any], arrays: dict[str, Array]) -> None:
        arrays["upper.npy"][0] = end

    code, lines = told(files.make(float32_undecided))
    assert code == 1
    assert lines[0].startswith(f"Decision {files.target} is proven over the reals only, NOT in float32: no input")
    assert lines[0].endswith(f"In float32 another class {said}")

    def reals_undecided(_: dict[str, Any], arrays: dict[str, Array]) -> None:
        arrays["reals-upper.npy"][0] = 5.0

    code, lines = told(files.make(reals_undecided))  # the first claim is about both
    assert (code, lines[0].partition(". ")[2]) == (0, "This holds in real and in float32 arithmetic.")


BALLS: dict[str, tuple[dict[str, Any], str]] = {
    "L2": ({"norm": "2"}, "within ε = 0.01 (L2) of this input, with values in [0, 1], is"),
    "L1": ({"norm": "1"}, "within ε = 0.01 (L1) of this input, with values in [0, 1], is"),
    "a hex radius": ({"eps": (8 / 255).hex()}, "within ε = 0.0313725 (L∞) of this input"),
    "a domain that rounds inward": ({"domain": ["-0.33333333", "1.33333337"]}, "with values in [-0.333333, 1.33333],"),
    "no domain": ({"domain": None}, "(L∞) of this input, with values of any size, is"),
    "relative": ({"relative": True}, "no input that differs from this input by at most ε = 0.01 of each value's way to "
                 "either end of its range, with values in [0, 1], is"),
    "raised": ({"half": "+"}, "is proven, for one half of a ball: no input within ε = 0.01 (L∞) of this input, with no "
               "value lowered, with values in [0, 1], is classified otherwise."),
    "lowered": ({"half": "-"}, "of this input, with no value raised, with values in [0, 1], is"),
}  # fmt: skip


@pytest.mark.parametrize("name", BALLS)
def test_every_ball_is_named(files: Files, told: Told, name: str) -> None:
    ball, words = BALLS[name]
    code, lines = told(files.make(**ball))
    assert code == 0
    assert words in lines[0]


def test_arrays_of_radii_and_of_ends_are_named(files: Files, told: Told) -> None:
    def named(claim: dict[str, Any], arrays: dict[str, Array]) -> None:
        arrays |= {"eps.npy": np.array([0.001, 0.01, 0.0, 0.002]), "low.npy": np.zeros(4), "high.npy": np.ones(4)}
        claim["ball"] |= {"eps": "eps.npy", "domain": ["low.npy", "high.npy"]}

    code, lines = told(files.make(named, eps="0.01"))  # the claims of a larger ball hold on a smaller one
    assert code == 0
    assert "within ε = 0 to 0.01, as stated for each value, (L∞) of this input, with each value inside its" in lines[0]


def test_a_single_rival_is_named(files: Files, told: Told) -> None:
    rival = (files.target + 1) % 3

    def single(claim: dict[str, Any], arrays: dict[str, Array]) -> None:
        claim["rivals"] = [rival]
        for name in ("lower.npy", "reals-lower.npy"):
            arrays[name][:] = -1e9

    code, lines = told(files.make(single))
    assert code == 0
    assert lines[0].startswith(f"Decision {files.target} is proven against class {rival} alone: no input")
    assert f"is classified as class {rival}. Nothing is proven about the other classes. This holds" in lines[0]


def test_no_bound_is_finite_enough_to_crash(files: Files, told: Told) -> None:
    def unbounded(_: dict[str, Any], arrays: dict[str, Array]) -> None:
        for name in ("upper.npy", "reals-upper.npy"):
            arrays[name][:] = np.inf
        for name in ("lower.npy", "reals-lower.npy"):
            arrays[name][:] = -np.inf

    code, lines = told(files.make(unbounded))
    assert (code, lines[0]) == (
        1,
        "NOT proven: another class may get ahead by up to ∞. The claimed bounds are correct.",
    )


def usage_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert checker.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: python check.py CERTIFICATE MODEL INPUT.npy" in err
    return err.splitlines()[0]


def test_wrong_usage_is_2_and_names_the_file(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proof, model, given = files.make()
    gone = str(tmp_path / "gone.npy")
    assert usage_of([proof, model, gone], capsys) == f"cannot read {gone}: No such file or directory"
    assert usage_of([gone], capsys) == f"cannot read {gone}: No such file or directory"
    assert usage_of([proof, str(tmp_path), given], capsys) == f"cannot read {tmp_path}: Is a directory"
    assert usage_of([str(tmp_path)], capsys) == f"{tmp_path} has no manifest.json: so it is no dossier"
    assert usage_of([proof], capsys).endswith("has no manifest.json: expected a certificate, a model and an input")
    for count in (0, 2, 4):
        assert usage_of([proof] * count, capsys).startswith(f"got {count} arguments, expected ")
    (tmp_path / "cut.zip").write_bytes(b"PK")
    assert checker.main([str(tmp_path / "cut.zip")]) == 1  # a file that is damaged is no error of use
    assert capsys.readouterr().out.startswith("rejected: ")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_is_printed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main([word]) == 0
    assert capsys.readouterr().out.startswith("usage: python check.py CERTIFICATE MODEL INPUT.npy")


def test_a_terminal_without_greek_letters_is_no_error(files: Files) -> None:
    command = [sys.executable, "-I", "-X", "utf8=0", checker.__file__, *files.make()]
    done = subprocess.run(
        [sys.executable, *command[2:]],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "no input within eps = 0.01 (Linf) of this input" in done.stdout.splitlines()[0]


def test_the_command_uses_the_same_words(files: Files, told: Told) -> None:
    code, lines = told(files.make())
    found = called("check", *files.make())
    assert (found.exit_code, found.stdout.splitlines()) == (code, lines)
    found = called("check", *files.make()[:2])
    assert found.exit_code == 2
    assert "got 2 arguments" in found.stderr
    assert "usage: proofmap check CERTIFICATE" in found.stderr
    assert called("check", *files.make(target=(files.target + 1) % 3)).exit_code == 1
