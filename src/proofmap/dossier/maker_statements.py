"""samples.json of a dossier: what its maker states, and no certificate proves."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from proofmap.dossier.dossier_certificates import Certificates, Claimed
from proofmap.report.provenance import day
from proofmap.runs import Results
from proofmap.storage.csv_cells import one_line, readable
from proofmap.text.wording import taken_off

__all__ = ["member", "stated"]


def member(folder: str, claimed: Claimed) -> str:
    """The name of a file of that sample in the dossier."""
    path = claimed.certificate if folder == "certificates" else claimed.input
    return f"{folder}/{path.name}"


def stated(results: Results, certificates: Certificates, by: str | None, when: date) -> bytes:
    """The words for the pages, and every sample of the run with its certificate, or why it has none."""
    samples, claimed = [], {one.row: one for one in certificates.claimed}
    labels = results["label"].tolist() if "label" in results.names else [-1] * len(results)
    rows = zip(results.samples, results.files, labels, results["predicted"].tolist(), strict=True)
    for row, (name, file, label, predicted) in enumerate(rows):
        one: dict[str, Any] = {"sample": one_line(readable(name)), "file_sha256": file}
        one |= {"label": None if label < 0 else label, "predicted": None if predicted < 0 else predicted}
        if row in claimed:
            files = {"certificate": member("certificates", claimed[row]), "input": member("inputs", claimed[row])}
            samples.append({**one, **files})
        else:
            samples.append({**one, "reason": one_line(readable(certificates.reasons[row]))})
    versions = ", ".join(f"{name} {version}" for name, version in results.about["versions"].items())
    words = {
        "model": results.manifest.model.name or "not named",
        "origin": _origin(certificates),
        "note": "" if results.taken_off is None else f"{taken_off(results.taken_off).capitalize()}.",
        "versions": versions,
        "made": f"{'Made' if by is None else f'Made by {by}'} on {day(when)}",
    }
    plain = {name: one_line(text)[:1000] for name, text in words.items()}
    return (json.dumps({"stated": plain, "samples": samples}, indent=1) + "\n").encode()


def _origin(certificates: Certificates) -> str:
    """Where the model's file comes from, as the certificates state it."""
    name, original = f"model/{certificates.model.name}", certificates.claimed[0].claim.file.get("exported_from")
    if original is None:
        return f"{name} is the file that the run was given."
    source = {"file": "an ONNX file with the SHA-256", "model": "a model with the hash"}[original["kind"]]
    return f"{name} was exported from {source} {original['sha256']}, because {original['because']}."
