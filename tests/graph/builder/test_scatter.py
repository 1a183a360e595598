"""Scatter, gather and selection by masks."""

from collections.abc import Callable

import pytest
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.builder.scatter import rearrange
from tests.graph.built import assert_is, built, ops


def test_moves_of_any_kind_become_one_index() -> None:
    graph = built((3, 4), lambda b: rearrange(b, "y", "unfold", "input", lambda t: t.unfold(2, 2, 1).transpose(1, 3)))
    assert ops(graph)[:3] == ["reshape", "index", "reshape"]
    assert_is(graph, lambda x: x.unfold(2, 2, 1).transpose(1, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t.roll(1, 0),
        lambda t: t.transpose(0, 1),
        lambda t: t.flatten(),
        lambda t: t[:2],
        lambda t: t.flip(0, 1),
    ],
)
def test_moves_between_samples_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    b = Builder((5,), 5)
    with pytest.raises(ModelError, match=r"move \(node 'y'\) mixes the samples"):
        rearrange(b, "y", "move", "input", function)


def test_the_identity_adds_no_node() -> None:
    assert ops(built((3, 4), lambda b: rearrange(b, "y", "roll", "input", lambda t: t.roll(4, 2)))) == ["reshape"]
