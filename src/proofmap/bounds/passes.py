"""What a way of bounding does while a graph is walked."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from proofmap.bounds.state import Rows, State, Tightened
from proofmap.graph.ir import Node


class Pass(ABC):
    """Bounds of any node's entries, and of forms of the output, on the full ball's relaxations."""

    def __init__(self, state: State) -> None:
        self.state = state

    @abstractmethod
    def visit(self, node: Node) -> None:
        """The node's relaxation is settled: carry on what is carried along."""

    @abstractmethod
    def tighten(self, name: str, rows: Rows) -> Tightened:
        """Bounds of some entries of a node, for the full ball or, where the state keeps them, for every member."""

    @abstractmethod
    def final(self, specification: Tensor, wanted: Tensor) -> Tensor:
        """Upper bounds (N, members, R) of the rows of (N, R, classes); infinite, or not, where (N, R) wants none."""
