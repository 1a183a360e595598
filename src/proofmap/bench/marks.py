"""Marks of the best methods by a metric: paired t tests on the same samples, with Holm's correction (Holm 1979).

The null hypothesis for two methods: the mean of their differences on common samples is 0. All pairs of rows of a
metric are one family. With probability 95 %, no pair of methods with equal means is then called different. This also
holds for the pairs that the marks use, although the best method is known only after the measurement.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]  # (N,), NaN for samples without a value
Mark = Literal["best", "tied", "second", "tied second", ""]

MIN_PAIRS = 2  # common samples that a test needs
_LEVEL = 0.05  # probability of calling some pair of equal methods different


def marks(column: Mapping[str, Values], *, higher: bool) -> dict[str, Mark]:
    """Return the mark of each method, from its values (N,).

    "best": the best mean. "tied": not significantly different from it. "second": the best mean of the others. "tied
    second": one of the others that is not significantly different from "second".

    Means over different samples are not comparable. So only methods with the most samples are ranked. A method with
    fewer samples is the best if it is significantly ahead of their best on its own samples.
    """
    merits = {method: values if higher else -values for method, values in column.items()}
    found: dict[str, Mark] = dict.fromkeys(merits, "")
    counts = {method: int(np.isfinite(values).sum()) for method, values in merits.items()}
    most = max(counts.values(), default=0)
    if most < MIN_PAIRS:
        return found
    apart = _different(merits)
    whole = sorted((m for m in merits if counts[m] == most), key=lambda method: -float(np.nanmean(merits[method])))
    lead = {m: _mean_difference(merits[m], merits[whole[0]]) for m in merits if counts[m] < most}
    ahead = [m for m in lead if lead[m] > 0 and frozenset((m, whole[0])) in apart]
    best, *others = sorted(ahead, key=lambda method: -lead[method])[:1] + whole
    found[best] = "best"
    behind = [method for method in others if frozenset((best, method)) in apart]
    found |= dict.fromkeys((method for method in others if method not in behind), "tied")
    if behind:
        second, *rest = behind
        found[second] = "second"
        level = [method for method in rest if frozenset((second, method)) not in apart]
        found |= dict.fromkeys(level, "tied second")
    return found


def paired_p(a: Values, b: Values) -> float:
    """Return the two-sided p value of the paired t test on common samples; 1 for fewer than two of them."""
    from scipy.special import stdtr  # imported here, because it is slow

    differences = (a - b)[np.isfinite(a) & np.isfinite(b)]
    count = len(differences)
    if count < MIN_PAIRS:
        return 1.0
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    if deviation == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(count - 1, -abs(mean) / (deviation / sqrt(count))))


def holm(p: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's method: the k-th smallest of m is multiplied by m + 1 - k.

    Adjusted values do not fall with p, and are at most 1.
    """
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    values: list[float] = adjusted.tolist()
    return values


def _different(merits: Mapping[str, Values]) -> set[frozenset[str]]:
    """Return the pairs of methods whose means differ significantly."""
    pairs = list(combinations(merits, 2))
    adjusted = holm([paired_p(merits[one], merits[other]) for one, other in pairs])
    return {frozenset(pair) for pair, p in zip(pairs, adjusted, strict=True) if p <= _LEVEL}


def _mean_difference(a: Values, b: Values) -> float:
    """Return the mean of a - b over common samples; 0 without any."""
    differences = (a - b)[np.isfinite(a) & np.isfinite(b)]
    return float(differences.mean()) if len(differences) else 0.0
