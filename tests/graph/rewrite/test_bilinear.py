"""Matrix products as entrywise products: the same function, and tighter bounds with optimised planes."""

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Alpha, Backward
from proofmap.graph import trace
from proofmap.graph.rewrite import bilinear
from proofmap.graph.rewrite.bilinear import with_entrywise_products
from tests.models import MODELS, graph_of

NAMES = ["matrix product", "attention"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_function(name: str) -> None:
    case = MODELS[name]
    graph, x = graph_of(case, torch.float64), case.inputs(4, torch.float64)
    products = with_entrywise_products(graph)
    torch.testing.assert_close(products(x), graph(x))
    ops = [node.op for node in products.nodes]
    assert "contract" not in ops
    assert ops.count("product") > [node.op for node in graph.nodes].count("product")
    assert products.output == graph.output


def test_large_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(MODELS["matrix product"], torch.float64)
    monkeypatch.setattr(bilinear, "_MAX_PRODUCTS", 11)
    assert with_entrywise_products(graph) is graph


class Kernel(nn.Module):
    """Σ_k x_ik x_jk of features, between dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).unflatten(1, (2, 3)).relu()
        out: Tensor = self.last((y @ y.transpose(1, 2)).flatten(1))
        return out


def test_optimised_planes_are_tighter() -> None:
    torch.manual_seed(0)
    model = Kernel().double()
    x = torch.rand(3, 4, dtype=torch.float64)
    graph, ball = trace(model, x[:1]), pm.Ball(0.3)
    plain, chosen = (pm.overlap(graph, x, ball, bounds=bounds).full for bounds in (Backward(), Alpha(20)))
    highest = plain.new_full((3,), -torch.inf)
    for _ in range(50):
        logits = graph(x + 0.3 * (2 * torch.rand_like(x) - 1))
        target = graph(x).argmax(1, keepdim=True)
        highest = torch.maximum(highest, (logits - logits.gather(1, target)).scatter(1, target, -torch.inf).amax(1))
    assert bool((highest <= chosen + 1e-9).all())
    assert bool((chosen < plain - 0.01 * plain.abs()).all())
