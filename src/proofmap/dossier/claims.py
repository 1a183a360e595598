"""What is claimed for each sample, as a table and as JSON; a sample without a certificate says why."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

from proofmap.dossier.certificates import Certificates, Claimed
from proofmap.runs import Results
from proofmap.runs.chunk import Array

__all__ = ["as_csv", "as_json", "member"]

_COLUMNS = (
    *("row", "sample", "file_sha256", "label", "target", "rivals", "norm", "eps", "domain", "half", "groups"),
    *("decision_proven", "ao_at_most", "ao_at_least", "pairs_ordered", "certificate", "input", "input_sha256"),
    "no_certificate",
)


def member(folder: str, claimed: Claimed) -> str:
    """Where the dossier keeps a file of that sample."""
    path = claimed.certificate if folder == "certificates" else claimed.input
    return f"{folder}/{path.name}"


def as_csv(results: Results, certificates: Certificates) -> bytes:
    """A line a sample; a number is the shortest decimal that reads as the claimed float64, empty is not claimed."""
    text = StringIO(newline="")
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    for entry in _entries(results, certificates):
        table.writerow({name: _cell(entry[name]) for name in _COLUMNS if name in entry})
    return text.getvalue().encode(errors="replace")


def as_json(results: Results, certificates: Certificates) -> bytes:
    """The same, and what is claimed with each group frozen."""
    return (json.dumps([*_entries(results, certificates)], indent=1) + "\n").encode()


def _entries(results: Results, certificates: Certificates) -> Iterator[dict[str, Any]]:
    labels = results["label"].tolist() if "label" in results.names else [-1] * len(results)
    claims = {claimed.row: claimed for claimed in certificates.claimed}
    classes = results.about["model"]["outputs"]
    rows = zip(results.samples, results.files, labels, strict=True)
    for row, (sample, file, label) in enumerate(rows):
        entry = {"row": row, "sample": sample, "file_sha256": file, "label": None if label < 0 else label}
        if row in claims:
            yield {**entry, **_claim(claims[row], classes)}
        else:
            yield {**entry, "decision_proven": False, "no_certificate": certificates.reasons[row]}


def _claim(claimed: Claimed, classes: int) -> dict[str, Any]:
    return {
        "target": claimed.target,
        "rivals": list(claimed.rivals),
        **{name: claimed.ball.get(name) for name in ("norm", "eps", "domain", "half")},
        "groups": None if claimed.frozen is None else len(claimed.frozen),
        "decision_proven": claimed.decided(classes),
        "ao_at_most": claimed.full,
        "ao_at_least": claimed.full_lower,
        "ao_at_most_group_frozen": _listed(claimed.frozen),
        "ao_at_least_group_frozen": _listed(claimed.frozen_lower),
        "pairs_ordered": claimed.ordered,
        "certificate": member("certificates", claimed),
        "input": member("inputs", claimed),
        "input_sha256": claimed.sha256,
    }


def _listed(values: Array | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list) else value
