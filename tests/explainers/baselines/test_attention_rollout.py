"""Attention rollout, against the products of the attention that a network really pays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.baselines import AttentionRollout
from proofmap.zoo.vit import VisionTransformer


class Tokens(nn.Module):
    """Two layers of attention over tokens (T, 4), each with two heads; with a token of its own for the class or not."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own, self.paid = own, list[Tensor]()
        self.query, self.key, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.patch = nn.Conv2d(1, 4, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 4:
            x = self.patch(x).flatten(2).transpose(1, 2)
        if self.own:
            x = torch.cat([torch.zeros_like(x[:, :1]), x], 1)
        self.paid = []
        for _ in range(2):
            query, key, value = (t.unflatten(2, (2, 2)).transpose(1, 2) for t in (self.query(x), self.key(x), x))
            weights = (query @ key.transpose(2, 3)).softmax(-1)
            self.paid.append(weights)
            x = x + (weights @ value).transpose(1, 2).flatten(2)
        out: Tensor = self.head(x[:, 0] if self.own else x.mean(1))
        return out


def rolled(model: Tokens, x: Tensor) -> Tensor:
    """(n, T, T), layer by layer."""
    model(x)
    flow = torch.eye(model.paid[0].shape[-1]).expand(len(x), -1, -1)
    for weights in model.paid:
        flow = torch.einsum("nij,njk->nik", 0.5 * weights.mean(1) + 0.5 * torch.eye(flow.shape[-1]), flow)
    return flow


def test_rows_of_a_sequence() -> None:
    torch.manual_seed(0)
    model, x = Tokens(own=False).eval(), torch.rand(3, 5, 4)
    found = AttentionRollout(model).attribute(x)
    assert found.shape == x.shape
    torch.testing.assert_close(found, rolled(model, x).mean(1)[:, :, None].expand(3, 5, 4))
    torch.testing.assert_close(found[:, :, 0].sum(1), torch.ones(3))


def test_a_token_for_the_class_and_squares_of_an_image() -> None:
    torch.manual_seed(1)
    model, x = Tokens(own=True).eval(), torch.rand(2, 1, 6, 6)
    found = AttentionRollout(model).attribute(x)
    heat = rolled(model, x)[:, 0, 1:].reshape(2, 1, 3, 3)
    expected = nn.functional.interpolate(heat, size=(6, 6), mode="bilinear", align_corners=False)
    torch.testing.assert_close(found, expected)


def test_what_has_no_attention_is_refused() -> None:
    with pytest.raises(InputError, match="without attention"):
        AttentionRollout(nn.Sequential(nn.Flatten(), nn.Linear(4, 3))).attribute(torch.rand(1, 2, 2))
    odd = AttentionRollout(nn.Sequential(nn.Unflatten(1, (1, 36)), nn.Unflatten(2, (6, 6)), Tokens(own=False)))
    with pytest.raises(InputError, match="got 9 tokens for samples"):
        odd.attribute(torch.rand(1, 36))


def test_it_compares_with_others() -> None:
    torch.manual_seed(2)
    model, x = VisionTransformer(8, 1, 2, 8, "layer").eval(), torch.rand(2, 3, 32, 32)
    table = pm.compare(model, x, ["saliency", AttentionRollout(model)], metrics=["deletion"])
    assert len(table.rows) == 2
