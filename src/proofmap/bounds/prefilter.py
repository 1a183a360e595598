"""Prefilter: cheap bounds that find stable neurons before the full back-substitution.

Interval arithmetic multiplies its error at every layer, so in a deep network it leaves nearly every neuron unstable. A
form that is substituted back over a few layers only, to known intervals, is cheap and shows that most neurons are
stable. Wide layers are bounded by the forms of a narrow layer (`narrow_basis`). The results of the prefilter count like
interval arithmetic: they only select the neurons that the method can skip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proofmap.bounds.narrow_basis import NarrowBasis
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph, Node
from proofmap.rules import RULES, Linear

if TYPE_CHECKING:
    from proofmap.bounds.backward import BackwardBounder

_PREFILTER_LAYERS = (0, 3, 9)  # nonlinear layers that each stage substitutes back over
_LEAST_LAYERS_SAVED = 4  # a stage runs only if the full back-substitution passes at least this many layers more


class Prefilter:
    """The prefilter of backward bounds during one walk."""

    def __init__(self, state: BoundState) -> None:
        self._knowledge = state
        self._basis = NarrowBasis(state)

    def narrow(self, node: Node, backward: BackwardBounder) -> None:
        """Tighten the intervals of the unstable entries of the node's inputs."""
        state = self._knowledge
        for layers in _PREFILTER_LAYERS:
            if len(state.relaxations) < layers + _LEAST_LAYERS_SAVED:
                return
            last = dict(list(state.relaxations.items())[len(state.relaxations) - layers :])
            for name, rows in state.unstable(node):
                if layers or _ends_several_sums(state.graph, name):
                    state.narrow(name, *backward.bound_over_last_layers(name, rows, last))
            if not layers and not state.rigorous:
                for name, rows in state.unstable(node):
                    self._basis.narrow(name, rows, backward)


def _ends_several_sums(graph: Graph, name: str) -> bool:
    """Return whether the node ends more than one linear operation that adds entries.

    Interval arithmetic is exact for a single one, as far as its inputs are only rearranged before.
    """
    pending, sums = [name], 0
    while pending:
        node = graph[pending.pop()]
        rule = RULES[node.op] if node.inputs else None
        if isinstance(rule, Linear):
            sums += not rule.moves(node)
            pending.extend(node.inputs)
    return sums > 1
