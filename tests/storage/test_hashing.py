"""Hashes of models and inputs: they change with every relevant part, and with nothing else."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.storage.hashing import digest, hash_graph, hash_tensor, versions


class Net(nn.Module):
    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3, stride, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.last = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.last(self.layers(x).flatten(1))
        return value


def graph_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> pm.Graph:
    return pm.trace(model.to(dtype).eval(), torch.zeros(1, 1, 6, 6, dtype=dtype))


def test_a_model_has_one_hash() -> None:
    graph = graph_of(Net())
    name = hash_graph(graph)
    assert len(name) == 64
    assert name == hash_graph(graph_of(Net())) == hash_graph(copy.deepcopy(graph))
    assert name == hash_graph(graph.to(torch.device("cpu"), torch.float32))


@pytest.mark.parametrize("name", ["layers.0.weight", "layers.0.bias", "last.weight", "last.bias"])
def test_every_weight_counts(name: str) -> None:
    model = Net()
    before = hash_graph(graph_of(model))
    with torch.no_grad():
        entry = model.get_parameter(name).view(-1)[-1:]
        entry.copy_(torch.nextafter(entry, entry + 1))
    assert hash_graph(graph_of(model)) != before


def test_structure_and_precision_count() -> None:
    graph = graph_of(Net())
    last = graph.nodes[-1]
    others = [
        graph_of(Net(stride=2)),
        graph_of(Net(), torch.float64),
        pm.Graph((*graph.nodes[:-1], replace(last, attributes={**last.attributes, "new": 1})), graph.output),
        pm.Graph((*graph.nodes[:-1], replace(last, name="renamed")), "renamed"),
        pm.Graph(graph.nodes, graph.nodes[-2].name),
        pm.Graph((*graph.nodes[:-1], replace(last, weight=last.bias, bias=last.weight)), graph.output),
    ]
    assert len({hash_graph(other) for other in (graph, *others)}) == 1 + len(others)


@pytest.mark.parametrize("wrapped", [False, True])
def test_every_entry_of_an_attribute_counts(wrapped: bool) -> None:
    graph = graph_of(Net())
    index = torch.arange(5000)

    def hash_with(value: Tensor) -> str:
        node = replace(graph.nodes[-1], attributes={"index": (value, 1) if wrapped else value})
        return hash_graph(pm.Graph((*graph.nodes[:-1], node), graph.output))

    assert hash_with(index) == hash_with(index.clone())
    assert hash_with(index) != hash_with(index.index_fill(0, torch.tensor([2500]), 0))


def test_an_input_has_one_hash() -> None:
    x = torch.rand(2, 3, 4)
    name = hash_tensor(x)
    assert name == hash_tensor(x.clone()) == hash_tensor(x.transpose(1, 2).contiguous().transpose(1, 2))
    assert name == hash_tensor(x.clone().requires_grad_())
    moved = x.clone()
    moved[1, 2, 3] = torch.nextafter(moved[1, 2, 3], torch.tensor(2.0))
    others = [moved, x.reshape(2, 4, 3), x.double(), x[:1], x[:0], x.to(torch.bfloat16), torch.tensor(1.0)]
    assert len({name, *(hash_tensor(other) for other in others)}) == 1 + len(others)
    assert hash_tensor(torch.zeros(2)) != hash_tensor(torch.zeros(2, dtype=torch.int32))


def test_parts_do_not_run_together() -> None:
    empty = torch.zeros(0)
    lists: list[list[str | Tensor]] = [[], [""], ["", ""], ["ab", "c"], ["a", "bc"], ["abc"], [empty], [empty, empty]]
    assert len({digest(parts) for parts in lists}) == len(lists)
    assert digest(iter(["a", "b"])) == digest(["a", "b"])


def test_versions() -> None:
    found = versions()
    assert found.keys() == {"proofmap", "torch", "python"}
    assert found["proofmap"] == pm.__version__
    assert found["torch"] == torch.__version__
