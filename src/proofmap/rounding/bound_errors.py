"""What rounding may cost a bound, known beforehand and added outward.

One model of computation covers the network over the real numbers and the network as float32 runs it, in any order of
summation, with fused multiply-adds or without: every value is exactly what its operation makes of the values before it,
plus an unknown η with |η| <= R (`single`). Over the reals η = 0. Copies, ReLU, |x| and maxima do not round. TF32,
bfloat16, Winograd's and FFT convolutions sum other products, and are not covered.

A form <A, y> that passes y = L(x) + b + η becomes <fl(L'(A)), x> + fl(<A, b>), and with m the largest |x|

    |<A, y> - that| <= <|A|, R> + γ' <|A|, |L| m> + γ'' <|A|, |b|>,

γ' for the products that are summed to a coefficient in the precision at work, and γ'' for those of <A, b>, in blocks
(`sums`), and for adding the offsets of all nodes: for every node one tensor T, and one product <|A|, T> of a row. Where
lines follow, T moves them outward, and rows pay nothing of their own. Through wide convolutions some forms go in
float64, where that costs little: then γ' is that of one rounding. Relaxations are lines through rounded numbers, each
off by some roundings of |slope| |x| + |bias| + |y|, and these too are one tensor (`rules.sizes`). Sums of what is not
negative are made larger by their own error.
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

_MORE = 4  # roundings of a node's value beside its products: its bias, a weight that was cast, and what reads it
_LINES = 32  # roundings of a line's numbers, and of what is multiplied by them
_INPUT = 16  # of the ends of a ball, and of the sums over it
_LARGEST = 2.0**-6  # of the range of a type: beyond that sums may leave it
_WIDE = 256  # products of a coefficient from which on dense forms are in float64
_NARROWS = 8  # times as many channels as it reads: a convolution whose windows are in float64 too


class Rounding:
    """The radii T of what is known on some cases: those of a ball serve its members."""

    def __init__(self, knowledge: BoundState, of: Rounding | None = None, case: Tensor | None = None) -> None:
        self._known, self._of, self._case = ref(knowledge), of, case  # weak: what is known holds its radii
        self._kept = None if of is None else of._knowledge  # of the ball, as long as radii of its members are asked for
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
        self._depth = 2 * len(knowledge.graph.nodes) + 8  # offsets, and costs, that are added up on the way

    @property
    def _knowledge(self) -> BoundState:
        knowledge = self._known()
        assert knowledge is not None
        return knowledge

    def radius(self, node: Node, products: int) -> tuple[Tensor | None, Tensor]:
        """(C, *shape): what a row's coefficient of a value costs, None: nothing; and (C,) what every row does.

        products: of those that are summed to a coefficient behind a linear operation.
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
        """R + γ' |L| m + γ'' |b|."""
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
        """R and |L| m of a linear operation, (C, *shape) each, and how many products it adds up at most, (C,)."""
        if node.name not in self._runs:
            if self._of is not None:
                run, size, count = self._of._run(node)
                self._runs[node.name] = run[self._case], size[self._case], count[self._case]
            else:
                inputs = [self._knowledge.interval(name) for name in node.inputs]
                signed = not self._knowledge.arithmetic  # intervals are wider than that by far
                self._runs[node.name] = run_of(node, inputs, self._up, self.unit, signed=signed)
        return self._runs[node.name]

    def _products(self, node: Node, form: Form) -> int:
        """How many products are summed to a coefficient behind the node, in the precision at work; none of dense forms
        that go through in float64.
        """
        if not isinstance(RULES[node.op], Linear) or self._in_double(node, form):
            return 0
        _, readers = terms(node, self._shapes(node))
        return readers

    def _in_double(self, node: Node, form: Form) -> bool:
        """Whether a form goes through in float64: of wide convolutions, where few rows do, or few channels are left."""
        if node.op != "conv" or self.unit != SINGLE or terms(node, self._shapes(node))[1] <= _WIDE:
            return False
        assert node.weight is not None
        if isinstance(form, Windows):
            return len(node.weight) >= _NARROWS * node.weight.shape[1] and not differentiated(form.values)
        return not differentiated(form)

    def pull(self, node: Node, form: AnyForm) -> tuple[tuple[AnyForm, ...], Tensor | None]:
        """What the rule of a linear operation makes of a form."""
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
        """The roundings of a sum of so many products, as `sums` makes it; what `Alpha` opens is summed in float64."""
        return roundings(count) if self.unit == SINGLE else count

    def outward(self, node: Node, relaxation: Pulled, form: Form) -> tuple[Pulled, dict[str, int]]:
        """Lines moved by what rows pay that pass the node, and the linear operation before it, where nothing else reads
        that; and for how many products both are paid. |A⁺ u + A⁻ l| T = A⁺ |u| T - A⁻ |l| T: each line pays its part.
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
        """(C, *shape): what interval arithmetic adds behind a linear operation; what it is on a ball holds on members,
        whose intervals are parts of the ball's.
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
        """Of a sum of two: it rounds by a part of itself, and has the sign of what it is without rounding."""
        ends = []
        for sign, a, b in ((-1, one.lower, other.lower), (1, one.upper, other.upper)):
            end = a + b
            radius = (gamma(_MORE, SINGLE) + gamma(_MORE, self.unit)) * end.abs() + 2 * FLUSHED * (end != 0)
            ends.append(end + sign * self._up(radius, _MORE))
        return Interval(*ends)

    def pushed(self, node: Node, sizes: list[Tensor]) -> Tensor:
        """(C, *shape): what affine forms of the input are off by behind a node, both of whose sides amount to so much
        before it, Σ |w_i| (|x_i| + |δ_i|) + |b|: as a form that is pulled costs, and its own numbers.
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
        """The input's interval: the ends of the balls are rounded too."""
        low, high = self._knowledge.balls.box()
        radius = self._up(gamma(_INPUT, self.unit) * self.reach, 1) + FLUSHED  # a denormal input may count as 0
        return Interval(low - radius, high + radius)

    @property
    def reach(self) -> Tensor:
        """|x| + |δ|, no less than any |x + δ|."""
        return self._knowledge.balls.x.abs() + self._swing

    @property
    def _swing(self) -> Tensor:
        return torch.maximum(-self._knowledge.balls.lower, self._knowledge.balls.upper)

    def passing(self, node: Node, form: Form, owner: Tensor, *, first: bool, paid: int) -> Tensor:
        """(K,): what is added to the biases of rows that pass the node, which is the first that they do or not; paid:
        the lines of what reads it have it for so many products, -1: they do not.
        """
        products = self._products(node, form)
        if not first or products == 0:
            return self._passed(node, form, owner, products, paid)
        counts = _nonzero(form).clamp(max=products)
        cost = torch.zeros_like(counts, dtype=self._knowledge.balls.x.dtype)
        for count in counts.unique().tolist():  # no row depends on the others
            cost = torch.where(counts == count, self._passed(node, form, owner, count, paid), cost)
        return cost

    def _passed(self, node: Node, form: Form, owner: Tensor, products: int, paid: int) -> Tensor:
        """The same for so many products, (K,) or (1,)."""
        radius, every = self.radius(node, products)
        cost = every if len(every) == 1 else every[owner]
        return cost if paid >= products or radius is None else cost + self._cost(radius, form, owner)

    def joined(self, name: str, form: Form, owner: Tensor) -> Tensor:
        """The same where two forms of a value were added up."""
        node = self._knowledge.graph[name]
        size = self.reach if node.op == "input" else magnitude(self._knowledge.interval(name))
        return self._cost(self._up(gamma(_MORE, self.unit) * size + self._tiny, self._added(node.size)), form, owner)

    def arriving(self, form: Form, owner: Tensor) -> Tensor:
        """The same where rows end at the input and are maximised over a ball, or its members."""
        width = (form.values if isinstance(form, Windows) else form)[0].numel() if len(form) else 0
        centre = gamma(self._added(width) + _INPUT + self._depth, self.unit) * self.reach
        swing = gamma(4 * width + _INPUT + self._depth, self.unit) * self._swing
        return self._cost(self._up(centre + swing + FLUSHED, width), form, owner) + self._tiny

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
        part = gamma(self._added(node.size) + _MORE + self._depth, self.unit)
        return self._cost(self._up(part * size + self._tiny, self._added(node.size)), form, owner)

    def _cost(self, radius: Tensor, form: Form, owner: Tensor) -> Tensor:
        values = form.values if isinstance(form, Windows) else form
        return dot(values.abs(), at_rows(radius, form, owner))


def _nonzero(form: Form) -> Tensor:
    """(K,): the coefficients of each row that are not 0, at most: the next power of 2, so that few counts differ."""
    values = form.values if isinstance(form, Windows) else form
    exponent = torch.frexp((values.flatten(1).count_nonzero(1) - 1).double()).exponent
    return 2 ** exponent.long()
