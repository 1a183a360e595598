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

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import ROUNDED
from proofmap.graph.receptive_fields import Shapes
from proofmap.inputs.window_forms import WindowForms
from proofmap.rounding.exact_arithmetic import ExactArithmetic
from proofmap.rounding.float32_sums import FLOAT32_UNIT, UNDERFLOW, gamma
from proofmap.rounding.magnitudes import COPIES, MAGNITUDES, Magnitudes, magnitude, product_counts
from proofmap.rounding.node_errors import LINE_ERRORS, VALUE_ERRORS, NodeErrors
from proofmap.rounding.norm_errors import value_error
from proofmap.rules import RULES, Form, Interval, Linear
from proofmap.rules.rule import AnyForm, Pullable, differentiated
from proofmap.rules.scalar_lines import Lines, at_rows
from proofmap.runtime.block_sums import dot

if TYPE_CHECKING:
    from proofmap.bounds.state import BoundState

_INPUT_ERRORS = 16  # rounding errors of a ball's endpoints, and of the sums over the ball
_FLOAT64_MIN_PRODUCTS = 256  # with more products per coefficient than this, dense forms pass a convolution in float64
_FLOAT64_CHANNEL_RATIO = 8  # output channels per input channel from which on window forms pass it in float64 too


class RoundingErrors(ExactArithmetic):
    """Rounding errors of rows, lines, intervals and affine forms, for the bounds of some cases.

    `NodeErrors` has the tensors T of the nodes. The members of a ball reuse those of the whole ball (`of`, `case`).
    """

    def __init__(self, state: BoundState, of: RoundingErrors | None = None, case: Tensor | None = None) -> None:
        self._nodes: NodeErrors = NodeErrors(state, None if of is None else of._nodes, case)
        self._moved_lines: dict[tuple[str, int], tuple[Lines, Lines]] = {}
        self._float64_nodes: dict[str, Node] = {}
        self._readers = Counter(name for node in state.graph.nodes for name in node.inputs)
        self._readers[state.graph.output] += 1

    def for_members(self, state: BoundState, case: Tensor) -> RoundingErrors:
        return RoundingErrors(state, self, case)

    def _product_count(self, node: Node, form: Form) -> int:
        """Return how many products are added up to one coefficient behind the node, in the type of the bounds.

        The count is 0 for forms that pass the node in float64.
        """
        if not isinstance(RULES[node.op], Linear) or self._in_double(node, form):
            return 0
        _, readers = product_counts(node, self._nodes.shapes(node))
        return readers

    def _in_double(self, node: Node, form: Form) -> bool:
        """Return whether a form passes the node in float64.

        Dense forms do so through every wide convolution. Window forms do so only where the number of channels falls by
        a large factor.
        """
        if (
            node.op != "conv"
            or self._nodes.unit != FLOAT32_UNIT
            or product_counts(node, self._nodes.shapes(node))[1] <= _FLOAT64_MIN_PRODUCTS
        ):
            return False
        assert node.weight is not None
        if isinstance(form, WindowForms):
            return len(node.weight) >= _FLOAT64_CHANNEL_RATIO * node.weight.shape[1] and not differentiated(form.values)
        return not differentiated(form)

    def pull(self, node: Node, shapes: Shapes, form: AnyForm) -> tuple[tuple[AnyForm, ...], Tensor | None]:
        """Pull a form back through a linear operation, in float64 where `_in_double` says so."""
        if self._in_double(node, form):
            if node.name not in self._float64_nodes:
                assert node.weight is not None
                self._float64_nodes[node.name] = replace(node, weight=node.weight.double())
            node = self._float64_nodes[node.name]
        return super().pull(node, shapes, form)

    def move_outward(self, node: Node, relaxation: Pullable, form: Form) -> tuple[Pullable, dict[str, int]]:
        """Move relaxation lines outward by the errors of the rows that pass them.

        The lines also pay for the linear operation before the node, if nothing else reads it: |A⁺ u + A⁻ l| T = A⁺ |u|
        T - A⁻ |l| T, so each line pays its own part. Returns the moved lines and, for each node that is paid for, the
        number of products the payment covers.
        """
        if not isinstance(relaxation, Lines):
            return relaxation, {}
        (name,) = node.inputs
        before = self._nodes.state.graph[name]
        alone = self._readers[name] == 1 and isinstance(RULES.get(before.op), Linear)
        products = self._product_count(before, form) if alone else -1
        key = node.name, products
        if key not in self._moved_lines or self._moved_lines[key][0] is not relaxation:
            passed = self._nodes.node_error(before, products)[0] if alone else None
            self._moved_lines[key] = relaxation, self._move_lines(node, relaxation, passed)
        return self._moved_lines[key][1], {node.name: 0, name: products}

    def _move_lines(self, node: Node, lines: Lines, passed: Tensor | None) -> Lines:
        radius, _ = self._nodes.node_error(node, 0)
        assert radius is not None
        above = below = radius
        if passed is not None:
            slopes = lines.upper_slope.abs(), lines.lower_slope.abs()
            more = 1 + 2 * self._nodes.gamma(2 * VALUE_ERRORS)
            above, below = (torch.addcmul(radius, slope, passed).mul_(more) for slope in slopes)
        lower = -below if lines.lower_bias is None else lines.lower_bias - below
        return Lines(lines.lower_slope, lower, lines.upper_slope, lines.upper_bias + above)

    def interval_arithmetic(self, node: Node, inputs: list[Interval]) -> Interval:
        """Return the node's interval by interval arithmetic, widened by all rounding errors."""
        found = self._own_interval(node, inputs)
        if ROUNDED not in node.attributes:
            return found
        room = self._nodes.counterparts_error(node) + gamma(VALUE_ERRORS, self._nodes.unit) * magnitude(found)
        room = self._nodes.round_up(room, 2)
        return Interval(found.lower - room, found.upper + room)

    def _own_interval(self, node: Node, inputs: list[Interval]) -> Interval:
        """Return the interval of a node that is no difference of two others."""
        if node.op in COPIES:
            rule = RULES[node.op]
            assert isinstance(rule, Linear)
            lower, upper = (rule.apply(node, *ends) for ends in zip(*((x.lower, x.upper) for x in inputs), strict=True))
            return Interval(lower, upper)
        value = RULES[node.op].interval(node, *inputs)
        if isinstance(RULES[node.op], Linear):
            if len(inputs) == 2 and node.op == "add":
                return self._add_intervals(*inputs)
            radius = self._nodes.interval_error(node)
            return Interval(value.lower - radius, value.upper + radius)
        sizes: Magnitudes = MAGNITUDES[node.op](node, *inputs)
        if sizes.endpoint is None:
            return value
        radius = gamma(LINE_ERRORS + sizes.terms, self._nodes.unit) * sizes.endpoint
        radius = radius + value_error(self._nodes.state.graph, node, sizes, self._nodes.state.interval)
        radius = self._nodes.round_up(radius, 1 + sizes.terms)
        lower, upper = (value.lower - radius).clamp(min=sizes.least), (value.upper + radius).clamp(max=sizes.most)
        return Interval(lower, upper)

    def _add_intervals(self, one: Interval, other: Interval) -> Interval:
        """Add two intervals. A rounded sum of two numbers has the sign of the exact sum, and a relative error."""
        ends = []
        for sign, a, b in ((-1, one.lower, other.lower), (1, one.upper, other.upper)):
            end = a + b
            radius = (
                gamma(VALUE_ERRORS, FLOAT32_UNIT) + gamma(VALUE_ERRORS, self._nodes.unit)
            ) * end.abs() + 2 * UNDERFLOW * (end != 0)
            ends.append(end + sign * self._nodes.round_up(radius, VALUE_ERRORS))
        return Interval(*ends)

    def forward_error(self, node: Node, sizes: list[Tensor]) -> Tensor:
        """Return the error (C, *shape) of forward-propagated affine forms (both sides) behind a node.

        sizes: bounds Σ |w_i| (|x_i| + |δ_i|) + |b| of both sides before the node. The error is that of a form pulled
            back through the node, plus the rounding of the form's own coefficients.
        """
        rule = RULES[node.op]
        if isinstance(rule, Linear):
            read, _ = product_counts(node, self._nodes.shapes(node))
            size = self._nodes.round_up(rule.magnitude(node, *sizes), read)
        elif isinstance(lines := self._nodes.state.relaxations[node.name], Lines):
            below = 0.0 if lines.lower_bias is None else lines.lower_bias.abs()
            slope = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs())
            read, size = 1, slope * sizes[0] + lines.upper_bias.abs() + below
        else:  # lines are found on the intervals, and read forms of these sizes
            reach = [
                torch.maximum(magnitude(self._nodes.state.interval(i)), r)
                for i, r in zip(node.inputs, sizes, strict=True)
            ]
            reached = MAGNITUDES[node.op](node, *(Interval(-one, one) for one in reach))
            read, size = 1 + reached.terms, reached.slopes + reached.biases
        radius, every = self._nodes.node_error(
            node, product_counts(node, self._nodes.shapes(node))[1] if isinstance(rule, Linear) else 0
        )
        cost = self._nodes.round_up(self._nodes.gamma(4 * read + LINE_ERRORS) * size, 1)
        cost = cost + every.view(-1, *[1] * len(node.shape))
        return cost if radius is None else cost + radius

    def input_error(self) -> Tensor:
        """Return the error of the balls' endpoints. A denormal input may be flushed to 0."""
        return self._nodes.round_up(gamma(_INPUT_ERRORS, self._nodes.unit) * self.input_magnitude, 1) + UNDERFLOW

    @property
    def input_magnitude(self) -> Tensor:
        """|x| + |δ|, an upper bound of every |x + δ|."""
        return self._nodes.state.balls.x.abs() + self._perturbation

    @property
    def _perturbation(self) -> Tensor:
        return torch.maximum(-self._nodes.state.balls.lower, self._nodes.state.balls.upper)

    def row_error(self, node: Node, form: Form, owner: Tensor, *, first: bool, paid_products: int) -> Tensor:
        """Return the error (K,) that rows gain at a node.

        first: whether the node is the first one that the rows pass.
        paid_products: the number of products that the reader's lines already pay for; -1: they pay nothing.
        """
        products = self._product_count(node, form)
        if not first or products == 0:
            return self._error_for_products(node, form, owner, products, paid_products)
        counts = _bound_nonzero(form).clamp(max=products)
        cost = torch.zeros_like(counts, dtype=self._nodes.state.balls.x.dtype)
        for count in counts.unique().tolist():  # a row's error must not depend on the other rows
            cost = torch.where(counts == count, self._error_for_products(node, form, owner, count, paid_products), cost)
        return cost

    def _error_for_products(self, node: Node, form: Form, owner: Tensor, products: int, paid_products: int) -> Tensor:
        """Return the error of `row_error` for a given number of products, (K,) or (1,)."""
        radius, every = self._nodes.node_error(node, products)
        cost = every if len(every) == 1 else every[owner]
        return cost if paid_products >= products or radius is None else cost + self._weighted_error(radius, form, owner)

    def sum_error(self, name: str, form: Form, owner: Tensor) -> Tensor:
        """Return the error (K,) of adding up two forms of one value."""
        node = self._nodes.state.graph[name]
        size = self.input_magnitude if node.op == "input" else magnitude(self._nodes.state.interval(name))
        return self._weighted_error(
            self._nodes.round_up(
                gamma(VALUE_ERRORS, self._nodes.unit) * size + self._nodes.tiny, self._nodes.additions(node.size)
            ),
            form,
            owner,
        )

    def concretisation_error(self, form: Form, owner: Tensor) -> Tensor:
        """Return the error (K,) of maximising rows over a ball or its members at the input."""
        width = (form.values if isinstance(form, WindowForms) else form)[0].numel() if len(form) else 0
        centre = self._nodes.gamma(self._nodes.additions(width) + _INPUT_ERRORS) * self.input_magnitude
        swing = self._nodes.gamma(4 * width + _INPUT_ERRORS) * self._perturbation
        return (
            self._weighted_error(self._nodes.round_up(centre + swing + UNDERFLOW, width), form, owner)
            + self._nodes.tiny
        )

    def form_magnitudes(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Bound Σ |w_i| (|x_i| + |δ_i|) + |b| of affine forms (C, d, *shape) and (C, *shape)."""
        reach = self.input_magnitude.flatten(1)
        sums = torch.einsum("cd...,cd->c...", weight.abs(), reach)
        return self._nodes.round_up(sums + bias.abs(), reach.shape[1])

    def form_error(self, sizes: Tensor, count: int) -> Tensor:
        """Return the error of sums of `count` forms bounded by `sizes`, including that of their concretisation."""
        terms_ = count + 4 * self._nodes.state.balls.x[0].numel() + _INPUT_ERRORS + self._nodes.offset_additions
        return self._nodes.round_up(gamma(terms_, self._nodes.unit) * sizes + self._nodes.tiny * terms_, 1)

    def interval_concretisation_error(self, name: str, form: Form, owner: Tensor) -> Tensor:
        """Return the error (K,) of concretising rows at a node, with its entries at the endpoints of their
        intervals.
        """
        node = self._nodes.state.graph[name]
        size = magnitude(self._nodes.state.interval(name))
        part = self._nodes.gamma(self._nodes.additions(node.size) + VALUE_ERRORS)
        return self._weighted_error(
            self._nodes.round_up(part * size + self._nodes.tiny, self._nodes.additions(node.size)), form, owner
        )

    def _weighted_error(self, radius: Tensor, form: Form, owner: Tensor) -> Tensor:
        values = form.values if isinstance(form, WindowForms) else form
        return dot(values.abs(), at_rows(radius, form, owner))


def _bound_nonzero(form: Form) -> Tensor:
    """Bound the number of nonzero coefficients of each row (K,) by the next power of 2, so that few counts differ."""
    values = form.values if isinstance(form, WindowForms) else form
    exponent = torch.frexp((values.flatten(1).count_nonzero(1) - 1).double()).exponent
    return 2 ** exponent.long()
