"""Progress of a walk over a graph: the current layer and the estimated share of the work done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from proofmap.bounds import node_facts
from proofmap.graph.ir import Graph
from proofmap.runtime.progress import part


@dataclass(frozen=True)
class LayerProgress:
    """The layers of a walk: its nonlinear nodes and the output."""

    shares: Mapping[str, tuple[int, float, float]]  # node -> its number, share of work at its start and end
    last: float  # the share of work before the output

    @staticmethod
    def of(graph: Graph, rows: int, back: bool) -> LayerProgress:
        """Estimate the work of a walk that bounds `rows` forms of the output.

        If `back`, the walk also substitutes forms of every input of a nonlinear node back. The estimated cost of a form
        is the number of values that it passes. Real costs also depend on other things. So the estimate decides half of
        a layer's share, and the other half is the same for all layers.
        """
        behind, costs = 0, {}
        for node in graph.nodes:
            if node_facts.is_nonlinear(node):
                costs[node.name] = behind * (sum(graph[name].size for name in node.inputs) if back else 1)
            behind += node.size
        whole, count = sum(costs.values()) + behind * rows, len(costs) + 1
        shares, start = {}, 0.0
        for number, (name, cost) in enumerate(costs.items(), start=1):
            stop = start + (cost / whole + 1 / count) / 2
            shares[name] = (number, start, stop)
            start = stop
        return LayerProgress(shares, start)

    def at(self, name: str) -> AbstractContextManager[None]:
        """Report progress while the node is bounded."""
        if name not in self.shares:
            return nullcontext()
        number, start, stop = self.shares[name]
        return part(start, stop, self._label(number))

    def at_output(self) -> AbstractContextManager[None]:
        """Report progress while the output is bounded."""
        return part(self.last, 1.0, self._label(len(self.shares) + 1))

    def _label(self, number: int) -> str:
        return f"layer {number} of {len(self.shares) + 1}"
