"""A dossier of real certificates: its own checker, alone in a folder, accepts it and refuses changes."""

import json
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from proofmap.proof.check import main
from tests.dossier.making import REASON, Members, members_of, packed
from tests.runs.setting import Digits


def test_its_own_checker_proves_it_again(archive: Path, tmp_path: Path) -> None:
    members = members_of(archive)
    (tmp_path / "check.py").write_bytes(members["check.py"])
    command = [sys.executable, "-I", "-X", "utf8", "check.py", str(archive)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(" is proven: ")[0] for line in lines[:2]] == [
        "certificates/000000.proof: Decision 7",
        "certificates/000001.proof: Decision 2",
    ]
    assert lines[2] == f'sample 2: NOT proven: it has no certificate; the maker states: "{REASON}"'
    model = json.loads(members["manifest.json"])["files"]["model/network.onnx"]
    assert lines[-1] == f"2 of 3 decisions proven, 1 not proven; model SHA-256 {model}"


def _claim_more(members: Members) -> None:
    name = "certificates/000001.proof"
    with ZipFile(BytesIO(members[name])) as file:
        inner = {part: file.read(part) for part in file.namelist()}
    changed = BytesIO()
    np.save(changed, np.load(BytesIO(inner["upper.npy"])) - 1e-3)
    out = BytesIO()
    with ZipFile(out, "w") as file:
        for part, data in {**inner, "upper.npy": changed.getvalue()}.items():
            file.writestr(part, data)
    members[name] = out.getvalue()


def _other_weight(members: Members) -> None:
    data = bytearray(members["model/network.onnx"])
    data[-1] ^= 1
    members["model/network.onnx"] = bytes(data)


def _other_input(members: Members) -> None:
    members["inputs/000000.npy"] = members["inputs/000001.npy"]


CHANGES: dict[str, Callable[[Members], object]] = {
    "a claim": _claim_more,
    "a weight": _other_weight,
    "an input": _other_input,
}


@pytest.mark.parametrize("honest", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_is_refused(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, honest: bool
) -> None:
    members = members_of(archive)
    CHANGES[what](members)
    assert main([str(packed(members, tmp_path / "changed.zip", honest=honest))]) == 1
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("rejected: ")
    assert "certificates/00000" in said if honest else said.endswith("is not the file that was packed")


@pytest.mark.parametrize("name", ["summary.html", "more.txt", "./run/log.jsonl"])
def test_a_member_of_no_known_kind_is_refused(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A page that the checker does not derive is refused."""
    members = {**members_of(archive), name: b"all decisions are proven"}
    assert main([str(packed(members, tmp_path / "more.zip", honest=True))]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f'rejected: "{name}" is no member of a dossier'


def test_inputs_are_the_samples_bit_for_bit(archive: Path) -> None:
    given = np.load(BytesIO(members_of(archive)["inputs/000001.npy"]))
    assert given.dtype == np.float32
    assert given.tobytes() == Digits(2).images[1].numpy().tobytes()
