"""Every activation of one scalar in torch.nn is read, and is part of the table of test models."""

import pytest
from torch import nn
from torch.nn.modules import activation

from tests.models import MODELS

# Functions of several entries have their own tests (tests/graph/torch/operators/test_layers.py).
TOGETHER = ("GLU", "Softmax", "Softmin", "Softmax2d", "LogSoftmax", "MultiheadAttention")


@pytest.fixture(scope="module")
def met() -> set[type[nn.Module]]:
    return {type(module) for case in MODELS.values() for module in case.build().modules()}


@pytest.mark.parametrize("name", sorted({*activation.__all__} - {*TOGETHER}))
def test_every_activation_is_among_the_models(name: str, met: set[type[nn.Module]]) -> None:
    assert getattr(nn, name) in met
