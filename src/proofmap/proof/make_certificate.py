"""Make a certificate: store intervals and split trees, and let the checker derive the claimed bounds."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph
from proofmap.graph.ir import ModelFile
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.membership import inner_family, round_into_ball
from proofmap.proof import check
from proofmap.proof.certificate import Certificate
from proofmap.proof.certified_file import Certified, refusing
from proofmap.proof.contrastive_statement import ContrastiveStatement
from proofmap.proof.network_export import leak
from proofmap.proof.never_weaker import Explained, ExplainedSize
from proofmap.proof.output_statement import (
    OutputStatement,
    ends_in_sigmoid,
    model_graph,
    with_rows,
    without_last_sigmoid,
)
from proofmap.proof.pairwise_pools import in_maxima
from proofmap.proof.proof_tree import Growth, Opened, grow
from proofmap.proof.statement import Array, Asked
from proofmap.proof.stored_intervals import intervals
from proofmap.proof.sufficient_statement import SufficientStatement
from proofmap.rules import Interval
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.unstable_units import build_units
from proofmap.storage.hashing import versions
from proofmap.verify.objectives import Label, Output, objective_graph

__all__ = ["CertificateSubject", "Certified", "ModelFile", "certify", "splits"]

_MAX_TREE_UNITS = 4096  # unstable units up to which trees grow by default; memory grows with the square
_CLAIM_GRID = 2.0**-24  # claims are rounded to multiples with one spare step, for other orders of summation
_LEAST_GRID_SCALE = 2.0**-16  # smaller outputs may follow from numbers that are not smaller
_OUTPUT_GAP = 0.005  # share of the largest change of an output: the gap at which trees stop
_LEAST_OUTPUT_GAP = 1e-9  # in the output's unit; an output that cannot change has no gap
_MOST_ABOVE_HALF = 0.5 - 1e-9  # probabilities are kept away from 0 and 1, whose logits are infinite
_ROUNDING_SHARE = 1.25  # trees grow until this share of the rounding errors of the first bound is left below the limit


class UnprovenSetsError(BoundError):
    """The bound of a certificate about sets of groups is not below the limit."""


@dataclass(frozen=True, eq=False)
class CertificateSubject:
    """The question about one sample: the network, x (1, *shape), the ball, the groups (1, *shape) and the class.

    rival: the only rival class; None: all other classes. output: the statement about outputs that replaces the class;
    the outputs of the graph are then those of the model. sets: the sufficient or contrastive sets for which all this is
    stated. The ball is then the part in which the free groups alone move, or few groups.
    """

    graph: Graph
    x: Tensor
    ball: Ball
    mask: Tensor | None
    groups: int
    target: int
    rival: int | None = None
    output: OutputStatement | None = None
    sets: SufficientStatement | ContrastiveStatement | None = None

    @property
    def asked(self) -> Asked:
        """The question in the form of a certificate."""
        if self.output is not None:
            return Asked.of(self.x, self.ball, self.mask, self.groups, {"statement": dict(self.output.fields)})
        every = range(self.graph.classes) if self.rival is None else [self.rival]
        rivals = [c for c in every if c != self.target]
        if not rivals:
            raise InputError(f"got class {self.target} as the aim of an input of that class, expected another class")
        return Asked.of(self.x, self.ball, self.mask, self.groups, {"target": self.target, "rivals": rivals})

    @property
    def family(self) -> Family:
        """The ball and its members."""
        mask = None if self.mask is None else self.mask.expand_as(self.x)
        family = self.ball.at(self.x, mask)
        if self.sets is None:
            return family
        assert mask is not None
        return self.sets.family(family, mask)

    def balls(self, family: Family) -> SampleBalls:
        """Return the balls of trees; family: that of the subject, in float64."""
        if self.sets is None or self.mask is None:
            return SampleBalls(family)
        return self.sets.balls(family, self.mask.to(family.x.device))


def with_objective(subject: CertificateSubject, objective: object) -> CertificateSubject:
    """Return the question about an output, a label or the decision. Changes of an output start at its value at x."""
    graph = subject.graph
    if isinstance(objective, Output):
        with full_precision(subject.x.device), torch.no_grad():
            value = float(objective_graph(graph, objective).to(subject.x.device, subject.x.dtype)(subject.x)[0, 0])
        stated = OutputStatement.of_output(objective, graph, value)
        return replace(subject, graph=model_graph(graph), output=stated)
    if isinstance(objective, Label):
        stated = OutputStatement.of_label(objective, graph, subject.target)
        return replace(subject, graph=model_graph(graph), output=stated)
    return replace(subject, graph=objective_graph(graph, objective))


def in_units_of(subject: CertificateSubject, explained: Explained, growth: Growth | None) -> Growth | None:
    """Return the limits of split trees with the gap of an output, which has a unit of its own."""
    if growth is None or subject.output is None:
        return growth
    return replace(growth, gap=max(_OUTPUT_GAP * (explained.full - explained.nominal), _LEAST_OUTPUT_GAP))


def comparable(subject: CertificateSubject, objective: object, explained: Explained) -> Explained | None:
    """Return the bound that the certificate must reach. None for a label whose output is a probability.

    The explanation bounds the input of the final sigmoid then, and the certificate the probability.
    """
    return None if isinstance(objective, Label) and ends_in_sigmoid(subject.graph) else explained


def splits(graph: Graph) -> bool:
    """Return whether the ball can be split. Clamps have two kinks, curves none; max pools become pairwise maxima."""
    return not any(
        node.op in ("max_pool", "clamp", "sigmoid", "tanh") for node in in_maxima(graph, torch.zeros(0)).nodes
    )


def certify(
    subject: CertificateSubject,
    points: Tensor | None = None,
    growth: Growth | None = None,
    model: Certified | None = None,
    explained: Explained | None = None,
) -> Certificate:
    """Prove the bounds again, in few steps that the checker can repeat.

    points (1 + G, *shape): points of B and of all B_u with a large overlap. growth: limits of split trees; None: the
    ball is not split. model: the ONNX file of the claims; None: the file that the graph was loaded from, or an export.
    explained: the bound of the explanation. A tree that grows until this bound is `enough` grows only if the bound of
    the whole ball is too weak.
    """
    model = Certified.of(subject.graph) if model is None else model
    asked = subject.asked
    with refusing():
        return _certified(subject, asked, points, growth, model, explained)


def certify_changes(
    subject: CertificateSubject, growth: Growth | None, model: Certified, explained: ExplainedSize
) -> Certificate:
    """Certify contrastive sets with the largest number of groups, up to that of the explanation, that can be proven.

    All sets of fewer groups are one question. Its bound is weaker than a search over single sets, so that the number
    may be smaller. Number 1 is always proven: the input itself has the class.
    """
    assert isinstance(subject.sets, ContrastiveStatement)
    until = time.monotonic() + (0.0 if growth is None else growth.seconds)
    proven, refused = 0, explained.least + 1
    made, wanted = None, explained.least
    while made is None or refused - proven > 1:
        limits = None
        if growth is not None and wanted > 1:
            limits = replace(growth, seconds=max(0.0, until - time.monotonic()) / 2)
        smaller = replace(subject, sets=subject.sets.at_least(wanted))
        try:
            made = certify(smaller, None, limits, model, replace(explained, stated=wanted))
            proven = wanted
        except UnprovenSetsError:
            if wanted == 1:
                raise
            refused = wanted
        wanted = max(1, (proven + refused) // 2)
    return made


def _certified(
    subject: CertificateSubject,
    asked: Asked,
    points: Tensor | None,
    growth: Growth | None,
    model: Certified,
    explained: Explained | None,
) -> Certificate:
    stated = model.stated
    network = check.read_network(model.data, asked.x.shape, stated["prepare"])
    if subject.sets is not None:
        asked = _with_sets(subject.sets, asked, network)
    statement = _statement(asked, network)
    question = _question(statement, asked)
    _check_same(subject, network, question, model.path)
    with part(0.0, 0.5):
        proof = {"intervals": intervals(network, question)}
    points_in_ball = None if points is None else _round_points(subject, points)
    lower = None if points_in_ball is None else _lower_bounds(network, question, points_in_ball)
    with part(0.5, 0.6, "the whole ball"):
        prover = check.Prover(network, question)
        derived = prover.derive(proof)
    if growth is not None and isinstance(statement, check.GroupSets):
        growth = _until_proven(statement, derived, _rounding(prover, derived), growth)
    if growth is not None and _needs_trees(proof["intervals"], derived, growth, explained):
        at_x = _lower_bounds(network, question, asked.x[None])[1]
        least = np.repeat(at_x, 1 + question.groups) if lower is None else lower[1]
        with part(0.6, 0.9):
            proof |= _trees(subject, _bounded(statement), proof["intervals"], least, growth)
        with part(0.9, 1.0, "the parts"):
            derived = check.Prover(network, question).derive(proof)
    grid = _grid_of(statement, derived)
    upper = -_round_down(-derived, grid)
    if isinstance(statement, check.GroupSets):
        _check_proven(statement, float(upper[1, 0]), trees="tree" in proof)
    lower = None if lower is None else _round_down(lower, grid)
    arrays = {**asked.arrays, **{f"{name}.npy": array for name, array in proof.items()}}
    claim = {
        "format": "proofmap-certificate",
        "version": 4 if isinstance(statement, check.Decision) else 5,
        "made_with": versions(),
        "model": stated,
        **asked.claim,
        **_rule_of_classes(statement),
        "claims": _claims(upper, lower, points_in_ball, arrays),
    }
    network_file = model.data if model.path is None else None
    return Certificate(claim, arrays, asked.x, network_file, statement, model.path, explained)


def _statement(asked: Asked, network: check.Network) -> check.Statement:
    """Return the checker's statement. A decision of a network with one output is about the logits (0, z)."""
    if "statement" in asked.stated:
        return check.read_statement({"version": 5, "statement": dict(asked.stated["statement"])}, network)
    return check.Decision(**asked.stated, classes=check.with_classes(network), margin=network.decision_margin)


