"""How the explanations of some files were made, as the report shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from proofmap.explain import Explanation
from proofmap.records import JSON
from proofmap.show.dates import day_of

__all__ = ["Record", "records_of"]

_LONGEST = 400  # characters of a setting: a file may hold a radius for each of a thousand samples


@dataclass(frozen=True)
class Record:
    """What files that were made alike have in common, and what each has of its own."""

    id: str
    method: str
    rows: list[tuple[str, str]]
    settings: list[tuple[str, str]]
    files: list[tuple[str, str, str, str, str]] = field(default_factory=list)  # name, samples, seconds, day, digest


def records_of(files: Sequence[tuple[str, Explanation]]) -> tuple[list[Record], list[str]]:
    """(the records, the id of each file's); files that were made alike share one."""
    records: dict[str, Record] = {}
    ids = []
    for name, e in files:
        rows = [
            ("Explainer", e.method),
            ("Guarantee", e.guarantee),
            ("Groups of values", str(e.scores.shape[1])),
            ("Random seed", "none: nothing is random" if e.seed is None else str(e.seed)),
            ("Versions", ", ".join(f"{part} {version}" for part, version in e.versions.items())),
            ("Model", "not recorded" if e.origin is None else e.origin.model.name),
            ("Digest of the network", e.model_hash),
        ]
        settings = [(key, _text(value)) for key, value in e.settings.items()]
        record = Record(f"record-{len(records) + 1}", e.method, rows, [(key, _cut(text)) for key, text in settings])
        record = records.setdefault(json.dumps([rows, settings]), record)
        made = day_of(None if e.origin is None else e.origin.made)
        record.files.append((name, str(len(e)), f"{e.seconds:.3g}", made, e.input_hash))
        ids.append(record.id)
    return list(records.values()), ids


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters; the file has them all)"
