"""A finding as data: one map of one input, and what its bounds say. The template adds the form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from proofmap.explainers import Explanation
from proofmap.explainers.explanation import Guarantee
from proofmap.report.explanatory_text import (
    BADGES,
    RELATION,
    Claim,
    Names,
    ball,
    claim,
    name_of,
    number,
    quantity,
    sources,
)
from proofmap.report.finding_pictures import Bar, Maps, Place, bars, columns_of, maps, places
from proofmap.report.number_line import Axis
from proofmap.report.two_sided_bounds import Kind, Range, Verdict, kind_of, verdict
from proofmap.text.proven_ranks import ranks, searched
from proofmap.text.wording import around, plural, rounding_note, score_means

__all__ = ["Finding", "Side", "finding_of"]

_PLACES = 10  # scores in a table


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
    ball: str  # in a sentence
    around: str  # in a few words, with what a proof says of roundings
    family: str  # the same for all inputs whose radii were found alike, and whose bounds count the same
    explained: int  # the class
    sides: list[Side]
    axis: Axis
    signed: bool
    caption: str
    maps: Maps | None
    places: list[tuple[Place, Bar]]
    frozen: list[str]  # the heads of the columns of frozen bounds
    intervals: bool  # whether places have them
    proof: str  # what is proven of the scores
    marks: list[tuple[str, str]]  # what outlines and bars mean: the look, the words
    selection: str  # how many places of how many
    named: bool  # whether places are names of columns


def finding_of(name: str, record: str, subject: str, e: Explanation, known: tuple[Range, ...], names: Names) -> Finding:
    """The finding of the one sample of e, whose overlap is known to lie within these ranges."""
    kind = kind_of(e)
    answer = verdict(kind, known)
    aim, title = name_of(int(e.target[0]), names), name_of(int(e.overlap.target[0]), names)
    sides = [_side(side) for side in known]
    largest = places(e, _PLACES)
    note = rounding_note(e.settings) if e.guarantee == "certified" else ""
    return Finding(
        id=name,
        title=f"{e.method}, from {title} towards {aim}" if e.opposite else f"{e.method}, why {aim}",
        record=record,
        kind=kind,
        guarantee=e.guarantee,
        verdict=answer,
        badge=BADGES[answer],
        claim=claim(e, 0, kind, known, answer, names),
        quantity=quantity(e) if kind in ("other", "smoothed") else "the adversarial overlap",
        ball=ball(e.settings, 0, 1),
        around=around(e.settings) + (note if answer == "proven" else ""),
        family=around(e.settings, count=0) + note,
        explained=int(e.overlap.target[0]),
        sides=sides,
        axis=Axis.over([end for side in sides for end in side.ends()]),
        signed=e.signed,
        caption=_caption(e, kind, aim),
        maps=maps(e, subject),
        places=list(zip(largest, bars(largest), strict=True)),
        frozen=list(_frozen(e, len(largest[0].frozen))),
        intervals=searched(e),
        proof=_proof(e),
        marks=_marks(e),
        selection=_selection(len(largest), e.scores.shape[1]),
        named=columns_of(e) is not None,
    )


def _selection(shown: int, groups: int) -> str:
    if shown == groups:
        return "The one score" if groups == 1 else f"All {groups} scores"
    return f"The largest of {groups} scores" if shown == 1 else f"The {shown} largest of {groups} scores"


def _proof(e: Explanation) -> str:
    if not searched(e):
        return "The scores themselves are not proven."
    sentence = ranks(e, 0).sentence
    most = f" {sentence[:1].upper()}{sentence[1:]}." if sentence else ""
    return f"The true score of a group lies in its interval, proven.{most}"


def _marks(e: Explanation) -> list[tuple[str, str]]:
    if not searched(e):
        return []
    found = ranks(e, 0)
    among = f"proven to be among the {plural(found.most, found.noun)} that matter most"
    return [("solid", among), ("open", f"not {among}"), ("whisker", "the true score lies between, proven")]


def _side(known: Range) -> Side:
    label = {"+": "Raising values alone", "-": "Lowering values alone", None: "The whole ball"}[known.half]
    upper = "none" if known.upper is None else number(known.upper, "certified")
    return Side(label, known, number(known.lower, "sampled"), upper, sources(known))


def _caption(e: Explanation, kind: Kind, aim: str) -> str:
    """What a score is, and what its colour means."""
    if kind == "targeted":
        return (
            f"Red: raising these values brings {aim} closer. Blue: lowering them does. The stronger the colour, the "
            f"more the {'overlap that a search met' if searched(e) else 'bound'} falls when the group may not move."
        )
    means = score_means(e.method)
    if means is not None:
        return f"A score is {means}."
    if e.guarantee == "none":
        return f"A score is the importance that {e.method} gives to a group of values."
    what = {"certified": "proven bound", "probable": "probable bound"}.get(e.guarantee, "largest value seen")
    if searched(e):
        what = "largest overlap that a search met"
    return f"A group's score is how far the {what} falls when the group may not move."


def _frozen(e: Explanation, sides: int) -> Iterator[str]:
    """What the bound becomes without the group."""
    for half in ("raising", "lowering") if sides == 2 else ("",) * sides:
        yield f"AO without it{', ' if half else ''}{half} {RELATION[e.guarantee]}"
