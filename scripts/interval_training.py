"""Training for proofs: the loss at an attack and a bound of it, mixed (MTL-IBP, De Palma et al. 2024).

An attack gives a lower bound of the worst loss in the ball, and interval arithmetic an upper bound (IBP, Gowal et al.
2018). The lower bound alone gives networks that cannot be proven. The upper bound alone is so large that it costs
accuracy. A small weight of the upper bound is enough for a verifier that is tighter than interval arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

_ATTACK_STEPS = 2
_ATTACK_STEP = 0.75  # share of the radius in one step


def mixed_loss(model: nn.Sequential, images: Tensor, labels: Tensor, eps: float, share: float) -> Tensor:
    """Return the loss at an attack, and with weight `share` the bound of the loss in the whole ball instead."""
    lower, upper = (images - eps).clamp(min=0), (images + eps).clamp(max=1)
    attacked = functional.cross_entropy(model(attack(model, lower, upper, labels)), labels)
    bounded = functional.cross_entropy(worst_margins(model, lower, upper, labels), labels)
    return (1 - share) * attacked + share * bounded


def worst_margins(model: nn.Sequential, lower: Tensor, upper: Tensor, labels: Tensor) -> Tensor:
    """Return upper bounds (N, classes) of every logit minus the label's, in the box from `lower` to `upper`.

    The last layer and the difference are one linear function, so that errors of the two logits do not add up.
    """
    *hidden, last = model
    assert isinstance(last, nn.Linear)
    for layer in hidden:
        lower, upper = interval(layer, lower, upper)
    middle, radius = (lower + upper) / 2, (upper - lower) / 2
    weight = last.weight - last.weight[labels].unsqueeze(1)  # (N, classes, features)
    bias = last.bias - last.bias[labels].unsqueeze(1)
    return (weight @ middle.unsqueeze(2) + weight.abs() @ radius.unsqueeze(2)).squeeze(2) + bias


def interval(layer: nn.Module, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of a layer's outputs: exact for monotone layers, and for each output of a linear layer."""
    if not isinstance(layer, nn.Conv2d | nn.Linear):
        return layer(lower), layer(upper)  # ReLU and Flatten
    assert layer.bias is not None
    middle = layer((lower + upper) / 2)
    positive = {"weight": layer.weight.abs(), "bias": torch.zeros_like(layer.bias)}
    radius = functional_call(layer, positive, ((upper - lower) / 2,))
    return middle - radius, middle + radius


def attack(model: nn.Module, lower: Tensor, upper: Tensor, labels: Tensor) -> Tensor:
    """Return points between `lower` and `upper` that raise the loss: projected gradient steps from a random start."""
    radius = (upper - lower) / 2
    point = lower + torch.rand_like(lower) * (upper - lower)
    for _ in range(_ATTACK_STEPS):
        point.requires_grad_()
        (slope,) = torch.autograd.grad(functional.cross_entropy(model(point), labels), point)
        point = torch.minimum(torch.maximum(point.detach() + _ATTACK_STEP * radius * slope.sign(), lower), upper)
    return point


def magnitude(model: nn.Module) -> Tensor:
    """Return the sum of all weights' magnitudes: small weights make tight intervals."""
    return torch.stack([weight.abs().sum() for weight in model.parameters() if weight.dim() > 1]).sum()
