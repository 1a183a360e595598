"""`pm.compare_models`: two networks on the same ball: their decisions, and how far their logits can differ.

For two networks a and b, and each class k, the interval of b_k(x + δ) - a_k(x + δ) over all δ of B is bounded twice: on
the network that computes both side by side, and, for networks with the same architecture, on the network of their
differences (`graph.rewrite.model_pair`), in which equal weights cancel. Both bounds hold, so the closer one is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proofmap.attack.pgd import margin, run_pgd_starts
from proofmap.bounds import Backward, Cases, Method, solve
from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import logits_of, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import join_inputs, of_one_input
from proofmap.graph.rewrite.model_pair import difference_network, side_by_side
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.membership import round_into_ball
from proofmap.inputs.several_inputs import Balls, is_several
from proofmap.rounding.rigorous_support import has_error_bounds
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_flag
from proofmap.storage.exported_tables import data_frame
from proofmap.verify.overlap import Overlap, method_of, overlap

if TYPE_CHECKING:
    from pandas import DataFrame

_ATTACK_STEPS, _ATTACK_RESTARTS = 40, 4  # PGD on the decisions that are not proven
_COLUMNS = ("sample", "class", "first", "second", "predicted_first", "predicted_second", "largest_difference")


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison:
    """Two networks on the same balls: proven decisions, and bounds of the differences of their logits.

    A verdict is "proven" if the network has the class `target` on the whole ball, "refuted" if a point of the ball has
    another class, and "undecided" otherwise. The intervals of `difference` contain b_k - a_k for every class k and
    every input of the ball, with a the first and b the second network.

    >>> retrained = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(x[0].numel(), 10))
    >>> found = pm.compare_models(model, retrained, x, ball)
    >>> found.both_proven.shape, found.difference.shape
    (torch.Size([2]), torch.Size([2, 10, 2]))
    """

    target: Tensor  # (N,) the class of the question
    predicted: Tensor  # (N, 2) the classes at x itself, by the first and the second network
    verdicts: tuple[tuple[str, str], ...]  # N verdicts of the first and the second network
    first: Overlap
    second: Overlap
    difference: Tensor  # (N, classes, 2) float64 intervals of b_k - a_k over the ball
    rigorous: bool  # whether the intervals of `difference` cover the rounding errors of both networks
    related: bool  # whether the networks have the same architecture, so that corresponding nodes were compared

    @property
    def both_proven(self) -> Tensor:
        """(N,) whether both networks have the class `target` on the whole ball."""
        return torch.tensor([verdict == ("proven", "proven") for verdict in self.verdicts], dtype=torch.bool)

    @property
    def largest_difference(self) -> Tensor:
        """(N,) a bound of max over k of |b_k - a_k| over the ball."""
        return self.difference.abs().amax((1, 2))

    def rows(self) -> list[dict[str, Any]]:
        """Return one record for each sample: the class, the verdicts, the predictions and the largest difference."""
        largest, classes = self.largest_difference.tolist(), self.target.tolist()
        return [
            dict(
                zip(_COLUMNS, (k, classes[k], *self.verdicts[k], *self.predicted[k].tolist(), largest[k]), strict=True)
            )
            for k in range(len(classes))
        ]

    def to_frame(self) -> DataFrame:
        """Return the records of `rows` as a pandas data frame."""
        return data_frame(_COLUMNS, (list(row.values()) for row in self.rows()))

    def __repr__(self) -> str:
        """Show how many decisions are proven for both networks, and the largest difference of their logits."""
        return f"ModelComparison({self.summary()})"

    def summary(self) -> str:
        """Return one sentence about the decisions and one about the differences."""
        counts = [
            f"{name} network {_counts(verdict[k] for verdict in self.verdicts)}"
            for k, name in enumerate(("first", "second"))
        ]
        far = float(self.largest_difference.max()) if len(self.verdicts) else 0.0
        how = "with float32 rounding" if self.rigorous else "in exact arithmetic"
        differs = f"logits differ by at most {difference_text(far)} over the balls, {how}"
        return (
            f"{int(self.both_proven.sum())} of {len(self.verdicts)} decisions proven for both networks "
            f"({'; '.join(counts)}); {differs}"
        )


def difference_text(most: float) -> str:
    """Print a bound of a difference with four digits, rounded up."""
    return f"{Context(prec=4, rounding=ROUND_CEILING).create_decimal(most):g}" if isfinite(most) else "∞"


def _counts(verdicts: Iterable[str]) -> str:
    every = list(verdicts)
    return ", ".join(f"{every.count(word)} {word}" for word in ("proven", "refuted", "undecided"))


def compare_models(
    first: Network,
    second: Network,
    x: Inputs,
    ball: Balls,
    *,
    bounds: Method | None = None,
    target: Target = None,
    memory: int | None = None,
    rigorous: bool | None = None,
) -> ModelComparison:
    """Compare two networks on the same balls, for instance before and after retraining or quantisation.

    Args:
        first: the first network a.
        second: the second network b, with the same inputs and classes.
        x: the samples (N, *shape), or several inputs as a tuple or a dictionary.
        ball: the ball of allowed changes; for several inputs a tuple, None for an input that stays fixed.
        bounds: the method for the decisions, Backward() by default. It also bounds the differences, unless it searches.
        target: the class c, one for all samples or one for each; by default the class that the first network predicts.
        memory: the bytes that the computation may use, by default half of the free memory.
        rigorous: True: decisions and differences cover all rounding errors of float32, as in `overlap`. Each node of
            the network of the differences then has the rounding errors of both nodes whose difference it is.
            Corresponding nodes are related if all activations are ReLU, leaky ReLU, |x|, clamps or max pools;
            otherwise the intervals are those of the networks side by side, which are wider. None: decisions as
            `overlap` decides by default; differences are those of the networks over the reals.

    If a final softmax or sigmoid is removed from a network, the differences are those of its logits. Differences are
    computed in float64.

    Returns:
        The verdicts for both networks and intervals of b_k - a_k over the balls.

    Raises:
        InputError: the networks have other inputs or numbers of classes.
        UnsupportedError: a network has operations without a rule.

    >>> found = pm.compare_models(model, model, x, ball)
    >>> found.related, float(found.largest_difference.max()) < 1e-12        # equal weights cancel
    (True, True)
    """
    if rigorous is not None:
        check_flag("got rigorous", rigorous)
    method = method_of(bounds)
    if is_several(x):
        joined = [join_inputs(model, x) for model in (first, second)]
        ball = joined[0].ball(ball)
        (first, second), x = (each.model for each in joined), joined[0].x
    ball, _ = of_one_input(ball, None)
    x = as_samples(x, first)
    graphs = [bounded(as_graph(model, x)).to(x.device, x.dtype) for model in (first, second)]
    _check_pair(*graphs)
    with full_precision(x.device), torch.no_grad():
        logits = [logits_of(graph, x) for graph in graphs]
    predicted = torch.stack([value.argmax(1) for value in logits], dim=1)
    aim = target_of(target, logits[0])
    asked: Any = {"bounds": method, "target": aim, "memory": memory, "rigorous": rigorous, "enough": 0.0}
    overlaps = [overlap(graph, x, ball, **asked) for graph in graphs]
    verdicts = zip(
        *(_verdicts(graph, x, ball, aim, over) for graph, over in zip(graphs, overlaps, strict=True)), strict=True
    )
    difference, related = _differences(graphs, x, ball, method, budget(memory, x.device), rigorous is True)
    over_first, over_second = overlaps
    return ModelComparison(
        aim, predicted, tuple(verdicts), over_first, over_second, difference, rigorous is True, related
    )


def _check_pair(first: Graph, second: Graph) -> None:
    if first.input.shape != second.input.shape or first.classes != second.classes:
        shapes = " and ".join(f"{graph.input.shape} to {graph.classes} classes" for graph in (first, second))
        raise InputError(
            f"got networks from {shapes}, expected the same inputs and classes: compare two versions of one network"
        )


def _verdicts(graph: Graph, x: Tensor, ball: Ball, target: Tensor, over: Overlap) -> list[str]:
    proven = over.full < 0
    refuted = _refuted(graph, x, ball, target, (~proven).nonzero().flatten())
    return [
        "proven" if good else "refuted" if bad else "undecided"
        for good, bad in zip(proven.tolist(), refuted.tolist(), strict=True)
    ]


def _refuted(graph: Graph, x: Tensor, ball: Ball, target: Tensor, which: Tensor) -> Tensor:
    """Return (N,) whether an attack on the samples `which` finds a point of the ball with another class.

    The point lies exactly in the ball. Another class is ahead there in float64, and in the type of x.
    """
    refuted = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if not len(which):
        return refuted
    exact, family, aim = ball.at(x.double()).pick(which), ball.at(x).pick(which), target[which]
    precise, generator = graph.to(x.device, torch.float64), torch.Generator(x.device).manual_seed(0)
    found = refuted[which]
    starts = run_pgd_starts(partial(margin, graph, target=aim), family, _ATTACK_STEPS, _ATTACK_RESTARTS, generator)
    with torch.no_grad():
        deltas = [torch.zeros_like(family.x), *(delta for _, delta in starts)]
        for delta in deltas:
            points = round_into_ball(family.x + delta, exact, x.dtype)
            found |= (margin(precise, points, aim) > 0) & (margin(graph, points.to(x.dtype), aim) > 0)
    refuted[which] = found
    return refuted


def _differences(
    graphs: list[Graph], x: Tensor, ball: Ball, method: Method, available: int, rigorous: bool
) -> tuple[Tensor, bool]:
    """Return intervals (N, classes, 2) of b_k - a_k over the balls in float64, and whether nodes were related."""
    first, second = (graph.to(x.device, torch.float64) for graph in graphs)
    cases, classes = Cases(ball.at(x.double())), first.classes
    plain = Backward() if method.search is not None else method
    unit = torch.eye(classes, dtype=torch.float64, device=x.device)
    sides = torch.cat([-unit, unit], dim=1)
    with full_precision(x.device), torch.no_grad():
        network = side_by_side(first, second)
        if rigorous and not has_error_bounds(network):
            raise BoundError(
                "no rigorous bounds of the differences: the rounding errors of some operation are not known"
            )
        result = _intervals(network, cases, sides, plain, available, rigorous)
        related = difference_network(first, second, cases.balls.x)
        if related is not None and rigorous and not has_error_bounds(related):
            related = None
        if related is not None:
            closer = _intervals(related, cases, unit, Backward(), available, rigorous)
            result = torch.stack(
                [result[..., 0].maximum(closer[..., 0]), result[..., 1].minimum(closer[..., 1])], dim=2
            )
    crossed = result[..., 0] > result[..., 1]  # both hold: only rounding can separate them
    result = torch.where(crossed[..., None], result.flip(2), result) + 0.0  # no -0.0
    return result, related is not None


def _intervals(graph: Graph, cases: Cases, rows: Tensor, method: Method, available: int, rigorous: bool) -> Tensor:
    """Return intervals (N, classes, 2) of the rows (classes, outputs) of the network's outputs over the balls."""
    both = torch.cat([-rows, rows]).expand(len(cases), -1, -1)
    above = solve(graph, cases, both, method, "one-pass", available, rigorous=rigorous)[:, 0]
    below, over = above.chunk(2, dim=1)
    return torch.stack([-below, over], dim=2)
