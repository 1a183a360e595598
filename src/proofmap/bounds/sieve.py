"""A sieve before the long way back: entries that a form proves harmless after a few steps need not go all the way.

Interval arithmetic multiplies its error at every layer: in a deep network it leaves nearly every entry open. A form
that goes back over a few layers alone, to intervals that are known, is cheap, and closes most of them; wide layers are
closed by the forms of a narrow one (`basis`). What the sieve proves counts like interval arithmetic: it only finds the
entries that the method need not look at.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.basis import Basis
from proofmap.bounds.state import Rows, State
from proofmap.graph.ir import Node
from proofmap.rules import RULES, Linear, Nonlinear

_MESHES = (0, 3, 9)  # nonlinear layers to go back over
_DEEP = 4  # layers that must be left behind a mesh: over fewer, the whole way is as short


class Sieve:
    """What is narrowed before a backward pass, in one walk."""

    def __init__(self, state: State, backward: BackwardPass) -> None:
        self._state = state
        self._backward = backward
        self._basis = Basis(state)

    def narrow(self, node: Node, rule: Nonlinear) -> None:
        """Narrow the intervals of the node's inputs, as far as the entries where relaxing would lose something."""
        state = self._state
        for layers in _MESHES:
            if len(state.relaxations) < layers + _DEEP:
                return
            near = dict(list(state.relaxations.items())[len(state.relaxations) - layers :])
            for name, rows in unstable(state, node, rule):
                if layers or _composed(state, name):
                    state.narrow(name, *self._backward.near(name, rows, near))
            if not layers:
                for name, rows in unstable(state, node, rule):
                    self._basis.narrow(name, rows, self._backward)


def unstable(state: State, node: Node, rule: Nonlinear) -> Iterator[tuple[str, Rows]]:
    """The entries of the node's inputs where relaxing loses something and a form can do better than what is known.

    Input by input: what has been learned of one by then counts for the next.
    """
    for place, name in enumerate(node.inputs):
        if state.worth(name):
            mask = rule.unstable(node, *(state.intervals[name] for name in node.inputs))[place]
            rows = Rows.where(mask)
            if len(rows):
                yield name, rows


def _composed(state: State, name: str) -> bool:
    """Whether several linear operations end here: one alone, of entries moved at most, is bounded exactly."""
    pending, sums = [name], 0
    while pending:
        node = state.graph[pending.pop()]
        rule = RULES[node.op] if node.inputs else None
        if isinstance(rule, Linear):
            sums += not rule.moves(node)
            pending.extend(node.inputs)
    return sums > 1
