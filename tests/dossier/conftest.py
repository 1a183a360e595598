"""A run with certificates, made once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.dossier.making import certify, digits_run


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without certificates."""
    return digits_run(tmp_path_factory.mktemp("run") / "results")


@pytest.fixture
def bare(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "results"))


@pytest.fixture
def certified(bare: Path) -> Path:
    certify(bare)
    return bare
