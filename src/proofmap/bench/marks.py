"""Marks of the best methods by a metric: paired t tests on the same samples, with Holm's correction (Holm 1979).

The null hypothesis for two methods: the mean of their differences on common samples is 0. All pairs of rows of a
metric are one family. With probability 95 %, no pair of methods with equal means is then called different. This also
holds for the pairs that the marks use, although the best method is known only after the measurement.

A mean over several data sets of equal weight is compared by Welch's test: the data sets are independent strata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]  # (N,), NaN for samples without a value
Mark = Literal["best", "tied", "second", "tied second", ""]

MIN_PAIRS = 2  # common samples that a test needs
_LEVEL = 0.05  # probability of calling some pair of equal methods different
_ROUNDING = 2.0**-18  # relative; two values that are closer differ by float32 rounding, and count as equal


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
    apart = different_pairs(list(merits), lambda one, other: paired_p(merits[one], merits[other]))
    whole = sorted((m for m in merits if counts[m] == most), key=lambda method: -float(np.nanmean(merits[method])))
    lead = {m: _mean_difference(merits[m], merits[whole[0]]) for m in merits if counts[m] < most}
    ahead = [m for m in lead if lead[m] > 0 and frozenset((m, whole[0])) in apart]
    return found | marks_in_order(sorted(ahead, key=lambda method: -lead[method])[:1] + whole, apart)


def marks_in_order(order: Sequence[str], apart: set[frozenset[str]]) -> dict[str, Mark]:
    """Return the marks of methods in the order of their merit; `apart` contains the pairs that differ significantly."""
    best, *others = order
    behind = [method for method in others if frozenset((best, method)) in apart]
    found: dict[str, Mark] = {best: "best"}
    found |= dict.fromkeys(others, "tied")
    found |= dict.fromkeys(behind, "")
    if behind:
        second, *rest = behind
        found[second] = "second"
        level = [method for method in rest if frozenset((second, method)) not in apart]
        found |= dict.fromkeys(level, "tied second")
    return found


def different_pairs(methods: Sequence[str], p: Callable[[str, str], float]) -> set[frozenset[str]]:
    """Return the pairs of methods that differ significantly, from the p value of each pair."""
    pairs = list(combinations(methods, 2))
    adjusted = holm([p(one, other) for one, other in pairs])
    return {frozenset(pair) for pair, value in zip(pairs, adjusted, strict=True) if value <= _LEVEL}


def paired_p(a: Values, b: Values) -> float:
    """Return the two-sided p value of the paired t test on common samples; 1 for fewer than two of them.

    Values that differ by rounding alone count as equal.
    """
    rounding = _ROUNDING * np.maximum(np.abs(a), np.abs(b))
    differences = np.where(np.abs(a - b) <= rounding, 0.0, a - b)[np.isfinite(a) & np.isfinite(b)]
    return 1.0 if len(differences) < MIN_PAIRS else stratified_p([differences])


def stratified_p(differences: Sequence[Values]) -> float:
    """Return the two-sided p value of the hypothesis that the mean over T strata of mean differences is 0.

    Stratum t has the differences (n_t,), at least two, with the sample variance s_t². With v_t = s_t² / n_t,

        t = Σ mean_t / sqrt(Σ v_t),    degrees of freedom = (Σ v_t)² / Σ (v_t² / (n_t - 1))

    (Welch 1947; Satterthwaite 1946). For one stratum it is the paired t test.
    """
    from scipy.special import stdtr  # imported here, because it is slow

    total = sum(float(of_stratum.mean()) for of_stratum in differences)
    variances = np.array([of_stratum.var(ddof=1) / len(of_stratum) for of_stratum in differences])
    if not variances.any():
        return 1.0 if total == 0 else 0.0
    shares = variances / variances.sum()
    freedom = 1 / sum(share**2 / (len(of_stratum) - 1) for share, of_stratum in zip(shares, differences, strict=True))
    return float(2 * stdtr(freedom, -abs(total) / sqrt(variances.sum())))


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


def _mean_difference(a: Values, b: Values) -> float:
    """Return the mean of a - b over common samples; 0 without any."""
    differences = (a - b)[np.isfinite(a) & np.isfinite(b)]
    return float(differences.mean()) if len(differences) else 0.0
