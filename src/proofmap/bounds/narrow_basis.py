"""Prefilter of wide layers: bound all their entries from the back-substituted forms of a narrow layer before them.

Mobile networks widen a narrow map v by a 1 x 1 convolution, filter each channel, and narrow it again. Relax every
nonlinear operation by two parallel lines. Then an entry of v lies within J·x + c ± e, and the values of later layers
have J', c' and e' that follow from those of v:

    y = L v + b:      J' = L J,   c' = L c + b,   e' = |L| e
    y = λ v + µ ± w:  J' = λ J,   c' = λ c + µ,   e' = |λ| e + w

So only the forms of v are substituted back. All entries of the wide layers follow by running these layers on the
columns of J. Parallel lines are slightly looser than the method's own, which is acceptable in a prefilter.
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
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules import RULES, Form, Interval, Linear
from proofmap.rules.scalar_lines import Lines, parallel
from proofmap.runtime.memory import bytes_needed, chunk_bytes, run_in_chunks

if TYPE_CHECKING:
    from proofmap.bounds.backward import BackwardBounder

_ROUNDING_ULPS = 4  # added to the error, relative to the magnitudes of the sums in it
_LEAST_REDUCTION = 3  # a basis is used only if it has this many times fewer entries than the rows to bound


@dataclass(frozen=True, eq=False)
class BasisForms:
    """The back-substituted forms of all entries of a node: they lie within J·x + c ± e."""

    name: str
    forms: Tensor  # (N, entries, inputs) J
    centre: Tensor  # (N, *shape) J·x + c at the centre of the box
    error: Tensor  # (N, *shape) e


@dataclass(eq=False)
class NarrowBasis:
    """The narrow layer that was substituted back last, and the parallel lines of all relaxations in this walk."""

    state: BoundState
    basis: BasisForms | None = None
    lines: dict[str, Lines] = field(default_factory=dict)

    def narrow(self, name: str, rows: BoundRows, backward: BackwardBounder) -> None:
        """Tighten the intervals of all entries of the node if a layer before it is narrow enough."""
        graph, balls = self.state.graph, self.state.balls
        if balls.norm != inf:
            return
        path = path_from_narrowest(graph, name, len(rows) // (_LEAST_REDUCTION * balls.count))
        if path is None or not self.has_lines():
            return
        start = graph[path[0].inputs[0]]
        forms = balls.count * start.size * graph.input.size
        if bytes_needed("basis", forms, balls.x.element_size()) > self.state.budget:
            return
        if self.basis is None or self.basis.name != start.name:
            self.basis = None  # frees its memory before the next one is computed
            self.basis = self._basis_forms(start, backward)
        centre, radius = self._run(self.basis, path)
        every = BoundRows.every(balls.count, centre[0].numel(), centre.device)
        self.state.narrow(name, every, Interval((centre - radius).flatten(), (centre + radius).flatten()))

    def has_lines(self) -> bool:
        """Return whether all relaxations so far are pairs of lines, and store their parallel versions."""
        for name, relaxation in self.state.relaxations.items():
            if name not in self.lines:
                if not isinstance(relaxation, Lines):
                    return False
                self.lines[name] = parallel(relaxation, self.state.interval(self.state.graph[name].inputs[0]))
        return True

    def _basis_forms(self, node: Node, backward: BackwardBounder) -> BasisForms:
        """Substitute all entries of a node back to the input from above, which gives J·x + c + e.

        The value of J·x + c at the centre of the box follows by running the network there, with the middle lines in
        place of the nonlinear operations. The rest is e.
        """
        balls = self.state.balls
        like = balls.x
        low, high = (end.flatten(1) for end in balls.box())
        forms = like.new_zeros(balls.count, node.size, prod(balls.shape))
        above = like.new_empty(balls.count, node.size)

        def keep(part: BoundRows, final_forms: dict[str, Form], bias: Tensor) -> None:
            above[part.at] = bias
            form = final_forms.get(self.state.graph.input.name)
            if form is not None:
                forms[part.at] = (form.dense() if isinstance(form, WindowForms) else form).flatten(1)

        every = BoundRows.every(balls.count, node.size, like.device, side=1)
        backward.backsubstitute_rows(node.name, every, self.lines, keep)
        middle = (low + high) / 2
        centre = self._middle(node, middle.view(like.shape))
        linear = torch.einsum("nvd,nd->nv", forms, middle)
        size = torch.einsum("nvd,nd->nv", forms.abs(), middle.abs()) + above.abs() + centre.flatten(1).abs()
        error = (above + linear - centre.flatten(1)).clamp(min=0) + _ROUNDING_ULPS * torch.finfo(like.dtype).eps * size
        return BasisForms(node.name, forms, centre, error.view(centre.shape))

    def _middle(self, node: Node, x: Tensor) -> Tensor:
        """Return the node's value at x, with every nonlinear operation replaced by the middle of its two lines."""

        def step(one: Node, *inputs: Tensor) -> Tensor:
            if isinstance(RULES[one.op], Linear):
                return compute(one, *inputs)
            slope, middle, _ = self._line(one)
            return slope * inputs[0] + middle

        return push(self.state.graph, x, step, until=node.name)

    def _line(self, node: Node) -> tuple[Tensor, Tensor, Tensor]:
        """Return (λ, µ, w) of the parallel lines λ x + µ ± w that bound the node."""
        lines = self.lines[node.name]
        assert lines.lower_bias is not None
        return lines.upper_slope, (lines.upper_bias + lines.lower_bias) / 2, (lines.upper_bias - lines.lower_bias) / 2

    def _run(self, basis: BasisForms, path: list[Node]) -> tuple[Tensor, Tensor]:
        """Return centre and radius (N, *shape) of the last node of the path that starts at the basis."""
        centre, error = basis.centre, basis.error
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
        column = bytes_needed("basis", widest, centre.element_size())
        columns = chunk_bytes(self.state.budget // 4, centre.device) // column
        for sample in range(len(centre)):
            forms = basis.forms[sample]

            def run(start: int, stop: int, sample: int = sample, forms: Tensor = forms) -> None:
                value = forms[:, start:stop].T.reshape(stop - start, *first)
                for node in path:
                    rule = RULES[node.op]
                    if isinstance(rule, Linear):
                        value = rule.apply(node, value)
                    else:
                        value = value * self.lines[node.name].upper_slope[sample]
                swing[sample] += torch.einsum("d...,d->...", value.abs(), reach[sample, start:stop])

            run_in_chunks(forms.shape[1], columns, run)
        return centre, swing + error


def path_from_narrowest(graph: Graph, name: str, entries: int) -> list[Node] | None:
    """Return the chain of operations from the narrowest node with at most `entries` entries to this node.

    None if there is no such node. The chain contains at most one nonlinear operation.
    """
    path: list[Node] = []
    best: list[Node] | None = None
    smallest, nonlinear = entries + 1, 0
    node = graph[name]
    while len(node.inputs) == 1:
        nonlinear += not isinstance(RULES[node.op], Linear)
        if nonlinear > 1:  # each one widens the error
            break
        path.insert(0, node)
        node = graph[node.inputs[0]]
        if node.op != "input" and node.size < smallest:
            smallest, best = node.size, list(path)
    return best