def _with_sets(sets: SufficientStatement | ContrastiveStatement, asked: Asked, network: check.Network) -> Asked:
    """Return the question about sets of groups, with the points that the checker accepts."""
    assert asked.mask is not None
    stated = asked.stated.get("statement") or {"kind": "decision", **asked.stated}
    rule = check.with_classes(network)
    about = {**stated, "classes": rule} if stated["kind"] == "decision" and rule is not None else stated
    resting = check.Question(asked.x, asked.given, asked.mask, asked.groups, None, []).sides
    sets = sets.without_resting(asked.mask, resting)
    first = replace(asked, stated={"statement": sets.fields(about)})
    statement = _statement(first, network)
    assert isinstance(statement, check.GroupSets)
    sets = sets.proven_points(network, _question(statement, first), statement, asked.mask)
    return replace(asked, stated={"statement": sets.fields(about)}, arrays={**asked.arrays, **sets.arrays})


def _question(statement: check.Statement, asked: Asked) -> check.Question:
    if isinstance(statement, check.GroupSets):
        return statement.ask(asked.x, dict(asked.given), asked.mask, asked.groups)
    return check.Question(asked.x, dict(asked.given), asked.mask, asked.groups, statement)


def _bounded(statement: check.Statement) -> check.Bounded:
    """Return the statement whose rows are bounded."""
    return statement.about if isinstance(statement, check.GroupSets) else statement


