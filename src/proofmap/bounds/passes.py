"""The interface of bound propagation: `Pass` holds the settings, `Bounder` does the work of one walk over a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from proofmap.bounds.rows import BoundRows, RowBounds
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph, Node


class Pass(ABC):
    """The settings of one kind of bounds: a frozen dataclass. Equal passes compute the same."""

    refines: bool = False  # whether relaxations of a member's own tighten its bounds
    optimises: bool = False  # whether it optimises the free parameters of relaxations

    @abstractmethod
    def begin(self, state: BoundState) -> Bounder:
        """Begin a walk. The state grows while the walk goes on."""

    def bytes_per_case(self, graph: Graph, itemsize: int) -> int:
        """Return the memory that the bounder holds for each case during the whole walk."""
        return 0


class Bounder(ABC):
    """A pass during one walk: it bounds entries of any node, and linear forms of the output."""

    def __init__(self, state: BoundState) -> None:
        self.state = state

    def tighten_inputs(self, node: Node) -> None:
        """Tighten the intervals of the node's inputs where the node's relaxation can profit."""
        for name, rows in self.state.unstable(node):
            self.state.tighten(name, self.tighten(name, rows))

    def visit(self, node: Node) -> None:  # noqa: B027 - most passes carry no forms along
        """Propagate forms through the node. Its relaxation is known by now."""

    def for_members(self, state: BoundState, index: Tensor) -> Bounder | None:
        """Return the bounder for single members as cases, or None if the pass does not refine.

        index (n,) counts the C · members, case by case.
        """
        return None

    @abstractmethod
    def tighten(self, name: str, rows: BoundRows) -> RowBounds:
        """Bound some entries of a node on the full ball, and also on every member if the state keeps these."""

    @abstractmethod
    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        """Return upper bounds (C, members, R) of the rows of `specification` (C, R, classes).

        Only the values of wanted rows (C, R) count. The others are arbitrary.
        """
