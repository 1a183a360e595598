"""The data of the provenance panel: settings, versions, dates, and digests with a note on what each covers."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

from proofmap.explainers import Explanation, File
from proofmap.storage.records import JSON

_MAX_SETTING = 400  # characters of a setting; a file may have one radius for each of a thousand samples
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True)
class Fact:
    """A term and its value; a hash also has a line on what it covers."""

    term: str
    value: str
    covers: str = ""


def file_facts(files: Iterable[File]) -> Iterator[Fact]:
    """Yield the SHA-256 of each file, which anybody with the file can compute."""
    for file in files:
        yield Fact(f"SHA-256 of {file.path}", file.sha256, "as sha256sum prints it; covers every byte of the file")


def network_digest(digest: str) -> Fact:
    """Return Proofmap's digest of a network."""
    covers = (
        "made by Proofmap; covers operations, shapes, all weights and the preparation of values (mean, deviation, "
        "layout), independent of the file format"
    )
    return Fact("Digest of the network", digest, covers)


def values_digest(digest: str) -> Fact:
    """Return Proofmap's digest of an input."""
    return Fact("Digest of the values", digest, "made by Proofmap; covers type, shape and all values, as explained")


@dataclass(frozen=True)
class Record:
    """The common settings of files that were made alike, and the facts of each file."""

    id: str
    method: str
    rows: list[tuple[str, str]]
    settings: list[tuple[str, str]]
    files: list[tuple[str, str, str, str, str]] = field(default_factory=list)  # name, samples, seconds, day, digest


def records_of(files: Sequence[tuple[str, Explanation]]) -> tuple[list[Record], list[str]]:
    """Return (the records, the record id of each file). Files with equal settings share a record."""
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
    """Return a setting as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return (
        text if len(text) <= _MAX_SETTING else f"{text[:_MAX_SETTING]}… ({len(text)} characters; complete in the file)"
    )


def day(when: date) -> str:
    """Format a date as "2 March 2026"."""
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"


def day_of(text: str | None) -> str:
    """Format the day of an ISO 8601 time. Other texts stay unchanged; an empty one gives "not recorded"."""
    if not text:
        return "not recorded"
    try:
        return day(date.fromisoformat(text[:10]))
    except ValueError:
        return text
