"""Do tighter bounds give better maps? Maps by bounds and by a gradient are compared with the exact scores.

A search bounds every score from both sides. An image counts as exact if its widest interval is at most a tenth of the
standard deviation of its scores: then ranks can be compared. On every image, some pairs of groups are in proven order.
A map orders some of these pairs correctly, some wrongly, and leaves the rest equal. Scores are computed in float64, so
that rounding does not order them. Where intervals stay open, the best values of the search replace the true scores, for
ranks of all images and for the map that is evaluated as exact.
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
    import measuring  # a script imports from its own folder
    from lines import Line, average, by

MAP_METRICS: dict[str, Callable[..., Any]] = {
    "deletion": pm.metrics.Deletion,
    "insertion": pm.metrics.Insertion,
    "mu-fidelity": pm.metrics.MuFidelity,
    "robustness-sr": pm.metrics.RobustnessSr,
}
GROUPS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {"grid": pm.groups.grid(12), "pixels": pm.groups.pixels()}
SHARINGS: tuple[pm.bounds.Sharing, ...] = ("one-pass", "shared", "separate")
MAP_KINDS = ("exact", *SHARINGS, "first-order")
MAX_EXACT_WIDTH = 0.1  # the widest interval of an exact image, relative to the spread of its scores


def scores(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """Yield, for each image, the rank correlations of its maps and their metrics."""
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
    for name, metric in MAP_METRICS.items():
        judge = metric(seed=key["index"])  # all maps of an image get the same draws
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
    """Return the share of pairs [u, v] in proven order, u first, whose scores (G,) differ by this sign; 0 if none."""
    difference = scores[:, None] - scores[None, :]
    return float((difference[order].sign() == sign).sum()) / max(1, int(order.sum()))


def show(lines: Sequence[Line]) -> list[Line]:
    """Return a row for each radius, grouping and kind of map."""
    return [{**settings, **_row(some, kind)} for settings, some in by(lines, "eps", "groups") for kind in MAP_KINDS]


def _row(lines: Sequence[Line], kind: str) -> Line:
    exact = [line for line in lines if line["widest"] <= MAX_EXACT_WIDTH * line["spread"]]
    proven = sum(line["pairs"] for line in lines)  # counts the pairs of an image once for each line
    sides = {name: sum(line["pairs"] * line[name][kind] for line in lines) for name in ("same", "contrary")}
    return {
        "images": len(lines),
        "exact": len(exact),
        "map": kind,
        "rank, exact images": average(line["ranks"][kind] for line in exact),
        "rank, all": average(line["ranks"][kind] for line in lines),
        "pairs proven": proven / len(lines),
        **{name: total / proven if proven else nan for name, total in sides.items()},
        **{name: average(line[name][kind] for line in lines) for name in MAP_METRICS},
        "s/image": average(line["spent"][kind] for line in lines),
    }
