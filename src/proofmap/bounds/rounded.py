"""What rounding may cost a bound, known beforehand and added outward.

One model of computation covers the network over the real numbers and the network as float32 runs it, in any order of
summation, with fused multiply-adds or without: every value is exactly what its operation makes of the values before it,
plus an unknown η with |η| <= R. With n products to an entry and u = 2⁻²⁴,

    R = γ (|L| m + |b|) + (n + 1) 2⁻¹²⁵,    γ = n u / (1 - n u),    m the largest |x| of what L reads

(Higham 2002, chapter 3; the last term is for what underflows). Over the reals η = 0. Copies, ReLU, |x| and maxima do
not round. TF32, bfloat16, Winograd's and FFT convolutions sum other products, and are not covered.

A form <A, y> that passes y = L(x) + b + η becomes <fl(L'(A)), x> + fl(<A, b>), and

    |<A, y> - that| <= <|A|, R> + γ' <|A|, |L| m> + γ'' <|A|, |b|>,

with γ' for the products that are summed to a coefficient in the precision at work, and γ'' for those of <A, b>, and for
adding the offsets of all nodes: for every node one tensor T, and one product <|A|, T> of a row. The same T widens
interval arithmetic. Relaxations are lines through rounded numbers, each off by some roundings of |slope| |x| + |bias|
+ |y|, and these too are one tensor (`rules.sizes`). Sums of what is not negative are made larger by their own error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from proofmap.errors import BoundError
from proofmap.graph.ir import Graph, Node
from proofmap.rules import RULES, Form, Interval, Linear
from proofmap.rules.lines import at_rows, dot
from proofmap.rules.sizes import COPIES, SIZES, Sizes, magnitude, terms
from proofmap.windows import Windows

if TYPE_CHECKING:
    from proofmap.bounds.knowledge import Knowledge

__all__ = ["Rounding", "check_covered", "covered", "gamma", "unit_of"]

_SINGLE = 2.0**-24  # the unit roundoff of float32
_FLUSHED = 2.0**-125  # twice what underflow in float32 loses at most, where denormals count as 0
_MORE = 4  # roundings of a node's value beside its products: its bias, a weight that was cast, and what reads it
_LINES = 32  # roundings of a line's numbers, and of what is multiplied by them
_INPUT = 16  # of the ends of a ball, and of the sums over it
_LARGEST = 2.0**-6  # of the range of a type: beyond that sums may leave it


def unit_of(dtype: torch.dtype) -> float:
    """The unit roundoff."""
    return torch.finfo(dtype).eps / 2


def gamma(count: int, unit: float) -> float:
    """What a sum of so many products may be off by, as a part of the sum of their absolute values."""
    if count * unit > 0.25:
        raise BoundError(
            f"undecided, rounding: sums of {count} numbers in a precision of {unit:.1g} have no bound: take x.double()"
        )
    return count * unit / (1 - count * unit)


def covered(graph: Graph) -> bool:
    """Whether the roundings of all its operations are known."""
    return all(map(_known, graph.nodes))


def _known(node: Node) -> bool:
    return not node.inputs or isinstance(RULES.get(node.op), Linear) or node.op in SIZES


def check_covered(graph: Graph) -> None:
    """Refuse operations whose roundings are not known."""
    for node in graph.nodes:
        if not _known(node):
            known = ", ".join(name for name in SIZES if name != "larger")
            raise BoundError(
                f"no rigorous bounds for {node.op} (node {node.name!r}): the roundings of linear operations, {known} "
                "are known; leave rigorous out"
            )


class Rounding:
    """The radii T of what is known on some cases: those of a ball serve its members."""

    def __init__(self, knowledge: Knowledge, of: Rounding | None = None, case: Tensor | None = None) -> None:
        self._knowledge, self._of, self._case = knowledge, of, case
        dtype = knowledge.balls.x.dtype
        self.unit = unit_of(dtype)
        self._tiny, self._most = torch.finfo(dtype).tiny, torch.finfo(dtype).max * _LARGEST
        self._radii: dict[str, tuple[Tensor | None, Tensor]] = {}
        self._depth = 2 * len(knowledge.graph.nodes) + 8  # offsets, and costs, that are added up on the way

    def radius(self, node: Node) -> tuple[Tensor | None, Tensor]:
        """(C, *shape): what a row's coefficient of a value costs, None: nothing; and (C,) what every row does."""
        if node.name not in self._radii:
            if self._of is not None:
                radius, every = self._of.radius(node)
                self._radii[node.name] = radius if radius is None else radius[self._case], every[self._case]
            else:
                self._radii[node.name] = self._new(node)
        return self._radii[node.name]

    def _new(self, node: Node) -> tuple[Tensor | None, Tensor]:
        inputs = [self._knowledge.interval(name) for name in node.inputs]
        sums = sum((magnitude(x).flatten(1).sum(1) for x in inputs), torch.zeros_like(inputs[0].lower.flatten(1)[:, 0]))
        every = 16 * self._tiny * (node.size + 1) * (1 + sums)
        if isinstance(RULES[node.op], Linear):
            radius = self._linear(node, inputs)
        else:
            sizes: Sizes = SIZES[node.op](node, *inputs)
            radius = gamma(_LINES + self._depth, self.unit) * sizes.slopes
            radius = radius + gamma(node.size + _LINES + self._depth, self.unit) * sizes.biases
            if sizes.run is not None:
                radius = radius + gamma(_MORE, _SINGLE) * sizes.run + _FLUSHED
        return radius if radius is None else self._up(radius, node.size), every

    def _linear(self, node: Node, inputs: list[Interval]) -> Tensor | None:
        """κ (|L| m) + κ' |b|: what the network rounds, and what passing it does."""
        rule = RULES[node.op]
        assert isinstance(rule, Linear)
        read, readers = terms(node, tuple(self._knowledge.graph[name].shape for name in node.inputs))
        size = self._up(rule.magnitude(node, *map(magnitude, inputs)), read)
        if node.op in COPIES:
            once = rule.moves(node) or node.op == "concat"
            return None if once else gamma(readers + _MORE, self.unit) * size
        folded = node.folded.roundings if node.folded is not None else 0
        run = gamma(read + folded + 2 * _MORE, _SINGLE)
        radius = (run + gamma(2 * max(read, readers) + 4 * _MORE + self._depth, self.unit)) * size
        constants = node.folded.constants if node.folded is not None else node.bias
        if constants is not None:
            summed = node.size + read + 4 * _MORE + self._depth
            radius = radius + (run + gamma(summed, self.unit)) * constants.abs()
        return radius + (read + folded + 1) * _FLUSHED

    def _up(self, value: Tensor, count: int) -> Tensor:
        """A sum of `count` numbers of which none is negative, no smaller than without rounding; infinite where it is so
        large that what is made of it may leave the range.
        """
        value = value * (1 + 2 * gamma(count + _MORE + self._depth, self.unit))
        return torch.where(value <= self._most, value, torch.inf)

    def widened(self, node: Node, inputs: list[Interval]) -> Interval:
        """The node's interval by interval arithmetic, with all roundings."""
        if node.op in COPIES:
            rule = RULES[node.op]
            assert isinstance(rule, Linear)
            lower, upper = (rule.apply(node, *ends) for ends in zip(*((x.lower, x.upper) for x in inputs), strict=True))
            return Interval(lower, upper)
        value = RULES[node.op].interval(node, *inputs)
        if isinstance(RULES[node.op], Linear):
            radius, _ = self.radius(node)
            assert radius is not None
            return Interval(value.lower - radius, value.upper + radius)
        sizes: Sizes = SIZES[node.op](node, *inputs)
        if sizes.ends is None:
            return value
        radius = self._up(gamma(_LINES, self.unit) * sizes.ends, 1)
        if sizes.run is not None:
            radius = radius + self._up(gamma(_MORE, _SINGLE) * sizes.run + _FLUSHED, 1)
        return Interval(value.lower - radius, value.upper + radius)

    def pushed(self, node: Node, sizes: list[Tensor]) -> Tensor:
        """(C, *shape): what affine forms of the input are off by behind a node, both of whose sides amount to so much
        before it, Σ |w_i| (|x_i| + |δ_i|) + |b|: as a form that is pulled costs, and its own numbers.
        """
        rule = RULES[node.op]
        if isinstance(rule, Linear):
            read, _ = terms(node, tuple(self._knowledge.graph[name].shape for name in node.inputs))
            size = self._up(rule.magnitude(node, *sizes), read)
        else:
            read, reached = 1, SIZES[node.op](node, *(Interval(-one, one) for one in sizes))
            size = reached.slopes + reached.biases
        radius, every = self.radius(node)
        cost = self._up(gamma(4 * read + _LINES + self._depth, self.unit) * size, 1)
        cost = cost + every.view(-1, *[1] * len(node.shape))
        return cost if radius is None else cost + radius

    def box(self) -> Interval:
        """The input's interval: the ends of the balls are rounded too."""
        low, high = self._knowledge.balls.box()
        radius = self._up(gamma(_INPUT, self.unit) * self.reach, 1) + self._tiny
        return Interval(low - radius, high + radius)

    @property
    def reach(self) -> Tensor:
        """|x| + |δ|, no less than any |x + δ|."""
        balls = self._knowledge.balls
        return balls.x.abs() + torch.maximum(-balls.lower, balls.upper)

    def passing(self, node: Node, form: Form, owner: Tensor) -> Tensor | float:
        """(K,): what is added to the biases of rows that pass the node."""
        radius, every = self.radius(node)
        return (every if len(every) == 1 else every[owner]) + (
            0.0 if radius is None else self._cost(radius, form, owner)
        )

    def joined(self, name: str, form: Form, owner: Tensor) -> Tensor:
        """The same where two forms of a value were added up."""
        node = self._knowledge.graph[name]
        size = self.reach if node.op == "input" else magnitude(self._knowledge.interval(name))
        return self._cost(self._up(gamma(_MORE, self.unit) * size + self._tiny, node.size), form, owner)

    def arriving(self, form: Form, owner: Tensor) -> Tensor:
        """The same where rows end at the input and are maximised over a ball, or its members."""
        width = (form.values if isinstance(form, Windows) else form)[0].numel() if len(form) else 0
        radius = self._up(gamma(4 * width + _INPUT + self._depth, self.unit) * self.reach + self._tiny, width)
        return self._cost(radius, form, owner) + self._tiny

    def of_forms(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Σ |w_i| (|x_i| + |δ_i|) + |b| of affine forms (C, d, *shape) and (C, *shape)."""
        reach = self.reach.flatten(1)
        sums = torch.einsum("cd...,cd->c...", weight.abs(), reach)
        return self._up(sums + bias.abs(), reach.shape[1])

    def summed(self, sizes: Tensor, count: int) -> Tensor:
        """What sums of so many numbers that amount to `sizes` are off by, together with their concretisation."""
        terms_ = count + 4 * self._knowledge.balls.x[0].numel() + _INPUT + self._depth
        return self._up(gamma(terms_, self.unit) * sizes + self._tiny * terms_, 1)

    def stopped(self, name: str, form: Form, owner: Tensor) -> Tensor:
        """The same where rows end at a node and its entries stand at the ends of their intervals."""
        node = self._knowledge.graph[name]
        size = magnitude(self._knowledge.interval(name))
        part = gamma(2 * node.size + _MORE + self._depth, self.unit)
        return self._cost(self._up(part * size + self._tiny, node.size), form, owner)

    def _cost(self, radius: Tensor, form: Form, owner: Tensor) -> Tensor:
        values = form.values if isinstance(form, Windows) else form
        return dot(values.abs(), at_rows(radius, form, owner))
