"""Graphs and nodes."""

import pytest

from proofmap.graph import Graph, Node


def test_a_graph_is_checked_when_it_is_made() -> None:
    x, y = Node("x", "input", (), (1,)), Node("y", "relu", ("x",), (1,))
    with pytest.raises(AssertionError, match="two nodes are named 'x'"):
        Graph((x, x), "x")
    with pytest.raises(AssertionError, match="'y' stands before its inputs"):
        Graph((y, x), "y")
