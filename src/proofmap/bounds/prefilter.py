"""A sieve before the long way back: entries that a form proves harmless after a few steps need not go all the way.

Interval arithmetic multiplies its error at every layer: in a deep network it leaves nearly every entry open. A form
that goes back over a few layers alone, to intervals that are known, is cheap, and closes most of them; wide layers are
closed by the forms of a narrow one (`basis`). What the sieve proves counts like interval arithmetic: it only finds the
entries that the method need not look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proofmap.bounds.narrow_basis import NarrowBasis
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph, Node
from proofmap.rules import RULES, Linear

if TYPE_CHECKING:
    from proofmap.bounds.backward import BackwardBounder

_MESHES = (0, 3, 9)  # nonlinear layers to go back over
_DEEP = 4  # layers that must be left behind a mesh: over fewer, the whole way is as short


class Prefilter:
    """What is narrowed before a backward pass, in one walk."""

    def __init__(self, state: BoundState) -> None:
        self._knowledge = state
        self._basis = NarrowBasis(state)

    def narrow(self, node: Node, backward: BackwardBounder) -> None:
        """Narrow the intervals of the node's inputs, as far as the entries where relaxing would lose something."""
        state = self._knowledge
        for layers in _MESHES:
            if len(state.relaxations) < layers + _DEEP:
                return
            near = dict(list(state.relaxations.items())[len(state.relaxations) - layers :])
            for name, rows in state.unstable(node):
                if layers or _composed(state.graph, name):
                    state.narrow(name, *backward.bound_over_last_layers(name, rows, near))
            if not layers and state.rounding is None:
                for name, rows in state.unstable(node):
                    self._basis.narrow(name, rows, backward)


def _composed(graph: Graph, name: str) -> bool:
    """Whether several linear operations end here: one alone, of entries moved at most, is bounded exactly."""
    pending, sums = [name], 0
    while pending:
        node = graph[pending.pop()]
        rule = RULES[node.op] if node.inputs else None
        if isinstance(rule, Linear):
            sums += not rule.moves(node)
            pending.extend(node.inputs)
    return sums > 1
