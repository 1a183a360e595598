"""Is tighter better: maps by bounds of several kinds, and by a gradient, beside the exact scores of the same ball.

A search leaves every score between two ends. An image counts as exact where the widest of them is at most a tenth of
the spread of its scores, their standard deviation: there ranks can be compared. On every image, closed or not, some
pairs of groups are in proven order: of these a map puts some the same way, others the contrary way, which is wrong
whatever else is open, and leaves the rest equal. Scores are computed in float64, so that rounding orders none of them.
Elsewhere what a search reached stands for the truth: ranks of all images, and the map that is judged as the exact one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any

from torch import Tensor

import proofmap as pm

if TYPE_CHECKING:
    from benchmarks import measuring
    from benchmarks.lines import Line, average, by
else:
    import measuring  # a script finds what lies beside it
    from lines import Line, average, by

METRICS: dict[str, Callable[..., Any]] = {
    "deletion": pm.metrics.Deletion,
    "insertion": pm.metrics.Insertion,
    "mu-fidelity": pm.metrics.MuFidelity,
    "robustness-sr": pm.metrics.RobustnessSr,
}
GROUPS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {"grid": pm.groups.grid(12), "pixels": pm.groups.pixels()}
SHARINGS: tuple[pm.bounds.Sharing, ...] = ("one-pass", "shared", "separate")
KINDS = ("exact", *SHARINGS, "first-order")
EXACT = 0.1  # of the spread of the scores: how wide the widest interval of an exact image may be


def scores(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """The maps of each image: how alike their ranks are, and what the metrics say of them."""
    x = pm.data.mnist(args.data, "test")[0]
    graph = pm.trace(pm.zoo.mnist_mlp(), x[:1])
    for key in keys:
        yield {**key, **_compared(graph, x[key["index"]][None], key)}


def _compared(graph: pm.Graph, x: Tensor, key: Line) -> Line:
    ball, groups = pm.Ball(key["eps"], domain=(0.0, 1.0)), GROUPS[key["groups"]]
    explain = partial(pm.EVA, graph, ball, groups=groups, progress=False)
    explainers: dict[str, pm.explainers.Explainer] = {
        "exact": explain(bounds=pm.bounds.Exact(key["gap"], key["seconds"])),
        **{sharing: explain(sharing=sharing) for sharing in SHARINGS},
        "first-order": pm.FirstOrder(graph, ball, groups=groups, progress=False),
    }
    found, spent = {}, {}
    for kind, explainer in explainers.items():
        found[kind], spent[kind] = measuring.clocked(partial(explainer.explain, x.double()), "cpu")
    exact, maps = found["exact"], {kind: one.scores for kind, one in found.items()}
    mask, order = groups(tuple(x.shape[1:])), exact.order()[0]
    count = len(order) * (len(order) - 1) / 2
    values = {}
    for name, metric in METRICS.items():
        judge = metric(seed=key["index"])  # the same draws for every map of an image, others for another
        values[name] = {kind: float(judge(graph, x, exact.target, one[:, mask].float())) for kind, one in maps.items()}
    return {
        "widest": float((exact.intervals[..., 1] - exact.intervals[..., 0]).max()),
        "spread": float(maps["exact"].std()),
        "pairs": float(order.sum()) / count,
        "ranks": {kind: measuring.rank_correlation(one, maps["exact"]) for kind, one in maps.items()},
        "same": {kind: _share(order, one[0], 1) for kind, one in maps.items()},
        "contrary": {kind: _share(order, one[0], -1) for kind, one in maps.items()},
        **values,
        "spent": spent,
    }


def _share(order: Tensor, scores: Tensor, sign: int) -> float:
    """Of the pairs [u, v] in proven order, u before v: the share whose scores (G,) differ by this sign; 0 of none."""
    difference = scores[:, None] - scores[None, :]
    return float((difference[order].sign() == sign).sum()) / max(1, int(order.sum()))


def show(lines: Sequence[Line]) -> list[Line]:
    """A row for each radius, grouping and kind of map."""
    return [{**settings, **_row(some, kind)} for settings, some in by(lines, "eps", "groups") for kind in KINDS]


def _row(lines: Sequence[Line], kind: str) -> Line:
    exact = [line for line in lines if line["widest"] <= EXACT * line["spread"]]
    proven = sum(line["pairs"] for line in lines)  # so many times the pairs of an image
    sides = {name: sum(line["pairs"] * line[name][kind] for line in lines) for name in ("same", "contrary")}
    return {
        "images": len(lines),
        "exact": len(exact),
        "map": kind,
        "rank, exact images": average(line["ranks"][kind] for line in exact),
        "rank, all": average(line["ranks"][kind] for line in lines),
        "pairs proven": proven / len(lines),
        **{name: total / proven if proven else nan for name, total in sides.items()},
        **{name: average(line[name][kind] for line in lines) for name in METRICS},
        "s/image": average(line["spent"][kind] for line in lines),
    }
