"""Small vision transformers for CIFAR-10: convolutions make tokens, and blocks of attention mix them."""

from typing import Literal

import torch
from torch import Tensor, nn

from proofmap.zoo.weights import fill_packaged

Norm = Literal["layer", "batch"]


class TokenNorm(nn.Module):
    """Batch norm of tokens (N, T, D): each feature is normalised by the statistics of training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm: nn.BatchNorm1d = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x.transpose(1, 2))
        return normed.transpose(1, 2)


class Attention(nn.Module):
    """Multi-head softmax attention over tokens (N, T, D)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.parts: nn.Linear = nn.Linear(width, 3 * width)
        self.out: nn.Linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.parts(x).chunk(3, dim=2)
        )
        weights = (query @ key.transpose(2, 3) / query.shape[-1] ** 0.5).softmax(dim=-1)
        mixed: Tensor = self.out((weights @ value).transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """A pre-norm transformer block: x + attention(norm(x)), then x + dense(norm(x))."""

    def __init__(self, width: int, heads: int, hidden: int, norm: Norm) -> None:
        super().__init__()
        make = nn.LayerNorm if norm == "layer" else TokenNorm
        self.before: nn.Module = make(width)
        self.attention: Attention = Attention(width, heads)
        self.between: nn.Module = make(width)
        self.dense: nn.Sequential = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        y: Tensor = x + self.dense(self.between(x))
        return y


class VisionTransformer(nn.Module):
    """Map images (N, 3, 32, 32) to logits (N, 10): 16 tokens, blocks, the mean of the tokens, a dense layer."""

    def __init__(self, width: int, depth: int, heads: int, hidden: int, norm: Norm) -> None:
        super().__init__()
        self.stem: nn.Sequential = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(width // 2, width, 4, stride=4)
        )
        self.place: nn.Parameter = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.blocks: nn.Sequential = nn.Sequential(*(Block(width, heads, hidden, norm) for _ in range(depth)))
        self.head: nn.Linear = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2) + self.place
        logits: Tensor = self.head(self.blocks(tokens).mean(dim=1))
        return logits


def cifar_vit(pretrained: bool = True) -> VisionTransformer:
    """Map images (N, 3, 32, 32) in [0, 1] to logits (N, 10); in eval mode.

    >>> pm.zoo.cifar_vit()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    model = VisionTransformer(width=96, depth=2, heads=4, hidden=192, norm="layer")
    if pretrained:
        fill_packaged(model, "cifar_vit")
    return model.eval()
