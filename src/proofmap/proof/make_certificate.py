"""A certificate made: intervals, trees and claims, each as the checker derives it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.graph.ir import ModelFile
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import into_ball, within
from proofmap.proof import check
from proofmap.proof.certificate import Certificate
from proofmap.proof.certified_file import Certified, refusing
from proofmap.proof.network_export import leak
from proofmap.proof.never_weaker import Explained
from proofmap.proof.pairwise_pools import in_maxima
from proofmap.proof.proof_tree import Growth, Opened, grow
from proofmap.proof.statement import Array, Asked
from proofmap.proof.stored_intervals import intervals
from proofmap.rules import Interval
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.search.ball_maxima import Balls
from proofmap.search.unstable_units import units_of
from proofmap.storage.hashing import versions

__all__ = ["Certified", "ModelFile", "Subject", "certify", "splits"]

_UNITS = 4096  # open units at most, for trees that nobody asked for: they take memory of the square of this
_GRID = 2.0**-24  # claims are multiples of this, and that much away: another machine sums in another order


@dataclass(frozen=True, eq=False)
class Subject:
    """What was asked of one sample: the network, x (1, *shape), its ball, its groups (1, *shape), and the class.

    rival: the one class that may get ahead; None: any other.
    """

    graph: Graph
    x: Tensor
    ball: Ball
    mask: Tensor | None
    groups: int
    target: int
    rival: int | None = None

    @property
    def asked(self) -> Asked:
        """As a certificate states it."""
        every = range(self.graph.classes) if self.rival is None else [self.rival]
        rivals = tuple(c for c in every if c != self.target)
        if not rivals:
            raise InputError(f"got class {self.target} as the aim of an input of that class, expected another class")
        return Asked.of(self.x, self.ball, self.mask, self.groups, self.target, rivals)

    @property
    def family(self) -> Family:
        """The ball and its members."""
        return self.ball.at(self.x, None if self.mask is None else self.mask.expand_as(self.x))


def splits(graph: Graph) -> bool:
    """Whether trees can grow: max pools have sides to take where they are maxima of two; clamps have two kinks."""
    return not any(node.op in ("max_pool", "clamp") for node in in_maxima(graph, torch.zeros(0)).nodes)


def certify(
    subject: Subject,
    points: Tensor | None = None,
    growth: Growth | None = None,
    model: Certified | None = None,
    explained: Explained | None = None,
) -> Certificate:
    """Prove it once more, by steps that are few enough for others to follow.

    points (1 + G, *shape): inputs that reach much, of B and of every B_u. growth: of trees; None: the ball stays
    whole. model: the ONNX file that the claims are about; None: the one that the graph was loaded from, or an export.
    explained: what the explanation proved; a tree that grows until that is `enough` grows only where the whole ball is
    not.
    """
    model = Certified.of(subject.graph) if model is None else model
    asked = subject.asked
    with refusing():
        return _certified(subject, asked, points, growth, model, explained)


def _certified(
    subject: Subject,
    asked: Asked,
    points: Tensor | None,
    growth: Growth | None,
    model: Certified,
    explained: Explained | None,
) -> Certificate:
    stated = model.stated
    network = check.read_network(model.data, asked.x.shape, stated["prepare"])
    question = check.Question(asked.x, asked.given, asked.mask, asked.groups, asked.target, list(asked.rivals))
    _check_same(subject, network, question, model.path)
    with part(0.0, 0.5):
        proof = {"intervals": intervals(network, question)}
    met = None if points is None else _inside(subject, points)
    lower = None if met is None else _downwards(_reached(network, question, met))
    with part(0.5, 0.6, "the whole ball"):
        derived = check.Prover(network, question).derive(proof)
    if growth is not None and _grows(proof["intervals"], derived, growth, explained):
        at_x = _reached(network, question, asked.x[None])[1]
        least = np.repeat(at_x, 1 + asked.groups) if lower is None else lower[1]
        with part(0.6, 0.9):
            proof |= _trees(subject, asked, proof["intervals"], least, growth)
        with part(0.9, 1.0, "the parts"):
            derived = check.Prover(network, question).derive(proof)
    upper = -_downwards(-derived)
    arrays = {**asked.arrays, **{f"{name}.npy": array for name, array in proof.items()}}
    claim = {
        "format": "proofmap-certificate",
        "version": 4,
        "made_with": versions(),
        "model": stated,
        **asked.claim,
        "claims": _claims(upper, lower, met, arrays),
    }
    network_file = model.data if model.path is None else None
    return Certificate(claim, arrays, asked.x, network_file, model.path, explained)


def _grows(stored: Array, derived: Array, growth: Growth, explained: Explained | None) -> bool:
    """Whether trees are needed: where one only has to be as strong as an explanation, the whole ball may do."""
    if growth.enough is None:
        return True
    opened = int(((stored[0] < 0) & (stored[1] > 0)).sum())
    return opened <= _UNITS and not (explained is not None and explained.met(*derived[:, 0].tolist()))


def _check_same(subject: Subject, network: check.Network, question: check.Question, path: Path | None) -> None:
    """Refuse a file whose network gives other logits at x than the explained one, by more than float32 can round."""
    with full_precision(subject.x.device), torch.no_grad():
        logits = subject.graph.to(subject.x.device, subject.x.dtype)(subject.x).flatten().double().cpu().numpy()
    prover = check.Prover(network, question, subject.x.cpu().numpy())
    low, high = prover.lower[-1][:, 0], prover.upper[-1][:, 0]
    if low.shape != logits.shape or not ((low <= logits) & (logits <= high)).all():
        raise InputError(
            f"{path or 'the export'} gives logits of {low.round(4)} to {high.round(4)} at the input, and the explained "
            f"network {logits.round(4)}: give the file that the explanation was made from"
        )


def _inside(subject: Subject, points: Tensor) -> Array:
    """Points as float32 numbers that lie in their balls exactly."""
    family = within(subject.family)
    every = family.split(torch.arange(len(points), device=family.x.device))
    moved: Array = into_ball(points.to(family.x), every, torch.float32).float().cpu().numpy()
    return moved


def _trees(subject: Subject, asked: Asked, stored: Array, reached: Array, growth: Growth) -> dict[str, Array]:
    """Trees on the stored intervals (2, units), which are those of the graph's ReLUs in the same order."""
    family = _double(subject.family)
    graph = in_maxima(subject.graph.to(torch.device("cpu"), torch.float64), family.x)
    bends = [node for node in graph.nodes if node.op in ("relu", "leaky_relu", "larger")]
    sizes = [node.size for node in bends]
    if sum(sizes) != stored.shape[1] or any(node.op == "max_pool" for node in graph.nodes):
        raise InputError(
            "got a network with max pools, or whose file orders its ReLUs otherwise, expected one of layers and ReLUs "
            "for a certificate with trees: take leaves=0"
        )
    known = {}
    for node, ends in zip(bends, np.split(stored.astype(np.float64), np.cumsum(sizes)[:-1], axis=1), strict=True):
        value = graph[node.inputs[0]]
        known[value.name] = Interval(*(torch.from_numpy(end.copy()).view(1, *value.shape) for end in ends))
        for name in node.inputs[1:]:  # max(a, b) bends where b - a is 0, wherever a and b are
            known[name] = Interval(*(torch.full((1, *value.shape), end, dtype=torch.float64) for end in (-inf, inf)))
    rows = torch.zeros(len(asked.rivals), graph.classes, dtype=torch.float64)
    rows[torch.arange(len(rows)), list(asked.rivals)] = 1
    rows[:, asked.target] = -1
    with full_precision(family.x.device), torch.no_grad():
        units = units_of(graph, known, family, rows)
        assert units is not None
        numbers = np.flatnonzero((stored[0] < 0) & (stored[1] > 0))
        opened = Opened(np.repeat([leak(node) for node in bends], sizes)[numbers])
        return grow(units, Balls(family), torch.from_numpy(reached), asked.rivals, opened, growth)


