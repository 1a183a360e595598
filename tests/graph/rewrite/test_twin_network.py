"""Twin network: the difference of two copies as one network."""

import pytest
import torch

from proofmap.errors import BoundError
from proofmap.graph.ops import compute
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.graph.rewrite.twin_network import first_copy_input, second_copy_input, twin
from tests.bounds.setting import values_at
from tests.models import MODELS, Case, graph_of

REFUSED = {"product", "contract", "softmax"}  # their change depends on more than the change of their inputs


@pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)
def test_differences_of_all_values(case: Case) -> None:
    """Every node is computed from the difference of its inputs and from the inputs of both copies."""
    x, z = case.inputs(3, torch.float64, seed=1), case.inputs(3, torch.float64, seed=2)
    graph = with_pairwise_maxima(graph_of(case, torch.float64), x)
    if REFUSED & {node.op for node in graph.nodes}:
        with pytest.raises(BoundError, match="compare two overlaps instead"):
            twin(graph)
        return
    first, second = values_at(graph, x), values_at(graph, z)
    values = {graph.input.name: z - x}
    for node in twin(graph).nodes[1:]:
        if node.inputs:
            values[node.name] = compute(node, *(values[name] for name in node.inputs))
            if node.op == "change":
                source = node.attributes["of"].inputs[0]
                assert node.inputs == (first_copy_input(node.name), second_copy_input(node.name), source)
        else:
            reader = node.name.removesuffix(".before").removesuffix(".after").removesuffix(".rise")
            copy = first if node.name.endswith(".before") else second
            values[node.name] = copy[graph[reader].inputs[0]]
    for name in (node.name for node in graph.nodes):
        torch.testing.assert_close(values[name], second[name] - first[name], atol=1e-12, rtol=1e-9)
