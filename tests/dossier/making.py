"""A run of some digits with certificates, and a fake checker that accepts all of them."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import proofmap as pm
from proofmap.runs import run
from proofmap.runs.manifest import Manifest
from tests.runs.setting import Digits, digits_model, job

COUNT = 5
EPS = 0.02
GROUPS = 16
BAD = 3  # the row without a certificate
REASON = "undecided, rounding"

CHECKER = """
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as file:
    for check in json.loads(file.read("manifest.json"))["certificates"]:
        print(check["certificate"] + ": Decision")
print("1 of 1 decisions proven, 0 not proven")
"""
Members = dict[str, bytes]


def digits_run(folder: Path, count: int = COUNT, *, certified: bool = True) -> Path:
    """Run some packaged digits."""
    ball = pm.Ball(EPS, domain=(0.0, 1.0))
    run(Digits(count), digits_model(), job(ball=ball), folder, progress=False, certified=certified)
    return folder


def put(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the index of certificates, and update its hash in the manifest."""
    path = folder / "certificates" / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    replace(Manifest.load(folder), certificates=sha256(path.read_bytes()).hexdigest()).save(folder)


def without(row: int, reason: str) -> Callable[[dict[str, Any]], None]:
    """Return a change of the index that removes a row's certificate."""

    def change(index: dict[str, Any]) -> None:
        index["samples"][row] = {"row": row, "reason": reason}

    return change


def members_of(archive: Path) -> Members:
    """Return the members of a dossier."""
    with ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(members: Members, out: Path, *, honest: bool) -> Path:
    """Write the members as a dossier; honest: with the hashes of the changed members."""
    manifest = json.loads(members["manifest.json"])
    if honest:
        manifest["files"] = {n: sha256(data).hexdigest() for n, data in members.items() if n != "manifest.json"}
    with ZipFile(out, "w") as file:
        for name, data in {**members, "manifest.json": json.dumps(manifest).encode()}.items():
            file.writestr(name, data)
    return out
