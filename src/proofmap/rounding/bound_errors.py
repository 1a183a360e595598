"""A-priori rounding errors of back-substituted bounds (CROWN), added outward.

The error model is that of Higham (2002, chapters 2 and 3). It covers the network over the real numbers and the network
as float32 runs it, for any order of summation, with or without fused multiply-adds. Every value equals the exact result
of its operation on the values before it, plus an unknown η with |η| <= R (`float32_sums`). Over the real numbers η = 0.
Copies, ReLU, |x| and maxima do not round. TF32, bfloat16, and Winograd or FFT convolutions are not covered, because
they add up other products.

Let γ_n = n u / (1 - n u), with u the unit roundoff of the type in which the bounds are computed. A form <A, y> that
passes y = L(x) + b + η becomes <fl(L'(A)), x> + fl(<A, b>). With m the largest |x|, its error is at most

    <|A|, R> + γ_p <|A|, |L| m> + γ_q <|A|, |b|>.

Here p counts the products that are added up to one coefficient. q counts the additions that a product of <A, b> passes
in `block_sums`, and those of adding the offsets of all nodes. Both counts include a few more rounding errors (the
constants below). So every node has one tensor T, and a row pays the error <|A|, T>. Where relaxation lines read the
node, they are moved outward by T, and rows that pass them pay nothing more. Dense forms pass wide convolutions in
float64; p then counts the rounding back to float32 alone.

A relaxation line is computed from rounded numbers. Its error is a small multiple of |slope| |x| + |bias| + |y|, which
is one tensor as well (`magnitudes`). Sums of nonnegative terms are enlarged by their own error bound.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import ref

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.receptive_fields import Shapes
from proofmap.inputs.window_forms import Windows
from proofmap.rounding.float32_sums import FLUSHED, SINGLE, computed, constants_of, gamma, gammas, run_of, unit_of
from proofmap.rounding.magnitudes import COPIES, SIZES, Sizes, magnitude, terms
from proofmap.rules import RULES, Form, Interval, Linear
from proofmap.rules.rule import AnyForm, Pulled, differentiated
from proofmap.rules.scalar_lines import Lines, at_rows
from proofmap.runtime.block_sums import dot, roundings

if TYPE_CHECKING:
    from proofmap.bounds.state import BoundState

__all__ = ["Rounding"]

_MORE = 4  # rounding errors of a value beside its products: the bias, a weight that was cast, one more operation
_LINES = 32  # rounding errors of a line's slope and bias, and of the products with them
_INPUT = 16  # rounding errors of a ball's endpoints, and of the sums over the ball
_LARGEST = 2.0**-6  # share of a type's range: sums of larger numbers may overflow
_WIDE = 256  # with more products per coefficient than this, dense forms pass a convolution in float64
_NARROWS = 8  # output channels per input channel from which on window forms pass it in float64 too


class Rounding:
    """Rounding error tensors T of all nodes, for the bounds of some cases.

    The members of a ball reuse the tensors of the whole ball (`of`, `case`), which are valid for every subset of it.
    """

    def __init__(self, knowledge: BoundState, of: Rounding | None = None, case: Tensor | None = None) -> None:
        self._known, self._of, self._case = ref(knowledge), of, case  # weak: the bounds own this object
        self._kept = None if of is None else of._knowledge  # keeps the ball's bounds alive
        dtype = knowledge.balls.x.dtype
        self.unit: float = unit_of(dtype)
        self._tiny, self._most = torch.finfo(dtype).tiny, torch.finfo(dtype).max * _LARGEST
        self._radii: dict[tuple[str, int], tuple[Tensor | None, Tensor]] = {}
        self._runs: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._moved: dict[tuple[str, int], tuple[Lines, Lines]] = {}
        self._widths: dict[str, Tensor] = {}
        self._double: dict[str, Node] = {}
        self._readers = Counter(name for node in knowledge.graph.nodes for name in node.inputs)
        self._readers[knowledge.graph.output] += 1
        self._depth = 2 * len(knowledge.graph.nodes) + 8  # offsets and errors that are added up on the way to the input

    @property
    def _knowledge(self) -> BoundState:
        knowledge = self._known()
        assert knowledge is not None
        return knowledge

    def radius(self, node: Node, products: int) -> tuple[Tensor | None, Tensor]:
        """Return T, (C, *shape), the error per unit of a row's coefficient (None: no error), and (C,) the error of
        every row.

        products: the number of products that are added up to one coefficient behind a linear operation.
        """
        key = node.name, products
        if key not in self._radii:
            if self._of is not None:
                radius, every = self._of.radius(node, products)
                self._radii[key] = radius if radius is None else radius[self._case], every[self._case]
            else:
                self._radii[key] = self._new(node, products)
        return self._radii[key]

    def _new(self, node: Node, products: int) -> tuple[Tensor | None, Tensor]:
        inputs = [self._knowledge.interval(name) for name in node.inputs]
        sums = sum((magnitude(x).flatten(1).sum(1) for x in inputs), torch.zeros_like(inputs[0].lower.flatten(1)[:, 0]))
        every = 16 * self._tiny * (node.size + 1) * (1 + sums)
        if isinstance(RULES[node.op], Linear):
            radius = self._linear(node, products)
        else:
            sizes: Sizes = SIZES[node.op](node, *inputs)
            radius = gamma(_LINES + self._depth, self.unit) * sizes.slopes
            radius = radius + gamma(self._added(node.size) + _LINES + self._depth, self.unit) * sizes.biases
            if sizes.run is not None:
                radius = radius + computed(sizes.run, sizes.roundings)
        return radius if radius is None else self._up(radius, self._added(node.size)), every

    def _linear(self, node: Node, products: int) -> Tensor | None:
        """Return R + γ_p |L| m + γ_q |b|; None if the operation only copies entries."""
        rule = RULES[node.op]
        assert isinstance(rule, Linear)
        run, size, _ = self._run(node)
        if node.op in COPIES:
            once = rule.moves(node) or node.op == "concat"
            return None if once else gamma(products + _MORE, self.unit) * size
        radius = run + gamma(products + 4 * _MORE, self.unit) * size
        constants = constants_of(node)
        if constants is None:
            return radius
        return radius + gamma(self._added(node.size) + 4 * _MORE + self._depth, self.unit) * constants.abs()

    def _run(self, node: Node) -> tuple[Tensor, Tensor, Tensor]:
        """Return R and |L| m of a linear operation, (C, *shape) each, and the largest number of products it adds up,
        (C,).
        """
        if node.name not in self._runs:
            if self._of is not None:
                run, size, count = self._of._run(node)
                self._runs[node.name] = run[self._case], size[self._case], count[self._case]
            else:
                inputs = [self._knowledge.interval(name) for name in node.inputs]
                signed = not self._knowledge.arithmetic  # interval arithmetic is much looser than this refinement
                self._runs[node.name] = run_of(node, inputs, self._up, self.unit, signed=signed)
        return self._runs[node.name]

    def _products(self, node: Node, form: Form) -> int:
        """Return how many products are added up to one coefficient behind the node, in the type of the bounds.

        The count is 0 for forms that pass the node in float64.
        """
        if not isinstance(RULES[node.op], Linear) or self._in_double(node, form):
            return 0
        _, readers = terms(node, self._shapes(node))
        return readers

    def _in_double(self, node: Node, form: Form) -> bool:
        """Return whether a form passes the node in float64.

        Dense forms do so through every wide convolution. Window forms do so only where the number of channels falls by
        a large factor.
        """
        if node.op != "conv" or self.unit != SINGLE or terms(node, self._shapes(node))[1] <= _WIDE:
            return False
        assert node.weight is not None
        if isinstance(form, Windows):
            return len(node.weight) >= _NARROWS * node.weight.shape[1] and not differentiated(form.values)
        return not differentiated(form)

    def pull(self, node: Node, form: AnyForm) -> tuple[tuple[AnyForm, ...], Tensor | None]:
        """Pull a form back through a linear operation, in float64 where `_in_double` says so."""
        rule = RULES[node.op]
        assert isinstance(rule, Linear)
        if self._in_double(node, form):
            if node.name not in self._double:
                assert node.weight is not None
                self._double[node.name] = replace(node, weight=node.weight.double())
            node = self._double[node.name]
        return rule.pull(node, self._shapes(node), form)

    def _shapes(self, node: Node) -> Shapes:
        return tuple(self._knowledge.graph[name].shape for name in node.inputs)

    def _added(self, count: int) -> int:
        """Return how many additions a product passes in a sum of `count` products: block sums in float32, else any
        order.
        """
        return roundings(count) if self.unit == SINGLE else count

    def outward(self, node: Node, relaxation: Pulled, form: Form) -> tuple[Pulled, dict[str, int]]:
        """Move relaxation lines outward by the errors of the rows that pass them.

        The lines also pay for the linear operation before the node, if nothing else reads it: |A⁺ u + A⁻ l| T = A⁺ |u|
        T - A⁻ |l| T, so each line pays its own part. Returns the moved lines and, for each node that is paid for, the
        number of products the payment covers.
        """
        if not isinstance(relaxation, Lines):
            return relaxation, {}
        (name,) = node.inputs
        before = self._knowledge.graph[name]
        alone = self._readers[name] == 1 and isinstance(RULES.get(before.op), Linear)
        products = self._products(before, form) if alone else -1
        key = node.name, products
        if key not in self._moved or self._moved[key][0] is not relaxation:
            passed = self.radius(before, products)[0] if alone else None
            self._moved[key] = relaxation, self._moved_by(node, relaxation, passed)
        return self._moved[key][1], {node.name: 0, name: products}

    def _moved_by(self, node: Node, lines: Lines, passed: Tensor | None) -> Lines:
        radius, _ = self.radius(node, 0)
        assert radius is not None
        above = below = radius
        if passed is not None:
            slopes = lines.upper_slope.abs(), lines.lower_slope.abs()
            more = 1 + 2 * gamma(2 * _MORE + self._depth, self.unit)
            above, below = (torch.addcmul(radius, slope, passed).mul_(more) for slope in slopes)
        lower = -below if lines.lower_bias is None else lines.lower_bias - below
        return Lines(lines.lower_slope, lower, lines.upper_slope, lines.upper_bias + above)

    def _up(self, value: Tensor, count: int) -> Tensor:
        """Return an upper bound of the exact sum, given a computed sum of `count` nonnegative numbers.

        The bound is infinite where later sums of such numbers may overflow.
        """
        value = value * (1 + 2 * gamma(count + _MORE + self._depth, self.unit))
        return torch.where(value <= self._most, value, torch.inf)

    def widened(self, node: Node, inputs: list[Interval]) -> Interval:
        """Return the node's interval by interval arithmetic, widened by all rounding errors."""
        if node.op in COPIES:
            rule = RULES[node.op]
            assert isinstance(rule, Linear)
            lower, upper = (rule.apply(node, *ends) for ends in zip(*((x.lower, x.upper) for x in inputs), strict=True))
            return Interval(lower, upper)
        value = RULES[node.op].interval(node, *inputs)
        if isinstance(RULES[node.op], Linear):
            if len(inputs) == 2 and node.op == "add":
                return self._sum(*inputs)
            radius = self._wider(node)
            return Interval(value.lower - radius, value.upper + radius)
        sizes: Sizes = SIZES[node.op](node, *inputs)
        if sizes.ends is None:
            return value
        radius = self._up(gamma(_LINES, self.unit) * sizes.ends, 1)
        if sizes.run is not None:
            radius = radius + self._up(computed(sizes.run, sizes.roundings), 1)
        return Interval(value.lower - radius, value.upper + radius)

    def _wider(self, node: Node) -> Tensor:
        """Return the error (C, *shape) of interval arithmetic behind a linear operation.

        The ball's error also holds for its members, because their intervals are subsets of the ball's.
        """
        if self._of is not None:
            return self._of._wider(node)[self._case]
        if node.name not in self._widths:
            run, size, read = self._run(node)
            constants = constants_of(node)
            if constants is not None:
                size = size + constants.abs()
            part = gammas(read + 4 * _MORE + self._depth, self.unit).view(-1, *[1] * len(node.shape))
            radius = self._up(run + part * size, _MORE)
            self._widths[node.name] = radius
        return self._widths[node.name]

    def _sum(self, one: Interval, other: Interval) -> Interval:
        """Add two intervals. A rounded sum of two numbers has the sign of the exact sum, and a relative error."""
        ends = []
        for sign, a, b in ((-1, one.lower, other.lower), (1, one.upper, other.upper)):
            end = a + b
            radius = (gamma(_MORE, SINGLE) + gamma(_MORE, self.unit)) * end.abs() + 2 * FLUSHED * (end != 0)
            ends.append(end + sign * self._up(radius, _MORE))
        return Interval(*ends)

    def pushed(self, node: Node, sizes: list[Tensor]) -> Tensor:
        """Return the error (C, *shape) of forward-propagated affine forms (both sides) behind a node.

        sizes: bounds Σ |w_i| (|x_i| + |δ_i|) + |b| of both sides before the node. The error is that of a form pulled
            back through the node, plus the rounding of the form's own coefficients.
        """
        rule = RULES[node.op]
        if isinstance(rule, Linear):
            read, _ = terms(node, self._shapes(node))
            size = self._up(rule.magnitude(node, *sizes), read)
        elif isinstance(lines := self._knowledge.relaxations[node.name], Lines):
            below = 0.0 if lines.lower_bias is None else lines.lower_bias.abs()
            slope = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs())
            read, size = 1, slope * sizes[0] + lines.upper_bias.abs() + below
        else:
            read, reached = 1, SIZES[node.op](node, *(Interval(-one, one) for one in sizes))
            size = reached.slopes + reached.biases
        radius, every = self.radius(node, terms(node, self._shapes(node))[1] if isinstance(rule, Linear) else 0)
        cost = self._up(gamma(4 * read + _LINES + self._depth, self.unit) * size, 1)
        cost = cost + every.view(-1, *[1] * len(node.shape))
        return cost if radius is None else cost + radius

    def box(self) -> Interval:
        """Return the input's interval, widened because the balls' endpoints are rounded too."""
        low, high = self._knowledge.balls.box()
        radius = self._up(gamma(_INPUT, self.unit) * self.reach, 1) + FLUSHED  # a denormal input may be flushed to 0
        return Interval(low - radius, high + radius)

    @property
    def reach(self) -> Tensor:
        """|x| + |δ|, an upper bound of every |x + δ|."""
        return self._knowledge.balls.x.abs() + self._swing

    @property
    def _swing(self) -> Tensor:
        return torch.maximum(-self._knowledge.balls.lower, self._knowledge.balls.upper)

    def passing(self, node: Node, form: Form, owner: Tensor, *, first: bool, paid: int) -> Tensor:
        """Return the error (K,) that rows gain at a node.

        first: whether the node is the first one that the rows pass.
        paid: the number of products that the reader's lines already pay for; -1: they pay nothing.
        """
        products = self._products(node, form)
        if not first or products == 0:
            return self._passed(node, form, owner, products, paid)
        counts = _nonzero(form).clamp(max=products)
        cost = torch.zeros_like(counts, dtype=self._knowledge.balls.x.dtype)
        for count in counts.unique().tolist():  # a row's error must not depend on the other rows
            cost = torch.where(counts == count, self._passed(node, form, owner, count, paid), cost)
        return cost

    def _passed(self, node: Node, form: Form, owner: Tensor, products: int, paid: int) -> Tensor:
        """Return the error of `passing` for a given number of products, (K,) or (1,)."""
        radius, every = self.radius(node, products)
        cost = every if len(every) == 1 else every[owner]
        return cost if paid >= products or radius is None else cost + self._cost(radius, form, owner)

    def joined(self, name: str, form: Form, owner: Tensor) -> Tensor:
        """Return the error (K,) of adding up two forms of one value."""
        node = self._knowledge.graph[name]
        size = self.reach if node.op == "input" else magnitude(self._knowledge.interval(name))
        return self._cost(self._up(gamma(_MORE, self.unit) * size + self._tiny, self._added(node.size)), form, owner)

    def arriving(self, form: Form, owner: Tensor) -> Tensor:
        """Return the error (K,) of maximising rows over a ball or its members at the input."""
        width = (form.values if isinstance(form, Windows) else form)[0].numel() if len(form) else 0
        centre = gamma(self._added(width) + _INPUT + self._depth, self.unit) * self.reach
        swing = gamma(4 * width + _INPUT + self._depth, self.unit) * self._swing
        return self._cost(self._up(centre + swing + FLUSHED, width), form, owner) + self._tiny

    def of_forms(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Bound Σ |w_i| (|x_i| + |δ_i|) + |b| of affine forms (C, d, *shape) and (C, *shape)."""
        reach = self.reach.flatten(1)
        sums = torch.einsum("cd...,cd->c...", weight.abs(), reach)
        return self._up(sums + bias.abs(), reach.shape[1])

    def summed(self, sizes: Tensor, count: int) -> Tensor:
        """Return the error of sums of `count` forms bounded by `sizes`, including that of their concretisation."""
        terms_ = count + 4 * self._knowledge.balls.x[0].numel() + _INPUT + self._depth
        return self._up(gamma(terms_, self.unit) * sizes + self._tiny * terms_, 1)

    def stopped(self, name: str, form: Form, owner: Tensor) -> Tensor:
        """Return the error (K,) of concretising rows at a node, with its entries at the endpoints of their
        intervals.
        """
        node = self._knowledge.graph[name]
        size = magnitude(self._knowledge.interval(name))
        part = gamma(self._added(node.size) + _MORE + self._depth, self.unit)
        return self._cost(self._up(part * size + self._tiny, self._added(node.size)), form, owner)

    def _cost(self, radius: Tensor, form: Form, owner: Tensor) -> Tensor:
        values = form.values if isinstance(form, Windows) else form
        return dot(values.abs(), at_rows(radius, form, owner))


def _nonzero(form: Form) -> Tensor:
    """Bound the number of nonzero coefficients of each row (K,) by the next power of 2, so that few counts differ."""
    values = form.values if isinstance(form, Windows) else form
    exponent = torch.frexp((values.flatten(1).count_nonzero(1) - 1).double()).exponent
    return 2 ** exponent.long()
