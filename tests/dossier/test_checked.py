"""A dossier of real certificates: its own checker, alone in a folder, proves it anew, and nothing that was changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from proofmap.dossier import dossier
from proofmap.proof.check import main
from proofmap.runs import run
from tests.runs.setting import Digits, digits_model, job

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("certified")
    run(Digits(2), digits_model(), job(), here / "results", certified=True, progress=False)
    facts = dossier(here / "results", here / "dossier.zip", date=date(2026, 3, 1), progress=False)
    assert (facts.certified, facts.proven) == (2, "2 of 2 samples (100.0 %)")
    return here / "dossier.zip"


def members_of(archive: Path) -> Members:
    with ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(members: Members, out: Path, *, honest: bool) -> Path:
    """The members as a dossier; honest: its list of hashes is that of what was changed."""
    manifest = json.loads(members["manifest.json"])
    if honest:
        manifest["files"] = {n: sha256(data).hexdigest() for n, data in members.items() if n != "manifest.json"}
    with ZipFile(out, "w") as file:
        for name, data in {**members, "manifest.json": json.dumps(manifest).encode()}.items():
            file.writestr(name, data)
    return out


def test_its_own_checker_proves_it_anew(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_bytes(members_of(archive)["check.py"])
    command = [sys.executable, "-I", "check.py", str(archive)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[:2]] == [
        "certificates/000000.proof",
        "certificates/000001.proof",
    ]


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
    "a page": lambda members: members.update({"evidence.html": b"all is proven"}),
    "a member more": lambda members: members.update({"more.txt": b"trust me"}),
    "a member less": lambda members: members.pop("claims.csv"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_is_refused(archive: Path, tmp_path: Path, what: str) -> None:
    members = members_of(archive)
    CHANGES[what](members)
    assert main([str(packed(members, tmp_path / "changed.zip", honest=False))]) == 1


@pytest.mark.parametrize("what", ["a claim", "a weight", "an input"])
def test_what_is_proven_needs_no_trust_in_the_list(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    members = members_of(archive)
    CHANGES[what](members)
    assert main([str(packed(members, tmp_path / "changed.zip", honest=True))]) == 1
    assert "certificates/00000" in capsys.readouterr().out.splitlines()[-1]


def test_inputs_are_the_samples_bit_for_bit(archive: Path) -> None:
    given = np.load(BytesIO(members_of(archive)["inputs/000001.npy"]))
    assert given.dtype == np.float32
    assert given.tobytes() == Digits(2).images[1].numpy().tobytes()
