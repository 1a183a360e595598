"""Models whose scores are known in closed form, in float64."""

from itertools import pairwise

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """Logits (w·x + bias, 0) for samples of any shape: the score of class 0 is linear."""

    def __init__(self, weight: Tensor, bias: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.double())
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, *shape) to logits (N, 2)."""
        score = x.flatten(1) @ self.weight.reshape(-1, 1) + self.bias
        return torch.cat([score, torch.zeros_like(score)], dim=1)


def reads_one(shape: tuple[int, ...], index: int) -> Linear:
    """Return a model whose score is the entry at a flat index."""
    weight = torch.zeros(shape).flatten()
    weight[index] = 1.0
    return Linear(weight)


def network(*sizes: int, seed: int = 0) -> nn.Module:
    """Return dense layers with ReLU for flattened samples."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = [nn.Flatten()]
        for a, b in pairwise(sizes):
            layer = nn.Linear(a, b)
            nn.init.normal_(layer.weight, std=2 / a**0.5)
            layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).double().eval()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Return random numbers in [0, 1), float64."""
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
