"""The data of a sufficient set in the report: its sentences, its pictures, and a table of its groups."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_reason import reason_facts, shown_group
from proofmap.explainers.statements.proven_ranks import Ranks, is_sequence, is_series
from proofmap.plots.overlay import Array, picture_of
from proofmap.plots.reasons.reason_picture import STATE_COLOURS, kept_picture
from proofmap.report.finding_pictures import PagePicture, columns_of, hatched_picture, page_picture, values_of
from proofmap.text.group_places import place
from proofmap.text.guarantee_statements import Statements, rounding
from proofmap.text.reason_wording import (
    ReasonFacts,
    group_clause,
    open_sentences,
    proof_sentence,
    proven_sentences,
    reason_sentences,
    size_sentence,
    sufficient_sentence,
)
from proofmap.text.wording import capitalised

_TABLE_GROUPS = 20  # kept groups in the table
_ANOTHER = "That these groups matter most. Another set of groups may be sufficient as well."


@dataclass(frozen=True)
class ReasonPage:
    """The sufficient set of one input."""

    sentences: list[str]
    size: str  # "39 pixels; no sufficient set has fewer than 36"
    pictures: list[tuple[PagePicture, str]]  # pictures of an image with captions
    rows: list[tuple[str, str, str]]  # the place, the value and the state of kept groups
    left_out: int  # kept groups that the table leaves out
    noun: str
    kept: int
    undecided: int


def reason_page(e: Explanation, name: str) -> ReasonPage:
    """Return the page of an explanation of one sample by `Sufficient`. name: that of the input."""
    assert e.reason is not None
    facts, reason = reason_facts(e), e.reason
    kept = reason.kept[0].nonzero().flatten().tolist()
    necessary = reason.necessary[0].tolist()
    ordered = sorted(kept, key=lambda group: not necessary[group])
    rows = [
        (place_of(e, group), values_of(e, group), "necessary" if necessary[group] else "undecided")
        for group in ordered[:_TABLE_GROUPS]
    ]
    return ReasonPage(
        sentences=reason_sentences(facts),
        size=size_sentence(facts),
        pictures=_pictures(e, name, facts),
        rows=rows,
        left_out=max(0, len(kept) - _TABLE_GROUPS),
        noun=facts.noun,
        kept=facts.kept,
        undecided=facts.undecided,
    )


def reason_claim(e: Explanation, k: int) -> Statements:
    """Return the statements about the sufficient set of sample k."""
    facts = reason_facts(e, k)
    short = f"{sufficient_sentence(facts)} {proof_sentence(facts)}"
    moved = f" and inputs in which a kept {facts.noun} moves" if facts.kept else ""
    whole = [f"Anything about inputs outside the ball{moved}."]
    left = [*open_sentences(facts), *whole, *([_ANOTHER] if facts.kept else []), *rounding(e.guarantee, e.settings)]
    return Statements(short, tuple(proven_sentences(facts)), tuple(left))


def kept_panel(
    picture: Array, mask: NDArray[Any], free: NDArray[np.bool_], undecided: NDArray[np.bool_], alt: str
) -> PagePicture:
    """Return the picture of an image with only the kept groups visible; undecided groups are hatched.

    free, undecided: (G,) bool.
    """
    shown = kept_picture(picture, mask, free, undecided)
    marked = undecided[mask]
    return hatched_picture(shown, marked if marked.ndim == 2 else marked.any(0), STATE_COLOURS["undecided"], alt)


def _pictures(e: Explanation, name: str, facts: ReasonFacts) -> list[tuple[PagePicture, str]]:
    assert e.reason is not None
    if e.x.ndim not in (3, 4) or is_sequence(e) or is_series(e):
        return []
    mask, picture = e.mask[0].cpu().numpy(), picture_of(e.x[0])
    free, undecided = (np.asarray(one[0].cpu()) for one in (e.reason.free, e.reason.undecided))
    kept = f"The input {name} with only the {facts.kept} kept {facts.noun}s visible. Necessary ones are blue"
    found = [
        (page_picture(picture, f"The input {name}."), "Input"),
        (kept_panel(picture, mask, free, undecided, f"{kept}, undecided ones are orange and hatched."), "Kept"),
    ]
    group = shown_group(e, 0)
    if group is not None:
        ranks = Ranks(facts.groups, 1, (group,), (), facts.noun)
        sure = bool(e.reason.adversarial[0, group])
        words = capitalised(group_clause(facts, place_of(e, group), adversarial=sure, became=_became(facts)))
        point = picture_of(e.reason.point(0, group))
        found.append((page_picture(point, f"{words}. This {facts.noun} is outlined.", mask, ranks), words))
    return found


def _became(facts: ReasonFacts) -> str | None:
    return "another class" if facts.output is None else None


def place_of(e: Explanation, group: int) -> str:
    """Return the position of a group of an explanation of one sample."""
    mask = e.mask[0].cpu().numpy()
    if is_sequence(e):
        return place(mask[:, 0] == group, [f"token {at}" for at in range(len(mask))])
    return place(mask == group, columns_of(e))
