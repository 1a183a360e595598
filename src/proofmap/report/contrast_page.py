"""The data of contrastive sets in the report: their sentences, their pictures, and a table of the changed groups."""

from dataclasses import dataclass, replace

import numpy as np

from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_contrast import contrast_facts
from proofmap.explainers.statements.proven_ranks import Ranks, is_sequence, is_series
from proofmap.plots.overlay import picture_of
from proofmap.report.finding_pictures import PagePicture, page_picture, values_of
from proofmap.report.reason_page import place_of
from proofmap.text.contrast_wording import (
    ContrastFacts,
    changed_caption,
    contrast_sentences,
    open_changes,
    proven_changes,
    size_clause,
)
from proofmap.text.guarantee_statements import Statements, rounding
from proofmap.text.wording import capitalised

_TABLE_GROUPS = 20  # changed groups in the table
_ANOTHER = "That these groups matter most. Another set of groups may change the decision as well."
_WHOLE = "Anything about inputs outside the ball."


@dataclass(frozen=True)
class ContrastPage:
    """The contrastive sets of one input."""

    sentences: list[str]
    size: str  # "3 pixels, a smallest set"
    pictures: list[tuple[PagePicture, str]]  # pictures of an image with captions
    rows: list[tuple[str, str, str]]  # the place, the value and the changed value of the groups of the smallest set
    left_out: int  # changed groups that the table leaves out
    noun: str


def contrast_page(e: Explanation, name: str) -> ContrastPage:
    """Return the page of an explanation of one sample by `Contrastive`. name: that of the input."""
    assert e.contrast is not None
    facts = contrast_facts(e)
    groups = e.contrast.moved[0].nonzero().flatten().tolist()
    changed = e if not facts.found else _at_point(e)
    rows = [(place_of(e, group), values_of(e, group), values_of(changed, group)) for group in groups[:_TABLE_GROUPS]]
    left_out = max(0, len(groups) - _TABLE_GROUPS)
    pictures = _pictures(e, name, facts)
    return ContrastPage(contrast_sentences(facts), size_clause(facts), pictures, rows, left_out, facts.noun)


def contrast_claim(e: Explanation, k: int) -> Statements:
    """Return the statements about the contrastive sets of sample k."""
    facts = contrast_facts(e, k)
    proven, left = proven_changes(facts), open_changes(facts)
    another = [_ANOTHER] if facts.found else []
    return Statements((proven or left)[0], tuple(proven), (*left, _WHOLE, *another, *rounding(e.guarantee, e.settings)))


def _at_point(e: Explanation) -> Explanation:
    """Return the explanation with the changed input in the place of its own, to read values from."""
    assert e.contrast is not None
    return replace(e, x=e.contrast.point(0)[None].to(e.x))


def _pictures(e: Explanation, name: str, facts: ContrastFacts) -> list[tuple[PagePicture, str]]:
    assert e.contrast is not None
    if e.x.ndim not in (3, 4) or is_sequence(e) or is_series(e):
        return []
    picture = picture_of(e.x[0])
    if not facts.found:
        return [(page_picture(picture, f"The input {name}."), "Input")]
    mask = e.mask[0].cpu().numpy()
    inside = np.asarray(e.contrast.moved[0].cpu())[mask].astype(np.int64)
    ranks = Ranks(1, 1, (1,), (), facts.noun)
    changed = capitalised(changed_caption(facts))
    before = f"The input {name}. The {facts.size} changed {facts.noun}s are outlined."
    point = picture_of(e.contrast.point(0))
    return [
        (page_picture(picture, before, inside, ranks), "Input"),
        (page_picture(point, f"{changed}. The changed {facts.noun}s are outlined.", inside, ranks), changed),
    ]
