"""What a reader can check: how and when explanations were made, files and digests, and what each of these covers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

from proofmap.explainers import Explanation, File
from proofmap.storage.records import JSON

__all__ = ["Fact", "Record", "day", "day_of", "file_facts", "network_digest", "records_of", "text_of", "values_digest"]

_LONGEST = 400  # characters of a setting: a file may hold a radius for each of a thousand samples
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True)
class Fact:
    """A term and its value; a hash has a line on what it stands for."""

    term: str
    value: str
    covers: str = ""


def file_facts(files: Iterable[File]) -> Iterator[Fact]:
    """A hash of each file that anybody who has it can make again."""
    for file in files:
        yield Fact(f"SHA-256 of {file.path}", file.sha256, "as sha256sum prints it; covers every byte of the file")


def network_digest(digest: str) -> Fact:
    """The name that Proofmap gives a network."""
    covers = (
        "made by Proofmap; covers operations, shapes and every weight, and how values are prepared (mean, deviation, "
        "layout), whatever file they come from"
    )
    return Fact("Digest of the network", digest, covers)


def values_digest(digest: str) -> Fact:
    """The name that Proofmap gives an input."""
    return Fact("Digest of the values", digest, "made by Proofmap; covers type, shape and all values, as explained")


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
        settings = [(key, text_of(value)) for key, value in e.settings.items()]
        record = Record(f"record-{len(records) + 1}", e.method, rows, [(key, _cut(text)) for key, text in settings])
        record = records.setdefault(json.dumps([rows, settings]), record)
        made = day_of(None if e.origin is None else e.origin.made)
        record.files.append((name, str(len(e)), f"{e.seconds:.3g}", made, e.input_hash))
        ids.append(record.id)
    return list(records.values()), ids


def text_of(value: JSON) -> str:
    """A setting as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters; the file has them all)"


def day(when: date) -> str:
    """Such as "2 March 2026"."""
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"


def day_of(text: str | None) -> str:
    """The day of an ISO 8601 time in a file; what is none stays as it is, and nothing is "not recorded"."""
    if not text:
        return "not recorded"
    try:
        return day(date.fromisoformat(text[:10]))
    except ValueError:
        return text
