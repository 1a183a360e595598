"""A small dossier made by hand: three certificates of a small network, and a sample without one."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from proofmap.dossier.page_texts import templates
from proofmap.proof import check as checker
from tests.proof.making import BALL, members_of, mlp_file, npy, output_members, write

Members = dict[str, bytes]
SETTING = {**BALL, "eps": "0.01", "domain": ["0.0", "1.0"]}
MODEL = "model/network.onnx"
POINTS = [[0.3, 0.9, 0.0, 0.5], [0.1, 0.2, 0.3, 0.4], [0.9, 0.8, 0.1, 0.0]]
REASON = "float32 overflows"


def dumped(value: Any) -> bytes:
    """JSON as a dossier has it."""
    return (json.dumps(value, indent=1) + "\n").encode()


def small_dossier(folder: Path) -> Members:
    """The members of the dossier; sample 1 is certified for a class that it is not, so that nothing is decided."""
    model = mlp_file(folder / "net.onnx", (4, 6, 5, 3), 7)
    network, members, samples = checker.read_network(model, (4,)), {MODEL: model.read_bytes()}, []
    for row, values in enumerate(POINTS):
        x = np.array(values, np.float32)
        question = checker.Question(x, {**SETTING, "eps": "0"}, None, 0, checker.Decision(0, [1, 2]))
        predicted = int(checker.Prover(network, question, x[None]).lower[-1].argmax())
        target = (predicted + 1) % 3 if row == 1 else predicted
        made = members_of(model, x, np.array([0, 1, 1, 2]), target, SETTING)
        files = {"certificate": f"certificates/{row}.proof", "input": f"inputs/{row}.npy"}
        members[files["certificate"]] = write(folder / "a.proof", made).read_bytes()
        members[files["input"]] = npy(x)
        stated = {"sample": f"row-{row}", "file_sha256": None, "label": predicted, "predicted": predicted}
        samples.append({**stated, **files})
    samples.append({"sample": "row-3", "file_sha256": None, "label": None, "predicted": 0, "reason": REASON})
    return _with_record(members, samples, "decisions")


OUTPUTS: list[dict[str, Any]] = [  # the last label is not proven
    {"kind": "output", "entries": [1], "reduce": None, "direction": "both", "centre": "0.1"},
    {"kind": "label", "entry": 2, "on": False},
    {"kind": "label", "entry": 2, "on": True},
]


def small_dossier_of_outputs(folder: Path) -> Members:
    """The same with statements about outputs; sample 1 or 2 states a label in the wrong state."""
    model = mlp_file(folder / "net.onnx", (4, 6, 5, 3), 7)
    members, samples = {MODEL: model.read_bytes()}, []
    for row, (values, fields) in enumerate(zip(POINTS, OUTPUTS, strict=True)):
        made = output_members(model, np.array(values, np.float32), np.array([0, 1, 1, 2]), fields, SETTING)
        files = {"certificate": f"certificates/{row}.proof", "input": f"inputs/{row}.npy"}
        members[files["certificate"]] = write(folder / "a.proof", made).read_bytes()
        members[files["input"]] = npy(np.array(values, np.float32))
        samples.append({"sample": f"row-{row}", "file_sha256": None, "label": None, "predicted": None, **files})
    samples.append({"sample": "row-3", "file_sha256": None, "label": None, "predicted": None, "reason": REASON})
    return _with_record(members, samples, "outputs")


def _with_record(members: Members, samples: list[dict[str, Any]], kind: str) -> Members:
    """Add what the maker states, and everything that follows."""
    words = {"model": "net", "origin": "given.", "note": "", "versions": "1", "made": "Made on 1 March 2026"}
    ball = {"norm": "inf", "eps": 0.01, "domain": [0.0, 1.0], "half": None, "relative": False}
    run = {"data": {"samples": 4}, "job": {"ball": ball}, "versions": {}}
    members |= {"samples.json": dumped({"stated": words, "samples": samples}), **templates(kind)}
    members["run/manifest.json"] = dumped({"run": run, "model": {"name": "net", "files": []}})
    members |= {"run/log.jsonl": b"", "check.py": Path(checker.__file__).read_bytes()}
    return derived(members)


def derived(members: Members) -> Members:
    """The members with everything that follows from them, as an honest maker, or a careful forger, writes it."""
    samples = json.loads(members["samples.json"])
    rows = {row: one for row, one in enumerate(samples["samples"]) if "certificate" in one}
    claims = {
        row: checker.Claim.read(members[one["certificate"]], members[MODEL], members[one["input"]])
        for row, one in rows.items()
    }
    index = [
        {"row": row, "sha256": hashlib.sha256(members[one["certificate"]]).hexdigest()}
        if "certificate" in one
        else {"row": row, "reason": one["reason"]}
        for row, one in enumerate(samples["samples"])
    ]
    members = {**members, checker.RECORD: dumped({"samples": index})}
    members |= checker.derive_members(MODEL, samples["stated"], samples["samples"], claims, members)
    made = checker.environment(members, [*claims.values()], len(samples["samples"]), MODEL)
    members["environment.json"] = dumped({**made, "dossier": {"platform": "any"}})
    return {**members, "manifest.json": dumped(listed(members, checker.listing(samples["samples"], MODEL)))}


def listed(members: Members, certificates: list[dict[str, str]], **changes: Any) -> dict[str, Any]:
    """manifest.json of these members, with their true hashes."""
    files = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != "manifest.json"}
    head: dict[str, Any] = {"format": "proofmap-dossier", "version": 2}
    return {**head, "certificates": certificates, "files": files, **changes}


def sealed(members: Members) -> Members:
    """The members, with true hashes in manifest.json; what it lists as certificates stays."""
    return {**members, "manifest.json": dumped(listed(members, json.loads(members["manifest.json"])["certificates"]))}
