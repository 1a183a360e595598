"""Every activation that torch.nn has: read and tested wherever the table of models is, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.modules import activation

from proofmap.errors import UnsupportedError
from proofmap.graph import bounded, trace
from tests.models import MODELS

# Products of two branches, which have no rule: inside a network they are refused by name.
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "GLU": (nn.GLU, "aten.glu"),
    "Softmax": (lambda: nn.Softmax(1), "softmax"),
    "Softmin": (lambda: nn.Softmin(1), "softmax"),
    "Softmax2d": (nn.Softmax2d, "softmax"),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), "log_softmax"),
}
ATTENTION = "MultiheadAttention"  # a layer of several inputs, no function of one tensor


@pytest.fixture(scope="module")
def met() -> set[type[nn.Module]]:
    return {type(module) for case in MODELS.values() for module in case.build().modules()}


@pytest.mark.parametrize("name", sorted({*activation.__all__} - {*REFUSED, ATTENTION}))
def test_every_activation_is_among_the_models(name: str, met: set[type[nn.Module]]) -> None:
    assert getattr(nn, name) in met


@pytest.mark.parametrize("name", REFUSED)
def test_the_others_are_refused_by_name(name: str) -> None:
    make, operation = REFUSED[name]
    shape = (4, 2, 2) if name == "Softmax2d" else (4,)
    model = nn.Sequential(make(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.rand(2, *shape))
    with pytest.raises(UnsupportedError) as caught:
        bounded(trace(model, torch.rand(1, *shape)))
    ((node, missing),) = caught.value.nodes
    assert node.partition("#")[0] == "0"
    assert operation in missing
