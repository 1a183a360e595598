"""The data of a finding in the report: one map of one input with its bounds. The template adds the layout."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from proofmap.explainers import Explanation
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.statements.explained_contrast import contrast_facts
from proofmap.explainers.statements.explained_reason import reason_facts
from proofmap.explainers.statements.proven_ranks import ranks, searched
from proofmap.report.contrast_page import ContrastPage, contrast_claim, contrast_page
from proofmap.report.finding_pictures import Maps, Place, ScoreBar, bars, columns_of, maps_of_inputs, places
from proofmap.report.finding_texts import Names, ball, claim, name_of, quantity, sources
from proofmap.report.number_line import Axis
from proofmap.report.reason_page import ReasonPage, reason_page
from proofmap.text.contrast_wording import contrast_clause
from proofmap.text.guarantee_statements import Statements
from proofmap.text.output_wording import change_noun, explained_output
from proofmap.text.reason_wording import BALL_OF_FREE, proof_sentence, short_clause
from proofmap.text.verdict import Kind, Outcome, OverlapBounds, Verdict
from proofmap.text.verdict_wording import BADGES, RELATIONS, rounding_note
from proofmap.text.wording import around, capitalised, number, plural, quantity_of, score_means, uncapitalised

_TABLE_SCORES = 10  # the largest scores, shown in the table of a finding


@dataclass(frozen=True)
class Side:
    """The bounds of an overlap, as text and numbers."""

    label: str
    known: OverlapBounds
    lower: str
    upper: str  # "none" if nothing is proven
    rows: list[tuple[str, str, str]]

    def ends(self) -> list[float]:
        """Return the numbers that the axis must contain."""
        ends = (self.known.lower, self.known.upper, self.known.estimate)
        return [end for end in ends if end is not None and math.isfinite(end)]


@dataclass(frozen=True)
class Finding:
    """One map of one input, with the statements that its bounds support."""

    id: str
    title: str
    record: str  # the id of the record of its file
    kind: Kind
    guarantee: Guarantee
    verdict: Outcome
    badge: str
    claim: Statements
    quantity: str
    ball: str  # a sentence
    around: str  # a short form, with a note about rounding errors
    family: str  # equal for findings whose radii were chosen alike and whose bounds cover the same errors
    explained: int  # the explained class
    sides: list[Side]
    axis: Axis
    signed: bool
    caption: str
    maps: Maps | None  # the panels of the only input, if it is an image
    input_maps: list[tuple[str, Maps]]  # the images among the inputs: name, if there are several inputs, and panels
    places: list[tuple[Place, ScoreBar]]
    frozen: list[str]  # the headings of the columns with bounds of AO(B_u)
    intervals: bool  # whether the scores have proven intervals
    proof: str  # a sentence about what is proven of the scores
    marks: list[tuple[str, str]]  # the legend of outlines and bars: style and text
    selection: str  # how many scores the table shows
    named: bool  # whether columns have names
    reason: ReasonPage | None = None  # a sufficient set
    contrast: ContrastPage | None = None  # contrastive sets


def finding_of(name: str, record: str, subject: str, e: Explanation, verdict: Verdict, names: Names) -> Finding:
    """Return the finding for an explanation of one sample, with the verdict on it."""
    kind, outcome = verdict.kind, verdict.outcome
    aim, title = name_of(int(e.target[0]), names), name_of(int(e.overlap.target[0]), names)
    sides = [_side(side, BALL_OF_FREE if kind == "reason" else None) for side in verdict.bounds]
    largest, panels = places(e, _TABLE_SCORES), maps_of_inputs(e, subject)
    note = rounding_note(bool(e.settings.get("rigorous"))) if e.guarantee == "certified" else ""
    return Finding(
        id=name,
        title=_title(e, title, aim),
        record=record,
        kind=kind,
        guarantee=e.guarantee,
        verdict=outcome,
        badge=BADGES[outcome],
        claim=claim(e, 0, verdict, names),
        quantity=quantity(e) if kind in ("other", "smoothed", "output") else "the adversarial overlap",
        ball=ball(e.settings, 0, 1),
        around=around(e.settings) + (note if outcome in ("proven", "sufficient") else ""),
        family=around(e.settings, count=0) + note,
        explained=int(e.overlap.target[0]),
        sides=sides,
        axis=Axis.over([end for side in sides for end in side.ends()]),
        signed=e.signed,
        caption=_caption(e, kind, aim),
        maps=panels[0][1] if panels and not panels[0][0] else None,
        input_maps=panels,
        places=list(zip(largest, bars(largest), strict=True)),
        frozen=list(_frozen(e, len(largest[0].frozen))),
        intervals=searched(e),
        proof=_proof(e),
        marks=_marks(e),
        selection=_selection(len(largest), e.scores.shape[1]),
        named=columns_of(e) is not None,
        reason=None if e.reason is None else reason_page(e, subject),
        contrast=None if e.contrast is None else contrast_page(e, subject),
    )


def _title(e: Explanation, title: str, aim: str) -> str:
    """Return the heading of a finding: its method, and the class or the output that it explains."""
    output = explained_output(e.settings)
    if e.contrast is not None:
        what = f"why {title}" if output is None else output.text
        return f"{e.method}, {what}: {contrast_clause(contrast_facts(e))}"
    if output is not None:
        if e.reason is not None:
            return f"{e.method}, {output.text}: {reason_facts(e).kept} of {reason_facts(e).groups} decide"
        return f"{e.method}, {quantity_of(e.guarantee, output.record())}"
    if e.reason is not None:
        return f"{e.method}, why {aim}: {short_clause(reason_facts(e))}"
    return f"{e.method}, from {title} towards {aim}" if e.opposite else f"{e.method}, why {aim}"


def _selection(shown: int, groups: int) -> str:
    if shown == groups:
        return "The one score" if groups == 1 else f"All {groups} scores"
    return f"The largest of {groups} scores" if shown == 1 else f"The {shown} largest of {groups} scores"


def _proof(e: Explanation) -> str:
    if e.reason is not None:
        return f"{proof_sentence(reason_facts(e))}"
    if e.contrast is not None:
        return f"{contrast_claim(e, 0).short}"
    if not searched(e):
        return "The scores themselves are not proven."
    sentence = ranks(e, 0).sentence
    most = f" {capitalised(sentence)}." if sentence else ""
    return f"The true score of each group is proven to lie in its interval.{most}"


def _marks(e: Explanation) -> list[tuple[str, str]]:
    if not searched(e):
        return []
    found = ranks(e, 0)
    among = f"proven to be among the {plural(found.most, found.noun)} that matter most"
    return [("solid", among), ("open", f"not {among}"), ("whisker", "the proven interval of the true score")]


def _side(known: OverlapBounds, ball: str | None = None) -> Side:
    label = ball or {"+": "Raising values alone", "-": "Lowering values alone", None: "The whole ball"}[known.half]
    upper = "none" if known.upper is None else number(known.upper, "certified")
    return Side(
        label,
        known,
        number(known.lower, "sampled"),
        upper,
        sources(known, None if ball is None else uncapitalised(ball)),
    )


def _caption(e: Explanation, kind: Kind, aim: str) -> str:
    """Explain the scores and their colours."""
    if kind == "targeted":
        return (
            f"Red: raising these values brings {aim} closer. Blue: lowering them brings {aim} closer. The colour is "
            f"strong if the {'overlap that the search found' if searched(e) else 'bound'} falls much when the group "
            "cannot change."
        )
    means = score_means(e.method)
    if means is not None:
        return f"A score is {means}."
    if e.guarantee == "none":
        return f"A score is the importance that {e.method} gives to a group of values."
    what = {"certified": "proven bound", "probable": "probable bound"}.get(e.guarantee, "largest sampled value")
    if searched(e):
        what = "largest overlap that the search found"
    return f"The score of a group is the drop of the {what} when the group cannot change."


def _frozen(e: Explanation, sides: int) -> Iterator[str]:
    """Yield the headings of the columns with bounds of AO(B_u)."""
    output = explained_output(e.settings)
    quantity = "AO" if output is None else change_noun(output).capitalize()
    for half in ("raising", "lowering") if sides == 2 else ("",) * sides:
        yield f"{quantity} without it{', ' if half else ''}{half} {RELATIONS[e.guarantee]}"
