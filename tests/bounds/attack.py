"""Points at which bounds must hold: random samples, and points from projected gradient ascent."""

import torch
from torch import Tensor

from proofmap import Family, Graph


def sampled(graph: Graph, family: Family, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return deltas (count, N, *shape) and logits (count, N, classes)."""
    deltas = family.sample(count, torch.Generator().manual_seed(seed))
    return deltas, graph((family.x + deltas).flatten(0, 1)).reshape(count, family.count, -1)


def climbed(graph: Graph, family: Family, steps: int = 12) -> Tensor:
    """Return logits (2 · classes, N, classes) at points that maximise and minimise each class by gradient steps."""
    delta = climbed_points(graph, family, steps)
    return graph((family.x + delta).flatten(0, 1)).reshape(2 * graph.classes, family.count, graph.classes)


def climbed_points(graph: Graph, family: Family, steps: int) -> Tensor:
    """Return the deltas (2 · classes, N, *shape) of these points."""
    classes = graph.classes
    sign = torch.cat([torch.ones(classes), -torch.ones(classes)]).to(family.x)
    which = torch.arange(classes).repeat(2)
    delta = torch.zeros(2 * classes, *family.x.shape, dtype=family.x.dtype)
    reach = (family.upper - family.lower).flatten(1).amax(1).reshape(-1, *(1,) * (family.x.ndim - 1))
    for step in range(steps):
        delta.requires_grad_()
        with torch.enable_grad():
            logits = graph((family.x + delta).flatten(0, 1)).reshape(2 * classes, family.count, classes)
            (slope,) = torch.autograd.grad((logits[torch.arange(2 * classes), :, which] * sign[:, None]).sum(), delta)
        slope = slope.nan_to_num(0.0)  # a square root has none at zero
        length = (
            slope.flatten(2)
            .norm(dim=2)
            .clamp(min=1e-12)
            .reshape(2 * classes, family.count, *(1,) * (family.x.ndim - 1))
        )
        move = slope.sign() if family.norm == float("inf") else slope / length
        delta = family.project((delta + reach / (1 + step) * move).detach())
    return delta
