"""A run of some digits with stand-ins for its certificates, and a checker that believes all but one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

import proofmap as pm
from proofmap.runs import Results, run
from proofmap.runs.manifest import Manifest
from tests.runs.setting import COUNT, EPS, Digits, digits_model, job

GROUPS = 16
BAD = 3  # the row without a certificate

CHECKER = """
import hashlib, json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as file:
    manifest = json.loads(file.read("manifest.json"))
    assert sorted(file.namelist()) == sorted([*manifest["files"], "manifest.json"])
    for name, expected in manifest["files"].items():
        assert hashlib.sha256(file.read(name)).hexdigest() == expected, name
    for check in manifest["certificates"]:
        assert set(check) == {"certificate", "model", "input"} and set(check.values()) <= set(manifest["files"])
        if b"a lie" in file.read(check["certificate"]):
            sys.exit(print(check["certificate"] + ": AO(B) <= -1 is not proven") or 1)
        print(check["certificate"] + ": proven")
"""


def certify(folder: Path, *, model_name: str = "network.onnx", **changes: Any) -> None:
    """Put stand-ins for certificates into the folder of a finished run."""
    results = Results.open(folder)
    place = folder / "certificates"
    place.mkdir()
    model = place / model_name
    model.write_bytes(b"a network")
    images, _ = pm.data.digits()
    samples: list[dict[str, Any]] = []
    for row in range(len(results)):
        if row == BAD:
            samples.append({"row": row, "reason": "undecided, rounding"})
            continue
        x = images[results["index"][row]].numpy()
        np.save(place / f"{row:06d}.npy", x)
        proof = certificate(x, int(results["target"][row]), float(results["full"][row]), model.read_bytes(), **changes)
        (place / f"{row:06d}.proof").write_bytes(proof)
        names = {"certificate": f"{row:06d}.proof", "input": f"{row:06d}.npy"}
        samples.append({"row": row, **names, "sha256": sha256(proof).hexdigest()})
    index = {"format": "proofmap-certificates", "version": 1, "model": model.name, "samples": samples}
    put(folder, index)


def put(folder: Path, index: dict[str, Any]) -> None:
    """The list of certificates, and its hash into the manifest."""
    text = json.dumps(index).encode()
    (folder / "certificates" / "index.json").write_bytes(text)
    replace(Manifest.load(folder), certificates=sha256(text).hexdigest()).save(folder)


def certificate(x: Any, target: int, full: float, model: bytes, /, *, lower: bool = False, **changes: Any) -> bytes:
    """One that claims what it is told; `changes` go into claim.json."""
    rivals = [k for k in range(10) if k != target]
    frozen = np.full(GROUPS, full - 0.5)
    claims: dict[str, Any] = {"upper": "upper.npy", "lower": None, "points": None}
    claims["reals"] = {"upper": "upper.npy", "lower": None}
    arrays = {"upper.npy": np.append(full, frozen)}
    if lower:
        claims |= {"lower": "lower.npy", "points": "points.npy", "reals": {"upper": "near.npy", "lower": "met.npy"}}
        arrays |= {"lower.npy": np.append(full, frozen) - 1}
        met = np.append(full, frozen) - 0.1
        near = met + 0.05
        near[1:3] -= 0.2  # two groups that count more than all others, not told apart
        met[1:3] -= 0.2
        arrays |= {"near.npy": near, "met.npy": met}
    claim = {
        "format": "proofmap-certificate",
        "version": 3,
        "model": {"sha256": sha256(model).hexdigest(), "prepare": None},
        "input": {"sha256": sha256(x.astype("<f4").tobytes()).hexdigest(), "shape": [1, 28, 28]},
        "ball": {"norm": "inf", "eps": str(EPS), "domain": ["0", "1"], "relative": False, "half": None},
        "groups": {"count": GROUPS, "mask": "mask.npy"},
        "target": target,
        "rivals": rivals,
        "claims": claims,
        **changes,
    }
    content = BytesIO()
    with ZipFile(content, "w") as file:
        file.writestr("claim.json", json.dumps(claim))
        for name, values in arrays.items():
            packed = BytesIO()
            np.save(packed, values)
            file.writestr(name, packed.getvalue())
    return content.getvalue()


def digits_run(folder: Path, count: int = COUNT) -> Path:
    """The run of some packaged digits."""
    run(Digits(count), digits_model(), job(), folder, progress=False)
    return folder


__all__ = ["BAD", "CHECKER", "COUNT", "GROUPS", "certificate", "certify", "digits_run", "put"]
