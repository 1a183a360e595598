"""What a way of bounding is: a pass, configured once, and what it does in one walk over a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from proofmap.bounds.rows import BoundRows, RowBounds
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph, Node


class Pass(ABC):
    """A way of bounding and its settings: a frozen dataclass, equal where it does the same."""

    refines: bool = False  # whether its bounds of a member get closer with relaxations of the member's own
    chooses: bool = False  # whether it looks for the best of what relaxations leave free

    @abstractmethod
    def begin(self, state: BoundState) -> Bounder:
        """Start on a walk, whose state grows meanwhile."""

    def bytes_per_case(self, graph: Graph, itemsize: int) -> int:
        """What it keeps of one case through a whole walk."""
        return 0


class Bounder(ABC):
    """A pass in one walk: bounds of any node's entries, and of forms of the output."""

    def __init__(self, state: BoundState) -> None:
        self.state = state

    def tighten_inputs(self, node: Node) -> None:
        """Tighten what the node's relaxation will be made from, where that can help."""
        for name, rows in self.state.unstable(node):
            self.state.tighten(name, self.tighten(name, rows))

    def visit(self, node: Node) -> None:  # noqa: B027 - most carry nothing along
        """Carry on what is carried along: the node's relaxation is there by now."""

    def for_members(self, state: BoundState, index: Tensor) -> Bounder | None:
        """The same for members as cases of their own, index (n,) into the C · members, case by case; None unless the
        pass refines.
        """
        return None

    @abstractmethod
    def tighten(self, name: str, rows: BoundRows) -> RowBounds:
        """Bounds of some entries of a node, on the full ball or, where they are kept, on every member."""

    @abstractmethod
    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        """Upper bounds (C, members, R) of the rows of (C, R, classes) that are wanted (C, R); of others anything."""
