"""Rounding error tensors T of the nodes of a graph, for the bounds of some cases.

`bound_errors` states the error model, and charges these tensors to rows, lines and intervals. The members of a ball
reuse the tensors of the whole ball, which are valid for every subset of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import ROUNDED
from proofmap.graph.receptive_fields import Shapes
from proofmap.rounding.float32_sums import (
    FLOAT32_UNIT,
    constants_of,
    gamma,
    gammas,
    linear_float32_error,
    unit_roundoff,
)
from proofmap.rounding.magnitudes import COPIES, MAGNITUDES, Magnitudes, magnitude
from proofmap.rounding.norm_errors import value_error
from proofmap.rules import RULES, Linear
from proofmap.runtime.block_sums import additions_per_product

if TYPE_CHECKING:
    from proofmap.bounds.state import BoundState

VALUE_ERRORS = 4  # rounding errors of a value beside its products: bias, a weight that was cast, one more operation
LINE_ERRORS = 32  # rounding errors of a line's slope and bias, and of the products with them
_RANGE_SHARE = 2.0**-6  # share of a type's range: sums of larger numbers may overflow


class NodeErrors:
    """The tensors T of all nodes. `of` and `case` name the ball's errors and the ball of each member."""

    def __init__(self, state: BoundState, of: NodeErrors | None, case: Tensor | None) -> None:
        self._bounds, self._of, self._case = ref(state), of, case  # weak: the bounds own this object
        self._keep_alive = None if of is None else of.state  # keeps the ball's bounds alive
        dtype = state.balls.x.dtype
        self.unit: float = unit_roundoff(dtype)
        self.tiny: float = torch.finfo(dtype).tiny
        self._overflow_limit = torch.finfo(dtype).max * _RANGE_SHARE
        # offsets and errors that are added up on the way to the input
        self.offset_additions: int = 2 * len(state.graph.nodes) + 8
        self._radii: dict[tuple[str, int], tuple[Tensor | None, Tensor]] = {}
        self._float32_errors: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._interval_errors: dict[str, Tensor] = {}
        self._counterpart_errors: dict[str, Tensor] = {}

    @property
    def state(self) -> BoundState:
        """The bounds whose rounding errors these are."""
        state = self._bounds()
        assert state is not None
        return state

    def gamma(self, count: int) -> float:
        """Return γ of `count` rounding errors and those of the offsets that are added up on the way to the input."""
        return gamma(count + self.offset_additions, self.unit)

    def node_error(self, node: Node, products: int) -> tuple[Tensor | None, Tensor]:
        """Return T, (C, *shape), the error per unit of a row's coefficient (None: no error), and (C,) the error of
        every row.

        products: the number of products that are added up to one coefficient behind a linear operation.
        """
        key = node.name, products
        if key not in self._radii:
            if self._of is not None:
                radius, every = self._of.node_error(node, products)
                self._radii[key] = radius if radius is None else radius[self._case], every[self._case]
            else:
                self._radii[key] = self._compute_node_error(node, products)
        return self._radii[key]

    def _compute_node_error(self, node: Node, products: int) -> tuple[Tensor | None, Tensor]:
        inputs = [self.state.interval(name) for name in node.inputs]
        sums = sum((magnitude(x).flatten(1).sum(1) for x in inputs), torch.zeros_like(inputs[0].lower.flatten(1)[:, 0]))
        every = 16 * self.tiny * (node.size + 1) * (1 + sums)
        if isinstance(RULES[node.op], Linear):
            radius = self._linear_error(node, products)
            if radius is not None and ROUNDED in node.attributes:
                radius = radius + self.counterparts_error(node)
        else:
            sizes: Magnitudes = MAGNITUDES[node.op](node, *inputs)
            count = LINE_ERRORS + self.offset_additions + sizes.terms
            radius = gamma(count, self.unit) * sizes.slopes
            radius = radius + gamma(self.additions(node.size) + count, self.unit) * sizes.biases
            radius = radius + value_error(self.state.graph, node, sizes, self.state.interval)
            if ROUNDED in node.attributes:
                radius = radius + self.counterparts_error(node)
            return self.round_up(radius, self.additions(node.size) + sizes.terms), every
        return radius if radius is None else self.round_up(radius, self.additions(node.size)), every

    def _linear_error(self, node: Node, products: int) -> Tensor | None:
        """Return R + γ_p |L| m + γ_q |b|; None if the operation only copies entries."""
        rule = RULES[node.op]
        assert isinstance(rule, Linear)
        value_error, size, _ = self.float32_error(node)
        if node.op in COPIES:
            once = rule.moves(node) or node.op == "concat"
            return None if once else gamma(products + VALUE_ERRORS, self.unit) * size
        radius = value_error + gamma(products + 4 * VALUE_ERRORS, self.unit) * size
        constants = constants_of(node)
        if constants is None:
            return radius
        return radius + self.gamma(self.additions(node.size) + 4 * VALUE_ERRORS) * constants.abs()

    def float32_error(self, node: Node) -> tuple[Tensor, Tensor, Tensor]:
        """Return R and |L| m of a linear operation, (C, *shape) each, and the largest number of products it adds up,
        (C,).
        """
        if node.name not in self._float32_errors:
            if self._of is not None:
                value_error, size, count = self._of.float32_error(node)
                self._float32_errors[node.name] = value_error[self._case], size[self._case], count[self._case]
            else:
                inputs = [self.state.interval(name) for name in node.inputs]
                signed = not self.state.arithmetic  # interval arithmetic is much looser than this refinement
                self._float32_errors[node.name] = linear_float32_error(
                    node, inputs, self.round_up, self.unit, signed=signed
                )
        return self._float32_errors[node.name]

    def counterparts_error(self, node: Node) -> Tensor:
        """Return the sum R_a + R_b (C, *shape) of the errors of both nodes whose difference a node is.

        The values that float32 computes for both nodes differ by η_b - η_a more than the node's operation says.
        """
        if self._of is not None:
            return self._of.counterparts_error(node)[self._case]
        if node.name not in self._counterpart_errors:
            total = torch.zeros_like(self.state.interval(node.inputs[0]).lower.flatten(1)[:, 0])
            total = total.view(-1, *[1] * len(node.shape)).expand(-1, *node.shape)
            for name in node.attributes[ROUNDED]:
                part = self.state.graph[name]
                if not part.inputs or part.op in COPIES:
                    continue
                if isinstance(RULES[part.op], Linear):
                    total = total + self.float32_error(part)[0]
                else:
                    inputs = [self.state.interval(before) for before in part.inputs]
                    sizes: Magnitudes = MAGNITUDES[part.op](part, *inputs)
                    total = total + value_error(self.state.graph, part, sizes, self.state.interval)
            self._counterpart_errors[node.name] = self.round_up(total, 2)
        return self._counterpart_errors[node.name]

    def shapes(self, node: Node) -> Shapes:
        """Return the shapes of the inputs of a node."""
        return tuple(self.state.graph[name].shape for name in node.inputs)

    def additions(self, count: int) -> int:
        """Return how many additions a product passes in a sum of `count` products: block sums in float32, else any
        order.
        """
        return additions_per_product(count) if self.unit == FLOAT32_UNIT else count

    def round_up(self, value: Tensor, count: int) -> Tensor:
        """Return an upper bound of the exact sum, given a computed sum of `count` nonnegative numbers.

        The bound is infinite where later sums of such numbers may overflow.
        """
        value = value * (1 + 2 * self.gamma(count + VALUE_ERRORS))
        return torch.where(value <= self._overflow_limit, value, torch.inf)

    def interval_error(self, node: Node) -> Tensor:
        """Return the error (C, *shape) of interval arithmetic behind a linear operation.

        The ball's error also holds for its members, because their intervals are subsets of the ball's.
        """
        if self._of is not None:
            return self._of.interval_error(node)[self._case]
        if node.name not in self._interval_errors:
            value_error, size, read = self.float32_error(node)
            constants = constants_of(node)
            if constants is not None:
                size = size + constants.abs()
            part = gammas(read + 4 * VALUE_ERRORS + self.offset_additions, self.unit).view(-1, *[1] * len(node.shape))
            radius = self.round_up(value_error + part * size, VALUE_ERRORS)
            self._interval_errors[node.name] = radius
        return self._interval_errors[node.name]
