"""Models, inputs and reference computations that the tests of several baselines use."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.registry import EXPLAINER_ENTRIES

SHAPE = (2, 8, 8)
TARGET = [0, 3, 1]  # a class for each of three samples
BALL = pm.Ball(0.1, domain=(0.0, 1.0))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(*layers: Callable[[], nn.Module], seed: int = 1) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(*(layer() for layer in layers)).double().eval()


def weight(model: nn.Sequential, at: int) -> nn.Parameter:
    """The weight of the layer at that place."""
    found = model[at].weight
    assert isinstance(found, nn.Parameter)
    return found


def weights(linear: nn.Sequential, target: list[int]) -> Tensor:
    """∇f_c of a linear model for each sample."""
    return weight(linear, 1).detach()[target].view(-1, *SHAPE)


def slope(model: nn.Module, x: Tensor, target: list[int]) -> Tensor:
    """∇f_c of any model for each sample."""
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(model(x)[torch.arange(len(x)), target].sum(), x)
    return found


class Square(nn.Module):
    """Gradients 2x and -2x: under noise they vary by 4σ²."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.square().flatten(1).sum(1, keepdim=True)
        return torch.cat([total, -total], 1)


class Reads(nn.Module):
    """Logits (Σ of a window, 0): nothing else is read."""

    def __init__(self, rows: slice, columns: slice) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns

    def forward(self, x: Tensor) -> Tensor:
        total = x[:, :, self.rows, self.columns].flatten(1).sum(1, keepdim=True)
        return torch.cat([total, 0 * total], 1)


def ball_of(name: str, ball: pm.Ball = BALL) -> pm.Ball:
    """The ball in the norm that the method takes."""
    norm = EXPLAINER_ENTRIES[name].norm
    return ball if norm is None else replace(ball, norm=norm)
