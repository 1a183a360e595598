"""The models and samples that most of these tests are about."""

import pytest
from torch import Tensor, nn

import proofmap as pm
from tests.explainers.baselines.setting import SHAPE, drawn, seeded


@pytest.fixture(scope="session")
def x() -> Tensor:
    return drawn(3, *SHAPE)


@pytest.fixture(scope="session")
def linear() -> nn.Sequential:
    return seeded(nn.Flatten, lambda: nn.Linear(128, 4))


@pytest.fixture(scope="session")
def cnn() -> nn.Sequential:
    return seeded(
        lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1),
        nn.ReLU,
        lambda: nn.Conv2d(3, 4, 2),
        nn.ReLU,
        nn.Flatten,
        lambda: nn.Linear(36, 12),
        nn.Tanh,
        lambda: nn.Linear(12, 4),
        seed=8,  # with a positive map for every class of interest
    )


@pytest.fixture(scope="session")
def graph(cnn: nn.Sequential, x: Tensor) -> pm.Graph:
    return pm.trace(cnn, x)
