"""Statistics of whole tables with bootstrap intervals: rank correlations with tightness, and paired differences."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from proofmap.bench.statistics import Table, interval, resampled

_TIGHTNESS = "tightness"


def claim(table: Table, radii: Sequence[float | str | None], seed: int = 0) -> str:
    """Return Markdown with the rank correlation between tightness and each metric; above 0: tighter bounds are better.

    One column is over all rows with values at all samples. The other is over the methods of one radius, averaged over
    radii, because a smaller ball also has tighter bounds. The interval is a bootstrap over samples.
    """
    full = [all(np.isfinite(values).all() for values in table.values[method].values()) for method in table.rows]
    methods = [method for method, known in zip(table.rows, full, strict=True) if known]
    radii = [eps for eps, known in zip(radii, full, strict=True) if known]
    tight = -_means(table, methods, _TIGHTNESS, seed)  # (1 + B, rows); the first row is not resampled
    lines = ["| tighter is better for | over bounds and ε | over bounds, at one ε |", "| --- | ---: | ---: |"]
    same = [[k for k, eps in enumerate(radii) if eps == one] for one in dict.fromkeys(radii)]
    for column in table.columns:
        if column.name == _TIGHTNESS:
            continue
        good = (1 if column.higher else -1) * _means(table, methods, column.name, seed)
        whole = _rank_correlation(tight, good)
        within = np.mean([_rank_correlation(tight[:, k], good[:, k]) for k in same if len(k) > 1], axis=0)
        lines.append(f"| {column.label} | {_shown(whole)} | {_shown(within)} |")
    return "\n".join(lines) + "\n"


def _means(table: Table, methods: list[str], metric: str, seed: int) -> NDArray[np.float64]:
    values = np.stack([table.values[method][metric] for method in methods], axis=1)  # (N, rows)
    means: NDArray[np.float64] = np.concatenate([values.mean(0, keepdims=True), resampled(values, seed)])
    return means


def _rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Spearman's rank correlation of each row of (B, rows)."""
    x, y = (np.sign(one[:, :, None] - one[:, None]).sum(2) for one in (a, b))  # centred ranks; ties share a rank
    correlation: NDArray[np.float64] = (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1))
    return correlation


def _shown(values: NDArray[np.float64]) -> str:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{values[0]:.2f} [{low:.2f}, {high:.2f}]"


def against(table: Table, rival: str, methods: Sequence[str]) -> str:
    """Return Markdown with the mean paired difference of each metric to the rival; above 0: better than the rival.

    Each 95 % interval holds for itself, without a correction for the number of intervals.
    """
    labels = [column.label for column in table.columns]
    lines = [f"| ahead of {rival} by | {' | '.join(labels)} |", "| --- |" + " ---: |" * len(labels)]
    for method in methods:
        cells = []
        for column in table.columns:
            ours, theirs = (table.values[one].get(column.name) for one in (method, rival))
            if ours is None or theirs is None:
                cells.append("n/a")
                continue
            ahead = (1 if column.higher else -1) * (ours - theirs)
            low, high = interval(ahead)
            cells.append(f"{np.nanmean(ahead):.4f} [{low:.4f}, {high:.4f}]")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
