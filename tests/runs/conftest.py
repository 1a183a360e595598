"""Fixtures of the run tests."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest


@pytest.fixture(scope="module")
def without_drawings() -> Iterator[None]:
    """Replace the figures, which take longer than these runs."""
    with patch("proofmap.runs.totals_figure.draw", lambda totals: b""):
        yield
