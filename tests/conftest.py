"""Every test starts with the same random state, so that its result does not depend on the tests before it."""

import random

import numpy as np
import pytest
import torch

_SEED = 2026


def _seed() -> None:
    random.seed(_SEED)
    np.random.seed(_SEED)  # noqa: NPY002  other packages draw from this state
    torch.manual_seed(_SEED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed before fixtures are made."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Seed before the test: fixtures that it shares with others draw numbers only once."""
    _seed()
