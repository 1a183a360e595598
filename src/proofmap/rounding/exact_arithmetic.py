"""The interface through which bounds count rounding errors, and its trivial case: arithmetic without rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.receptive_fields import Shapes
from proofmap.rules import RULES, Form, Interval, Linear
from proofmap.rules.rule import AnyForm, Pullable

if TYPE_CHECKING:
    from proofmap.bounds.state import BoundState


class ExactArithmetic:
    """Bounds without rounding errors: every error is 0. `RoundingErrors` overrides all of it.

    Errors of K rows are tensors (K,) or (1,).
    """

    def for_members(self, state: BoundState, case: Tensor) -> ExactArithmetic:
        """Return the errors of members, or other parts, of the balls `case` (n,)."""
        return self

    def interval_arithmetic(self, node: Node, inputs: list[Interval]) -> Interval:
        """Return the node's interval by interval arithmetic."""
        return RULES[node.op].interval(node, *inputs)

    def input_error(self) -> Tensor | float:
        """Return the error (C, *shape) of the endpoints of the input's interval."""
        return 0.0

    def pull(self, node: Node, shapes: Shapes, form: AnyForm) -> tuple[tuple[AnyForm, ...], Tensor | None]:
        """Pull a form back through a linear operation."""
        rule = RULES[node.op]
        assert isinstance(rule, Linear)
        return rule.pull(node, shapes, form)

    def move_outward(self, node: Node, relaxation: Pullable, form: Form) -> tuple[Pullable, dict[str, int]]:
        """Move relaxation lines outward by errors, so that rows need not pay for them.

        Returns the moved lines and, for each node that is paid for, the number of products the payment covers.
        """
        return relaxation, {}

    def row_error(self, node: Node, form: Form, owner: Tensor, *, first: bool, paid_products: int) -> Tensor | float:
        """Return the error (K,) that rows gain at a node.

        first: whether the node is the first one that the rows pass.
        paid_products: the number of products that the reader's lines already pay for; -1: they pay nothing.
        """
        return 0.0

    def sum_error(self, name: str, form: Form, owner: Tensor) -> Tensor | float:
        """Return the error (K,) of adding up two forms of one value."""
        return 0.0

    def concretisation_error(self, form: Form, owner: Tensor) -> Tensor | float:
        """Return the error (K,) of maximising rows over a ball or its members at the input."""
        return 0.0

    def interval_concretisation_error(self, name: str, form: Form, owner: Tensor) -> Tensor | float:
        """Return the error (K,) of maximising rows over the interval of a node."""
        return 0.0

    def forward_error(self, node: Node, sizes: list[Tensor]) -> Tensor | float:
        """Return the error (C, *shape) of forward-propagated affine forms (both sides) behind a node.

        sizes: bounds Σ |w_i| (|x_i| + |δ_i|) + |b| of both sides before the node.
        """
        return 0.0

    def form_magnitudes(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Bound Σ |w_i| (|x_i| + |δ_i|) + |b| of affine forms (C, d, *shape) and (C, *shape), for their errors."""
        return bias

    def form_error(self, sizes: Tensor, count: int) -> Tensor:
        """Return the error of sums of `count` forms bounded by `sizes`, including that of their concretisation."""
        return sizes.new_zeros(()).expand_as(sizes)
