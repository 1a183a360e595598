"""Tidy data frames of explanations: one row for each group of each sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.statements.explained_inputs import variable_names
from proofmap.storage.exported_tables import data_frame
from proofmap.text.group_places import first_names

if TYPE_CHECKING:
    from pandas import DataFrame

    from proofmap.explainers.explanation import Explanation

FRAME_COLUMNS = (
    "sample", "group", "name", "variables", "score", "low", "high", "proven", "standard_error", "rank", "target",
    "predicted", "label", "method", "guarantee",
)  # fmt: skip

REASON_COLUMNS = ("kept", "necessary", "undecided")  # also, if the explanation has sufficient sets
CONTRAST_COLUMNS = ("changed",)  # also, if it has contrastive sets


def explanation_frame(e: Explanation, columns: Sequence[str] | None = None) -> DataFrame:
    """Return a frame with one row for each group that a sample has."""
    columns = variable_names(e) if columns is None else columns
    if columns is None and e.origin is not None and e.x.ndim == 2:
        columns = e.origin.columns
    if columns is not None and (e.x.ndim != 2 or len(columns) != e.x.shape[1]):
        raise InputError(f"got {len(columns)} names for the columns of samples {tuple(e.x.shape[1:])}")
    more = REASON_COLUMNS if e.reason is not None else CONTRAST_COLUMNS if e.contrast is not None else ()
    return data_frame((*FRAME_COLUMNS, *more), _rows(e, columns))


def score_ranks(scores: Tensor, signed: bool) -> list[int | None]:
    """Return the rank of each score (G,): 1 for the largest, or the largest absolute value if signed.

    Equal scores share the smaller rank. A score that is NaN has no rank.
    """
    sizes = scores.double().abs() if signed else scores.double()
    known = sizes[~sizes.isnan()].sort(descending=True).values
    above = len(known) - np.searchsorted(known.flip(0).numpy(), sizes.numpy(), side="right")  # larger scores
    return [None if missing else int(larger) + 1 for larger, missing in zip(above, sizes.isnan().tolist(), strict=True)]


def _rows(e: Explanation, columns: Sequence[str] | None) -> Iterator[tuple[Any, ...]]:
    scores, intervals, proven, masks = (t.cpu() for t in (e.scores, e.intervals, e.proven_scores, e.mask))
    errors = None if e.errors is None else e.errors.cpu()
    variables = [_variables(mask, columns, scores.shape[1]) for mask in masks]
    targets, predicted = e.target.tolist(), e.predicted.tolist()
    states = () if e.reason is None else tuple(one.cpu() for one in (e.kept, e.necessary, e.undecided))
    states = states if e.contrast is None else (e.contrast.moved.cpu(),)
    for k in range(len(e)):
        groups = variables[k if len(variables) > 1 else 0]
        index = list(groups)
        ranks = score_ranks(scores[k, index], e.signed)
        for group, rank in zip(index, ranks, strict=True):
            low, high = intervals[k, group].tolist()
            error = float("nan") if errors is None else float(errors[k, group])
            score = (float(scores[k, group]), low, high, bool(proven[k, group]), error, rank)
            state = tuple(bool(one[k, group]) for one in states)
            whole = (targets[k], predicted[k], e.label(k), e.method, e.guarantee)
            yield (k, group, *groups[group], *score, *whole, *state)


def _variables(mask: Tensor, columns: Sequence[str] | None, groups: int) -> dict[int, tuple[str | None, int]]:
    """Return the name and the number of variables of each group that the mask (*shape) has."""
    flat = mask.flatten().numpy()
    counts = np.bincount(flat, minlength=groups)
    if columns is None:
        return {group: (None, int(count)) for group, count in enumerate(counts) if count}
    places = np.split(np.argsort(flat, kind="stable"), np.cumsum(counts)[:-1])
    named = {u: first_names(list(dict.fromkeys(columns[int(k)] for k in place))) for u, place in enumerate(places)}
    return {group: (named[group], int(count)) for group, count in enumerate(counts) if count}
