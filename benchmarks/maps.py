"""Is tighter better: maps by bounds of several kinds, and by a gradient, beside the exact scores of the same ball.

An exact score is known between two ends, and its middle is taken for it. An image is closed where no two ends are more
than two gaps apart, one for each term of the difference. Rank correlations are given for closed images and for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
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


def scores(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """The maps of each image: how alike their ranks are, and what the metrics say of them."""
    x = pm.data.mnist(args.data, "test")[0]
    graph = pm.trace(pm.zoo.mnist_mlp(), x[:1])
    for key in keys:
        yield {**key, **_compared(graph, x[key["index"]][None], key)}


def _compared(graph: pm.Graph, x: Tensor, key: Line) -> Line:
    ball, groups = pm.Ball(key["eps"], domain=(0.0, 1.0)), GROUPS[key["groups"]]
    bounds = pm.bounds.Exact(key["gap"], key["seconds"])
    eva = pm.EVA(graph, ball, groups=groups, bounds=bounds, progress=False)
    exact, spent = measuring.clocked(lambda: eva.explain(x), "cpu")
    maps = {"exact": exact.intervals.mean(2)}
    for sharing in SHARINGS:
        maps[sharing] = pm.EVA(graph, ball, groups=groups, sharing=sharing, progress=False).explain(x).scores
    maps["first-order"] = pm.FirstOrder(graph, ball, groups=groups, progress=False).explain(x).scores
    mask, found = groups(tuple(x.shape[1:])), {}
    for name, metric in METRICS.items():
        judge = metric(seed=key["index"])  # the same draws for every map of an image, others for another
        found[name] = {kind: float(judge(graph, x, exact.target, one[:, mask].float())) for kind, one in maps.items()}
    return {
        "widest": float((exact.intervals[..., 1] - exact.intervals[..., 0]).max()),
        "ranks": {kind: measuring.rank_correlation(one.double(), maps["exact"]) for kind, one in maps.items()},
        **found,
        "spent": spent,
    }


def show(lines: Sequence[Line]) -> list[Line]:
    """A row for each radius, grouping and kind of map."""
    rows = []
    for settings, some in by(lines, "eps", "groups"):
        closed = [line for line in some if line["widest"] <= 2 * line["gap"]]
        for kind in KINDS:
            ranks = [average(line["ranks"][kind] for line in those) for those in (closed, some)]
            values = {name: average(line[name][kind] for line in some) for name in METRICS}
            counts = {"images": len(some), "closed": len(closed)}
            rows.append({**settings, **counts, "map": kind, "rank, closed": ranks[0], "rank, all": ranks[1], **values})
    return rows