def _rounding(prover: check.Prover, derived: Array) -> float:
    """Return the rounding errors of the first bound; those of a sigmoid where it is steepest, with the slope 1/4."""
    last, statement = prover.nodes[-1], prover.question.statement
    if not (isinstance(statement, check.LabelState) and last.op == "curve"):
        return float(derived[0, 0] - derived[1, 0])
    forms = statement.forms(np.array(statement.rows), last)
    far = prover.largest(last.inputs[0], forms)[:, 0]
    return float((far[0] - far[1]).max() / 4 + check.CURVED)


def _until_proven(statement: check.GroupSets, derived: Array, rounding: float, growth: Growth) -> Growth | None:
    """Return limits of trees that stop when the sets are proven in float32; None if no tree is needed."""
    spare = 4 * _grid_of(statement, derived)
    if statement.holds(float(derived[0, 0]) + spare):
        return None
    return replace(growth, enough=float(statement.held.most) - _ROUNDING_SHARE * rounding - spare)


def _check_proven(statement: check.GroupSets, bound: float, *, trees: bool) -> None:
    what = "free groups"
    if isinstance(statement, check.ContrastiveSet):
        what = f"least number of groups, {statement.least}"
    advice = "allow more parts of the ball with certificate(leaves=..., seconds=...)"
    if not trees:
        advice = "its ball was not split; take a smaller radius, or a network of layers and ReLUs with leaves above 0"
    if not statement.holds(bound):
        raise UnprovenSetsError(
            f"the certificate does not prove the {what}: its bound is {bound:.4g}, expected less than "
            f"{float(statement.held.most):.4g}: {advice}"
        )


