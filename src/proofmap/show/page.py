"""What a report shows, as data: inputs with their findings, and the record of each file. The template adds the form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from proofmap.explain import Explanation
from proofmap.explain.digest import hash_tensor
from proofmap.explain.explanation import JSON, Guarantee
from proofmap.show.axis import Axis
from proofmap.show.panels import Bar, Maps, Place, bars, maps, places
from proofmap.show.sides import Kind, Range, Verdict, kind_of, ranges, verdict
from proofmap.show.words import BADGES, Claim, Names, ball, claim, name_of, number, quantity, sources

__all__ = ["Finding", "Record", "Side", "Subject", "records_of", "subjects_of"]

_PLACES = 10  # scores in a table
_LONGEST = 400  # characters of a setting: a file may hold a radius for each of a thousand samples


@dataclass(frozen=True)
class Side:
    """A range of the overlap in words and numbers."""

    label: str
    known: Range
    lower: str
    upper: str  # "none" where nothing is proven
    rows: list[tuple[str, str, str]]

    def ends(self) -> list[float]:
        """What an axis has to hold."""
        ends = (self.known.lower, self.known.upper, self.known.estimate)
        return [end for end in ends if end is not None and math.isfinite(end)]


@dataclass(frozen=True)
class Finding:
    """One map of one input, and what its bounds say."""

    id: str
    title: str
    record: str  # the id of its file's record
    kind: Kind
    guarantee: Guarantee
    verdict: Verdict
    badge: str
    claim: Claim
    quantity: str
    ball: str
    sides: list[Side]
    axis: Axis
    signed: bool
    caption: str
    maps: Maps | None
    places: list[tuple[Place, Bar]]
    frozen: list[str]  # the heads of the columns of frozen bounds
    groups: int


@dataclass(frozen=True)
class Subject:
    """An input with all that was found about it."""

    id: str
    name: str
    hash: str
    predicted: str
    shape: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def lines(self) -> int:
        """Rows of the summary."""
        return sum(len(finding.sides) for finding in self.findings)


@dataclass(frozen=True)
class Record:
    """How the explanations of some files were made: all of them alike."""

    id: str
    method: str
    rows: list[tuple[str, str]]
    settings: list[tuple[str, str]]
    files: list[tuple[str, str, str, str]] = field(default_factory=list)  # name, samples, seconds, hash of the inputs


def subjects_of(
    files: Sequence[tuple[str, Explanation]], names: Names, reached: Sequence[Tensor | None], records: Sequence[str]
) -> list[Subject]:
    """The inputs in the order of their first appearance; maps of equal inputs stand together."""
    found: dict[str, Subject] = {}
    for (file, whole), extra, record in zip(files, reached, records, strict=True):
        for k in range(len(whole)):
            e = whole[k]
            digest = hash_tensor(e.x)
            if digest not in found:
                title = file if len(whole) == 1 else f"{file}, sample {k}"
                shape = " × ".join(map(str, e.x.shape[1:]))
                predicted = name_of(int(e.predicted[0]), names)
                found[digest] = Subject(f"input-{len(found) + 1}", title, digest, predicted, shape)
            subject = found[digest]
            name = f"{subject.id}-{len(subject.findings) + 1}"
            known = ranges(whole, k, extra)
            around = ball(whole.settings, k, len(whole))
            subject.findings.append(_finding(name, record, subject.name, e, known, around, names))
    return list(found.values())


def _finding(
    name: str, record: str, subject: str, e: Explanation, known: tuple[Range, ...], around: str, names: Names
) -> Finding:
    """The finding of the one sample of e."""
    kind = kind_of(e)
    answer = verdict(kind, known)
    aim, own = name_of(int(e.target[0]), names), name_of(int(e.overlap.target[0]), names)
    sides = [_side(side) for side in known]
    largest = places(e, _PLACES)
    return Finding(
        id=name,
        title=f"{e.method}, from {own} towards {aim}" if e.opposite else f"{e.method}, why {aim}",
        record=record,
        kind=kind,
        guarantee=e.guarantee,
        verdict=answer,
        badge=BADGES[answer],
        claim=claim(e, 0, kind, known, answer, names),
        quantity=quantity(e) if kind == "other" else "the adversarial overlap",
        ball=around,
        sides=sides,
        axis=Axis.over([end for side in sides for end in side.ends()]),
        signed=e.signed,
        caption=_caption(e, kind, aim),
        maps=maps(e, subject),
        places=list(zip(largest, bars(largest), strict=True)),
        frozen=list(_frozen(e, len(largest[0].frozen))),
        groups=e.scores.shape[1],
    )


def _side(known: Range) -> Side:
    label = {"+": "Raising values alone", "-": "Lowering values alone", None: "The whole ball"}[known.half]
    upper = "none" if known.upper is None else number(known.upper, "certified")
    return Side(label, known, number(known.lower, "sampled"), upper, sources(known))


def _caption(e: Explanation, kind: Kind, aim: str) -> str:
    """What a score is, and what its colour means."""
    if kind == "targeted":
        return (
            f"Red: raising these values brings {aim} closer. Blue: lowering them does. The stronger the colour, the "
            "more the bound falls when the group may not move."
        )
    if e.guarantee == "none":
        return f"A score is the importance that {e.method} gives to a group of values."
    what = "proven bound" if e.guarantee == "certified" else "largest value seen"
    return f"A group's score is how far the {what} falls when the group may not move."


def _frozen(e: Explanation, sides: int) -> Iterator[str]:
    """What the bound becomes without the group."""
    sign = {"certified": "≤", "sampled": "≥", "none": "≈"}[e.guarantee]
    for half in ("raising", "lowering") if sides == 2 else ("",) * sides:
        yield f"AO without it{', ' if half else ''}{half} {sign}"


def records_of(files: Sequence[tuple[str, Explanation]]) -> tuple[list[Record], list[str]]:
    """(the records, the id of each file's); files that were made alike share one."""
    found: dict[str, Record] = {}
    ids = []
    for name, e in files:
        rows = [
            ("Explainer", e.method),
            ("Guarantee", e.guarantee),
            ("Groups of values", str(e.scores.shape[1])),
            ("Random seed", "none: nothing is random" if e.seed is None else str(e.seed)),
            ("Versions", ", ".join(f"{part} {version}" for part, version in e.versions.items())),
            ("Model, SHA-256", e.model_hash),
        ]
        settings = [(key, _text(value)) for key, value in e.settings.items()]
        record = Record(f"record-{len(found) + 1}", e.method, rows, [(key, _cut(text)) for key, text in settings])
        record = found.setdefault(json.dumps([rows, settings]), record)
        record.files.append((name, str(len(e)), f"{e.seconds:.3g}", e.input_hash))
        ids.append(record.id)
    return list(found.values()), ids


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters; the file has them all)"
