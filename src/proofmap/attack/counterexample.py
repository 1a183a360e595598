"""Counterexamples: a point of the ball that the network, also as its user runs it, assigns to another class.

The stored numbers of the point lie exactly in the ball.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from proofmap.attack.pgd import margin, run_pgd_starts
from proofmap.graph import Graph
from proofmap.graph.rewrite.probability_head import scores
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import round_into_ball

PGD_STEPS, PGD_RESTARTS = 40, 8  # gradient steps of an attack, and random starts

RunModel = Callable[[Tensor], Tensor]  # the model as its user runs it: inputs (N, *shape) -> outputs (N, classes)


@dataclass(frozen=True, eq=False)
class Counterexample:
    """A counterexample: a point of the ball that is assigned to another class."""

    point: Tensor  # (*shape), of x's dtype
    becomes: int  # its class by the user's model


def find_counterexample(
    graph: Graph, x: Tensor, ball: Ball, target: int, run: RunModel, known: Iterable[Tensor] = ()
) -> Counterexample | None:
    """Search a point around x (1, *shape) that is not of the class `target`; None if the attack finds none.

    known: points (1, *shape) to try before any attack, such as those found during a search for bounds.

    The point lies exactly in the ball and its domain. Another class has the larger score there twice: in the network
    over the real numbers, which a proof is about, computed in float64, and by `run`, in the model's own arithmetic.
    """
    exact = ball.at(x.double())
    network, precise = graph.to(x.device, x.dtype), graph.to(x.device, torch.float64)
    aim = torch.tensor([target], device=x.device)
    for near in chain([x], known, _adversaries(network, ball.at(x), aim)):
        point = round_into_ball(near, exact, x.dtype)
        if not float(margin(precise, point, aim)) > 0:
            continue
        outputs = scores(run(point.to(x.dtype)).flatten(1), graph.taken_off)
        becomes = int(outputs.argmax(1))
        if float(outputs[0, becomes]) > float(outputs[0, target]):
            return Counterexample(point[0].to(x.dtype), becomes)
    return None


def _adversaries(graph: Graph, family: Family, target: Tensor) -> Iterator[Tensor]:
    """Yield points (1, *shape) where another class has the larger score; rounding may move them out of the ball."""
    generator = torch.Generator(family.x.device).manual_seed(0)
    for value, delta in run_pgd_starts(
        partial(margin, graph, target=target), family, PGD_STEPS, PGD_RESTARTS, generator
    ):
        if float(value) > 0:
            yield family.x + delta
