"""A run with certificates, computed once and copied for each test, and a small dossier."""

import shutil
from datetime import date
from pathlib import Path

import pytest

from proofmap.dossier import dossier
from tests.dossier.making import BAD, REASON, digits_run, put, without


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = digits_run(tmp_path_factory.mktemp("run") / "results")
    put(folder, without(BAD, REASON))
    return folder


@pytest.fixture
def certified(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "results"))


@pytest.fixture(scope="package")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dossier of three digits, one of them without a certificate, checked by its own checker."""
    here = tmp_path_factory.mktemp("dossier")
    put(digits_run(here / "results", 3), without(2, REASON))
    made = dossier(here / "results", here / "dossier.zip", by="Ada", date=date(2026, 3, 1), progress=False)
    assert (made.certified, made.proven) == (2, "2 of 3 samples (66.6 %)")
    return here / "dossier.zip"
