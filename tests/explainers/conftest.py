"""A saved explanation, for tests of files."""

from pathlib import Path

import pytest

from tests.explainers.making import make_signed


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "e"
    make_signed((1, 2, 2), 2).save(path)
    return path
