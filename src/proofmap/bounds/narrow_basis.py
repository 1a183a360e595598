"""A sieve for wide layers: their entries as combinations of the few entries of a narrow layer before them.

Mobile networks widen a narrow map v by a 1 x 1 convolution, filter each channel, and narrow it again. With lines that
are parallel above and below every nonlinear operation, an entry of v lies within J·x + c ± e, and what is linear in v
between parallel lines has its J, c and e from those of v:

    y = L v + b:      J' = L J,   c' = L c + b,   e' = |L| e
    y = λ v + µ ± w:  J' = λ J,   c' = λ c + µ,   e' = |λ| e + w

So the forms of v alone are sent back, and all entries of the wide layers follow by running the layers on the columns
of J. The lines are a little less close than the method's own, which a sieve may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import compute
from proofmap.graph.walk import push
from proofmap.inputs.window_forms import Windows
from proofmap.rules import RULES, Form, Interval, Linear
from proofmap.rules.scalar_lines import Lines, parallel
from proofmap.runtime.memory import bytes_of, in_pieces, piece_of

if TYPE_CHECKING:
    from proofmap.bounds.backward import BackwardBounder

_ROUNDING = 4  # units in the last place, of each of the sums that make an error
_NARROW = 3  # times fewer entries than those that are asked for


@dataclass(frozen=True, eq=False)
class BasisForms:
    """The forms of all entries of a node."""

    name: str
    forms: Tensor  # (N, entries, inputs) J
    centre: Tensor  # (N, *shape) J·x + c at the centre of the box
    error: Tensor  # (N, *shape) e


@dataclass(eq=False)
class NarrowBasis:
    """The narrow layer that was last sent back. One walk uses one."""

    state: BoundState
    sent: BasisForms | None = None
    lines: dict[str, Lines] = field(default_factory=dict)

    def narrow(self, name: str, rows: BoundRows, backward: BackwardBounder) -> None:
        """Narrow the intervals of all entries of the node, where a layer narrow enough lies before it."""
        graph, balls = self.state.graph, self.state.balls
        if balls.norm != inf:
            return
        path = path_to(graph, name, len(rows) // (_NARROW * balls.count))
        if path is None or not self.has_lines():
            return
        start = graph[path[0].inputs[0]]
        forms = balls.count * start.size * graph.input.size
        if bytes_of("basis", forms, balls.x.element_size()) > self.state.budget:
            return
        if self.sent is None or self.sent.name != start.name:
            self.sent = None  # before the next takes room
            self.sent = self._send(start, backward)
        centre, radius = self._run(self.sent, path)
        every = BoundRows.every(balls.count, centre[0].numel(), centre.device)
        self.state.narrow(name, every, Interval((centre - radius).flatten(), (centre + radius).flatten()))

    def has_lines(self) -> bool:
        """Whether every operation that has been relaxed lies between parallel lines, which are kept."""
        for name, relaxation in self.state.relaxations.items():
            if name not in self.lines:
                if not isinstance(relaxation, Lines):
                    return False
                self.lines[name] = parallel(relaxation, self.state.interval(self.state.graph[name].inputs[0]))
        return True

    def _send(self, node: Node, backward: BackwardBounder) -> BasisForms:
        """All entries of a node back to the input, from above: J·x + c + e. What is linear in x is known at the centre
        of the box by running the network there with lines in the place of its nonlinear operations: the rest is e.
        """
        balls = self.state.balls
        like = balls.x
        low, high = (end.flatten(1) for end in balls.box())
        forms = like.new_zeros(balls.count, node.size, prod(balls.shape))
        above = like.new_empty(balls.count, node.size)

        def keep(part: BoundRows, ends: dict[str, Form], bias: Tensor) -> None:
            above[part.at] = bias
            form = ends.get(self.state.graph.input.name)
            if form is not None:
                forms[part.at] = (form.dense() if isinstance(form, Windows) else form).flatten(1)

        every = BoundRows.every(balls.count, node.size, like.device, side=1)
        backward.backsubstitute_rows(node.name, every, self.lines, keep)
        middle = (low + high) / 2
        centre = self._middle(node, middle.view(like.shape))
        linear = torch.einsum("nvd,nd->nv", forms, middle)
        size = torch.einsum("nvd,nd->nv", forms.abs(), middle.abs()) + above.abs() + centre.flatten(1).abs()
        error = (above + linear - centre.flatten(1)).clamp(min=0) + _ROUNDING * torch.finfo(like.dtype).eps * size
        return BasisForms(node.name, forms, centre, error.view(centre.shape))

    def _middle(self, node: Node, x: Tensor) -> Tensor:
        """The node's value at x, with the middle of its two lines in the place of every nonlinear operation."""

        def step(one: Node, *inputs: Tensor) -> Tensor:
            if isinstance(RULES[one.op], Linear):
                return compute(one, *inputs)
            slope, middle, _ = self._line(one)
            return slope * inputs[0] + middle

        return push(self.state.graph, x, step, until=node.name)

    def _line(self, node: Node) -> tuple[Tensor, Tensor, Tensor]:
        """(λ, µ, w) of the lines λ x + µ ± w around the node."""
        lines = self.lines[node.name]
        assert lines.lower_bias is not None
        return lines.upper_slope, (lines.upper_bias + lines.lower_bias) / 2, (lines.upper_bias - lines.lower_bias) / 2

    def _run(self, sent: BasisForms, path: list[Node]) -> tuple[Tensor, Tensor]:
        """Centre and radius (N, *shape) of the last node of the path from the basis."""
        centre, error = sent.centre, sent.error
        for node in path:
            rule = RULES[node.op]
            if isinstance(rule, Linear):
                centre, error = compute(node, centre), rule.magnitude(node, error)
            else:
                slope, middle, half = self._line(node)
                centre, error = slope * centre + middle, slope.abs() * error + half
        low, high = (end.flatten(1) for end in self.state.balls.box())
        reach = (high - low) / 2  # (N, inputs)
        swing = torch.zeros_like(centre)
        widest = max(node.size for node in path)
        first = self.state.graph[path[0].inputs[0]].shape
        column = bytes_of("basis", widest, centre.element_size())
        columns = piece_of(self.state.budget // 4, centre.device) // column
        for sample in range(len(centre)):
            forms = sent.forms[sample]

            def run(start: int, stop: int, sample: int = sample, forms: Tensor = forms) -> None:
                value = forms[:, start:stop].T.reshape(stop - start, *first)
                for node in path:
                    rule = RULES[node.op]
                    if isinstance(rule, Linear):
                        value = rule.apply(node, value)
                    else:
                        value = value * self.lines[node.name].upper_slope[sample]
                swing[sample] += torch.einsum("d...,d->...", value.abs(), reach[sample, start:stop])

            in_pieces(forms.shape[1], columns, run)
        return centre, swing + error


def path_to(graph: Graph, name: str, entries: int) -> list[Node] | None:
    """The operations, one after the other, from the narrowest node of at most so many entries to this one."""
    path: list[Node] = []
    best: list[Node] | None = None
    smallest, bends = entries + 1, 0
    node = graph[name]
    while len(node.inputs) == 1:
        bends += not isinstance(RULES[node.op], Linear)
        if bends > 1:  # each widens the error
            break
        path.insert(0, node)
        node = graph[node.inputs[0]]
        if node.op != "input" and node.size < smallest:
            smallest, best = node.size, list(path)
    return best