def _rule_of_classes(statement: check.Statement) -> dict[str, str]:
    """Return the entry of the claim that states the classes of a network with one output."""
    if not isinstance(statement, check.Decision) or statement.classes is None:
        return {}
    return {"classes": statement.classes}


def _needs_trees(stored: Array, derived: Array, growth: Growth, explained: Explained | None) -> bool:
    """Return whether trees are needed. The bound of the whole ball may already be as strong as the explanation."""
    if not stored.size:  # a linear network has no units to split
        return False
    if growth.enough is None:
        return True
    opened = int(((stored[0] < 0) & (stored[1] > 0)).sum())
    return opened <= _MAX_TREE_UNITS and not (explained is not None and explained.met(*derived[:, 0].tolist()))


def _check_same(
    subject: CertificateSubject, network: check.Network, question: check.Question, path: Path | None
) -> None:
    """Refuse a file whose logits at x differ from those of the explained network by more than float32 rounding."""
    with full_precision(subject.x.device), torch.no_grad():
        logits = subject.graph.to(subject.x.device, subject.x.dtype)(subject.x).flatten().double().cpu().numpy()
    prover = check.Prover(network, question, subject.x.cpu().numpy())
    low, high = prover.lower[-1][:, 0], prover.upper[-1][:, 0]
    if low.shape != logits.shape or not ((low <= logits) & (logits <= high)).all():
        raise InputError(
            f"{path or 'the export'} gives logits of {low.round(4)} to {high.round(4)} at the input, and the explained "
            f"network {logits.round(4)}: give the file that the explanation was made from"
        )


def _round_points(subject: CertificateSubject, points: Tensor) -> Array:
    """Round points to float32 numbers that lie exactly in their balls."""
    family = inner_family(subject.family)
    every = family.split(torch.arange(len(points), device=family.x.device))
    moved: Array = round_into_ball(points.to(family.x), every, torch.float32).float().cpu().numpy()
    return moved


def _trees(
    subject: CertificateSubject,
    statement: check.Bounded,
    stored: Array,
    reached: Array,
    growth: Growth,
) -> dict[str, Array]:
    """Grow trees on the stored intervals (2, units) of the graph's ReLUs, in the same order.

    Trees bound the statement's forms, which are its rows times `scale`.
    """
    family = subject.family.to(torch.float64, torch.device("cpu"))
    graph = in_maxima(subject.graph.to(torch.device("cpu"), torch.float64), family.x)
    if (
        isinstance(statement, check.LabelState) and graph[graph.output].op == "sigmoid"
    ):  # trees bound the input of the sigmoid
        graph, statement = without_last_sigmoid(graph), statement._replace(centre="0")
        stored = stored[:, : stored.shape[1] - graph[graph.output].size]
        reached = _logit(reached)
        growth = replace(growth, enough=None if growth.enough is None else float(_logit(np.array(growth.enough))))
    found = stored_kinks(graph, stored)
    if found is None:
        return {}  # an affine network: the first bounds are exact, and there is nothing to split
    known, opened = found
    scale = 1
    if isinstance(statement, check.Decision):
        rows = torch.zeros(len(statement.rows), graph.classes, dtype=torch.float64)
        rows[torch.arange(len(rows)), statement.rows] = 1
        rows[:, statement.target] = -1
    else:
        graph, rows, scale = with_rows(graph, statement)
    with full_precision(family.x.device), torch.no_grad():
        units = build_units(graph, known, family, rows)
        assert units is not None
        return grow(
            units, subject.balls(family), torch.from_numpy(reached * scale), statement.rows, opened, growth.times(scale)
        )


