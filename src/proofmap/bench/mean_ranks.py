"""Mean ranks of methods over several metrics (Friedman 1937; Demšar 2006).

For each sample and metric, the best method has rank 1, and methods with equal values share the mean of their ranks.
Ranks are averaged over metrics, samples and data sets. `statistics.interval` gives the confidence interval of a mean
over samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from proofmap.bench.marks import Values
from proofmap.bench.statistics import Column, interval
from proofmap.errors import InputError

MEAN_RANK = Column("mean-rank", "Mean rank", higher=False)


class MeanRanks(NamedTuple):
    """The mean rank of each method with its 95 % interval; each field has shape (methods,)."""

    mean: Values
    low: Values
    high: Values


def ranks(values: Values, better: int) -> Values:
    """Return the rank of each method at each sample, 1 for the best: (methods, N) -> (methods, N).

    better: 1 if higher is better, -1 if lower is better. The ranks of a sample sum to M (M + 1) / 2 for M methods.
    """
    merit = better * values
    ahead, level = (merit > merit[:, None]).sum(1), (merit == merit[:, None]).sum(1)
    places: Values = ahead + (level + 1) / 2
    return places


def mean_ranks(
    values: Mapping[str, Values], better: Mapping[str, int], seed: int = 0, data: Mapping[str, str] | None = None
) -> MeanRanks:
    """Return the mean rank of each method over metrics and samples, from values[metric] (methods, N).

    better[metric]: 1 if higher is better, -1 if lower is better. data[metric]: the data set of the samples, by default
    one for all. Metrics of one data set have the same samples. All data sets have equal weight, and so have the metrics
    of a data set. Data sets are independent. With intervals [l_d, h_d] of their means m_d, the interval of the mean
    over D data sets is

        m - sqrt(Σ (m_d - l_d)²) / D  to  m + sqrt(Σ (h_d - m_d)²) / D      (Zou and Donner 2008).
    """
    _check(values, better, data)
    sets: dict[str, list[Values]] = {}
    for metric, each in values.items():
        sets.setdefault("" if data is None else data[metric], []).append(ranks(np.asarray(each), better[metric]))
    of_samples = [np.mean(places, axis=0) for places in sets.values()]  # (methods, N) for each data set
    found = [averaged([places[k] for places in of_samples], seed) for k in range(len(of_samples[0]))]
    return MeanRanks(*np.array(found).T)


def averaged(sets: Sequence[Values], seed: int = 0) -> tuple[float, float, float]:
    """Return the mean over data sets of their means over samples (N,), and its interval; see `mean_ranks`."""
    means = np.array([of_samples.mean() for of_samples in sets])
    ends = np.array([interval(of_samples, seed) for of_samples in sets])  # (D, 2)
    below, above = (np.sqrt(((means - ends[:, end]) ** 2).sum()) / len(sets) for end in (0, 1))
    mean = means.mean()
    return float(mean), float(mean - below), float(mean + above)


def with_ranks(columns: Sequence[Column], values: dict[str, dict[str, Values]]) -> Column:
    """Add the mean rank of each sample over these columns to values[method], and return its column.

    Only methods with finite values of all columns at all samples are ranked.
    """
    names = [column.name for column in columns]
    whole = [m for m, of in values.items() if all(name in of and np.isfinite(of[name]).all() for name in names)]
    if whole:
        places = [ranks(np.stack([values[m][c.name] for m in whole]), 1 if c.higher else -1) for c in columns]
        for method, of_samples in zip(whole, np.mean(places, axis=0), strict=True):
            values[method][MEAN_RANK.name] = of_samples
    return replace(MEAN_RANK, settings={"over": ", ".join(names)})


def _check(values: Mapping[str, Values], better: Mapping[str, int], data: Mapping[str, str] | None) -> None:
    """Refuse values that are not finite or that miss a method or sample."""
    if not values:
        raise InputError("got no metric to rank methods by, expected at least one")
    shapes: dict[str, tuple[int, ...]] = {}
    for metric, each in values.items():
        if better.get(metric) not in (1, -1) or (data is not None and metric not in data):
            raise InputError(f"got the metric {metric!r} without its better direction or its data set, expected both")
        shape = np.shape(each)
        if len(shape) != 2 or 0 in shape or not np.isfinite(each).all():
            raise InputError(f"the values of {metric!r} are of shape {shape}, expected finite ones (methods, samples)")
        first = next(iter(shapes.values()), shape)
        if shape[0] != first[0] or shapes.setdefault("" if data is None else data[metric], shape) != shape:
            raise InputError(
                f"the values of {metric!r} are of shape {shape}, expected as many methods as the other metrics have, "
                "and as many samples as those of its data set"
            )