def _double(family: Family) -> Family:
    """On the CPU, in float64."""
    x, lower, upper, eps = (end.double().cpu() for end in (family.x, family.lower, family.upper, family.eps))
    mask = None if family.mask is None else family.mask.cpu()
    return replace(family, x=x, lower=lower, upper=upper, eps=eps, mask=mask)


def _reached(network: check.Network, question: check.Question, points: Array) -> Array:
    """(2, P) lower ends at points: as float32 runs it too, and over the reals alone."""
    return np.stack([check.Prover(network, question, points, reals).overlaps() for reals in (False, True)])


def _claims(upper: Array, lower: Array | None, met: Array | None, arrays: dict[str, Array]) -> dict[str, Any]:
    """What is claimed of sides (2, 1 + G), as float32 runs it too and over the reals; arrays go where they are kept."""
    kinds: list[dict[str, Any]] = []
    for kind, prefix in enumerate(("", "reals-")):
        kinds.append({"upper": f"{prefix}upper.npy", "lower": None if lower is None else f"{prefix}lower.npy"})
        arrays[f"{prefix}upper.npy"] = upper[kind]
        if lower is not None:
            arrays[f"{prefix}lower.npy"] = lower[kind]
    if met is not None:
        arrays["points.npy"] = np.moveaxis(met, 0, -1)
    return {**kinds[0], "points": None if met is None else "points.npy", "reals": kinds[1]}


def _downwards(values: Array) -> Array:
    """Multiples of the grid below the values, with something to spare."""
    grid: Array = np.floor(values / _GRID - 1) * _GRID
    return grid
