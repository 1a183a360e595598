"""Mean ranks: who is ahead by all metrics together, whatever their units.

A sample is a race for each metric: the best method has rank 1, methods with the same value share the mean of their
places (Friedman 1937; Demšar 2006). Ranks are averaged over metrics, over samples and, where there are several, over
data sets; what a mean over samples is uncertain by, `table.interval` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from proofmap.bench.statistics import Column, Values, interval
from proofmap.errors import InputError

__all__ = ["MEAN_RANK", "Ranks", "averaged", "mean_ranks", "ranks", "with_ranks"]

MEAN_RANK = Column("mean-rank", "Mean rank", higher=False)


class Ranks(NamedTuple):
    """The mean rank of each method with its 95 % interval: each (methods,)."""

    mean: Values
    low: Values
    high: Values


def ranks(values: Values, better: int) -> Values:
    """The rank of each method at each sample, 1 for the best: (methods, N) -> (methods, N).

    better: 1 where more is better, -1 where less is. The ranks of a sample sum to M (M + 1) / 2 for M methods.
    """
    merit = better * values
    ahead, level = (merit > merit[:, None]).sum(1), (merit == merit[:, None]).sum(1)
    places: Values = ahead + (level + 1) / 2
    return places


def mean_ranks(
    values: Mapping[str, Values], better: Mapping[str, int], seed: int = 0, data: Mapping[str, str] | None = None
) -> Ranks:
    """The mean rank of each method over metrics and samples, of values[metric] (methods, N), the methods in one order.

    better[metric]: 1 where more is better, -1 where less is. data[metric]: the data set its samples are from, by
    default one for all. Metrics of one data set have the same samples. Each data set counts the same, and so does each
    of its metrics. Data sets are independent: with intervals [l_d, h_d] of their means m_d, that of the mean over D is

        m - sqrt(Σ (m_d - l_d)²) / D  to  m + sqrt(Σ (h_d - m_d)²) / D      (Zou and Donner 2008).
    """
    _check(values, better, data)
    sets: dict[str, list[Values]] = {}
    for metric, each in values.items():
        sets.setdefault("" if data is None else data[metric], []).append(ranks(np.asarray(each), better[metric]))
    of_samples = [np.mean(places, axis=0) for places in sets.values()]  # of each data set: (methods, N)
    found = [averaged([places[k] for places in of_samples], seed) for k in range(len(of_samples[0]))]
    return Ranks(*np.array(found).T)


def averaged(sets: Sequence[Values], seed: int = 0) -> tuple[float, float, float]:
    """The mean over data sets of the means over their samples, each (N,), and its interval: see `mean_ranks`."""
    means = np.array([of_samples.mean() for of_samples in sets])
    ends = np.array([interval(of_samples, seed) for of_samples in sets])  # (D, 2)
    below, above = (np.sqrt(((means - ends[:, end]) ** 2).sum()) / len(sets) for end in (0, 1))
    mean = means.mean()
    return float(mean), float(mean - below), float(mean + above)


def with_ranks(columns: Sequence[Column], values: dict[str, dict[str, Values]]) -> Column:
    """The column of mean ranks over these columns, once its values[method] are added: the mean rank at each sample.

    They are averaged and marked as any others. Ranked are the methods that have all of the columns at all samples; what
    has less is not ranked, nor in the way.
    """
    names = [column.name for column in columns]
    whole = [m for m, of in values.items() if all(name in of and np.isfinite(of[name]).all() for name in names)]
    if whole:
        places = [ranks(np.stack([values[m][c.name] for m in whole]), 1 if c.higher else -1) for c in columns]
        for method, of_samples in zip(whole, np.mean(places, axis=0), strict=True):
            values[method][MEAN_RANK.name] = of_samples
    return replace(MEAN_RANK, settings={"over": ", ".join(names)})


def _check(values: Mapping[str, Values], better: Mapping[str, int], data: Mapping[str, str] | None) -> None:
    """Refuse what is no value for every method and sample."""
    if not values:
        raise InputError("got no metric to rank methods by, expected at least one")
    shapes: dict[str, tuple[int, ...]] = {}
    for metric, each in values.items():
        if better.get(metric) not in (1, -1) or (data is not None and metric not in data):
            raise InputError(f"got the metric {metric!r} without which way is better, or its data set: expected both")
        shape = np.shape(each)
        if len(shape) != 2 or 0 in shape or not np.isfinite(each).all():
            raise InputError(f"the values of {metric!r} are of shape {shape}, expected finite ones (methods, samples)")
        first = next(iter(shapes.values()), shape)
        if shape[0] != first[0] or shapes.setdefault("" if data is None else data[metric], shape) != shape:
            raise InputError(
                f"the values of {metric!r} are of shape {shape}, expected as many methods as the other metrics have, "
                "and as many samples as those of its data set"
            )
