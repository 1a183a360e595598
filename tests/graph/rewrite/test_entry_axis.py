"""Scalar values (shape ()): models may contain them, and their bounds are sound."""

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm


class Numbers(nn.Module):
    """Logits from scalars: inner products, sums over all axes and over one, a scalar expanded to a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(6))
        self.b = nn.Parameter(torch.randn(()))

    def forward(self, x: Tensor) -> Tensor:
        first = torch.relu(x.flatten(1) @ self.w + self.b)
        second = torch.relu(x - 0.5).sum((1, 2))
        return torch.stack([first, second, (x.flatten(1) * self.w).sum(1) - first], 1) + second[:, None]


@pytest.mark.parametrize("bounds", [pm.bounds.IBP(), pm.bounds.Forward(), pm.bounds.Backward(), pm.bounds.CrownIBP()])
@pytest.mark.parametrize("sharing", ["shared", "one-pass", "separate"])
def test_numbers_on_the_way_are_bounded(bounds: pm.bounds.Method, sharing: pm.bounds.Sharing) -> None:
    torch.manual_seed(0)
    model, x = Numbers().eval(), torch.rand(4, 2, 3)
    graph = pm.trace(model, x)
    torch.testing.assert_close(graph(x), model(x))
    assert all(node.shape for node in graph.nodes)
    ball = pm.Ball(0.2, domain=(0.0, 1.0))
    over = pm.overlap(graph, x, ball, groups=torch.arange(6).view(1, 2, 3), bounds=bounds, sharing=sharing)
    target = model(x).argmax(1)
    near = x + ball.at(x).sample(500, torch.Generator().manual_seed(0))  # (500, 4, 2, 3)
    logits = model(near.flatten(0, 1)).unflatten(0, (500, 4))
    own = logits.gather(2, target.expand(500, -1)[:, :, None])
    margin = (logits - own).scatter(2, target.expand(500, -1)[:, :, None], -torch.inf).amax(2)
    assert bool((margin.amax(0) <= over.full + 1e-6).all())
    assert bool((over.frozen <= over.full[:, None] + 1e-5).all()) or sharing == "separate"
