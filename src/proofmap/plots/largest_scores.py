"""The largest scores of each sample, as bars with the names of their groups."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import searched
from proofmap.plots import token_sequence
from proofmap.plots.figure_titles import group_name
from proofmap.plots.overlay import numbers
from proofmap.plots.score_chart import Bars, bars_of
from proofmap.text.group_places import largest

MAX_BARS = 20  # bars of one sample

Chart: TypeAlias = tuple[Bars, list[str]]  # the bars and their labels


def largest_scores(
    e: Explanation, most: int, columns: Sequence[str] | None, tokens: Sequence[Sequence[str]] | None
) -> list[Chart]:
    """Return at most `most` scores of each sample, the largest first.

    columns: the names of the variables of a flat input, which are shown with their values; None: their numbers.
    tokens: the names of the tokens of each sample of a sequence.
    """
    known, found = searched(e), []
    for k, scores in enumerate(numbers(e.scores)):
        mask = mask_of_sample(e, k)
        if e.x.ndim in (3, 4) and tokens is None:
            groups, labels = map(list, zip(*largest(scores, mask, most), strict=True))
        else:
            groups = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:most].tolist()
            labels = _labels(e, k, mask, groups, columns, None if tokens is None else tokens[k])
        found.append((bars_of(e, k, groups, known), labels))
    return found


def _labels(
    e: Explanation,
    k: int,
    mask: NDArray[Any],
    groups: Sequence[int],
    columns: Sequence[str] | None,
    tokens: Sequence[str] | None,
) -> list[str]:
    """Name groups of a flat input, or of a sequence."""
    if tokens is not None:
        return token_sequence.group_names(e, k, tokens, groups)
    own, inside = numbers(e.x[k]).ravel(), [np.flatnonzero(mask.ravel() == group) for group in groups]
    names = columns or [str(at) for at in range(len(own))]
    return [group_name([names[int(k)] for k in at], None if columns is None else own[at].tolist()) for at in inside]


def mask_of_sample(e: Explanation, k: int) -> NDArray[Any]:
    """Return the group of each variable of sample k."""
    return e.mask[k if len(e.mask) > 1 else 0].cpu().numpy()
