"""Shapes of new nodes: misfits are left to torch's error. `test_ops` compares shapes with values."""

import pytest
import torch

from proofmap.graph.builder.output_shapes import output_shape
from proofmap.graph.ir import Node


def conv(**settings: object) -> Node:
    plain = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    return Node("c", "conv", ("x",), (), torch.zeros(4, 2, 3, 3), None, {**plain, **settings})


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        (Node("l", "linear", ("x",), (), torch.zeros(3, 4)), [(5,)]),
        (Node("l", "linear", ("x",), (), torch.zeros(3, 4), torch.zeros(2)), [(4,)]),
        (conv(), [(3, 8, 8)]),
        (conv(), [(2, 2, 8)]),
        (Node("a", "add", ("x", "y"), ()), [(3,), (4,)]),
        (Node("r", "reshape", ("x",), (), attributes={"shape": (5,)}), [(3, 2)]),
    ],
)
def test_inputs_that_do_not_fit_are_errors(node: Node, inputs: list[tuple[int, ...]]) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        output_shape(node, inputs)


def test_a_large_value_is_not_computed() -> None:
    node = Node("e", "expand", ("x",), (), attributes={"shape": (2**40,)})
    assert output_shape(node, [(1,)]) == (2**40,)