def stored_kinks(graph: Graph, stored: Array) -> tuple[dict[str, Interval], Opened] | None:
    """Return the stored intervals (2, units) by the inputs of the graph's kinks, and its open units.

    None for a graph without kinks. Raises InputError if the file orders its ReLUs otherwise.
    """
    bends = [node for node in graph.nodes if node.op in ("relu", "leaky_relu", "larger")]
    sizes = [node.size for node in bends]
    if sum(sizes) != stored.shape[1] or any(node.op == "max_pool" for node in graph.nodes):
        raise InputError(
            "got a network with max pools, or whose file orders its ReLUs otherwise, expected one of layers and ReLUs "
            "for a certificate with trees: take leaves=0"
        )
    if not bends:
        return None
    known = {}
    for node, ends in zip(bends, np.split(stored.astype(np.float64), np.cumsum(sizes)[:-1], axis=1), strict=True):
        value = graph[node.inputs[0]]
        known[value.name] = Interval(*(torch.from_numpy(end.copy()).view(1, *value.shape) for end in ends))
        for name in node.inputs[1:]:  # max(a, b) has its kink at b - a = 0, for any a and b
            known[name] = Interval(*(torch.full((1, *value.shape), end, dtype=torch.float64) for end in (-inf, inf)))
    numbers = np.flatnonzero((stored[0] < 0) & (stored[1] > 0))
    return known, Opened(np.repeat([leak(node) for node in bends], sizes)[numbers])


def _logit(above: Array) -> Array:
    """Return the inputs of a sigmoid whose values are 1/2 plus these numbers."""
    share = np.clip(above, -_MOST_ABOVE_HALF, _MOST_ABOVE_HALF)
    found: Array = np.log((0.5 + share) / (0.5 - share))
    return found


def _lower_bounds(network: check.Network, question: check.Question, points: Array) -> Array:
    """Return lower bounds at points (2, P): those that hold in float32 too, and those over the reals."""
    return np.stack([check.Prover(network, question, points, reals).overlaps() for reals in (False, True)])


def _claims(
    upper: Array, lower: Array | None, points_in_ball: Array | None, arrays: dict[str, Array]
) -> dict[str, Any]:
    """Return the claims of bounds (2, 1 + G), in float32 and over the reals, and add their arrays to `arrays`."""
    kinds: list[dict[str, Any]] = []
    for kind, prefix in enumerate(("", "reals-")):
        kinds.append({"upper": f"{prefix}upper.npy", "lower": None if lower is None else f"{prefix}lower.npy"})
        arrays[f"{prefix}upper.npy"] = upper[kind]
        if lower is not None:
            arrays[f"{prefix}lower.npy"] = lower[kind]
    if points_in_ball is not None:
        arrays["points.npy"] = np.moveaxis(points_in_ball, 0, -1)
    return {**kinds[0], "points": None if points_in_ball is None else "points.npy", "reals": kinds[1]}


def _grid_of(statement: check.Statement, derived: Array) -> float:
    """Return the grid of the claims. Outputs may have any unit: their grid follows their size."""
    bounded = _bounded(statement)
    if isinstance(bounded, check.Decision):
        return _CLAIM_GRID
    size = abs(float(bounded.middle)) + float(np.abs(derived).max())
    return _CLAIM_GRID * max(_LEAST_GRID_SCALE, 2.0 ** math.frexp(size)[1])


def _round_down(values: Array, grid: float) -> Array:
    """Round down to multiples of the grid, with one step to spare."""
    rounded: Array = np.floor(values / grid - 1) * grid
    return rounded
