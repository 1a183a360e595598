"""Which layer a walk over a graph is at, and how much of the work lies behind it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from proofmap.bounds import node_facts
from proofmap.graph.ir import Graph
from proofmap.runtime.progress import part

__all__ = ["LayerProgress"]


@dataclass(frozen=True)
class LayerProgress:
    """The layers of a walk: its nonlinear nodes, and the output."""

    ends: Mapping[str, tuple[int, float, float]]  # node -> its number, and where its work begins and ends, of all
    last: float  # where the work on the output begins

    @staticmethod
    def of(graph: Graph, rows: int, back: bool) -> LayerProgress:
        """For a walk that bounds `rows` forms of the output and, where it goes back, every input of a nonlinear node.

        A guess: one form costs as much as all the values that it meets on its way back. What it costs depends on much
        more, so that guess makes a half of a layer's share; the other is the same for all.
        """
        behind, costs = 0, {}
        for node in graph.nodes:
            if node_facts.is_nonlinear(node):
                costs[node.name] = behind * (sum(graph[name].size for name in node.inputs) if back else 1)
            behind += node.size
        whole, count = sum(costs.values()) + behind * rows, len(costs) + 1
        ends, start = {}, 0.0
        for number, (name, cost) in enumerate(costs.items(), start=1):
            stop = start + (cost / whole + 1 / count) / 2
            ends[name] = (number, start, stop)
            start = stop
        return LayerProgress(ends, start)

    def at(self, name: str) -> AbstractContextManager[None]:
        """Inside, the node is settled."""
        if name not in self.ends:
            return nullcontext()
        number, start, stop = self.ends[name]
        return part(start, stop, self._place(number))

    def at_the_end(self) -> AbstractContextManager[None]:
        """Inside, the output is bounded."""
        return part(self.last, 1.0, self._place(len(self.ends) + 1))

    def _place(self, number: int) -> str:
        return f"layer {number} of {len(self.ends) + 1}"
