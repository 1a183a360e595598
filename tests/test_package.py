"""What is released: a wheel that has everything in it, that its source archive makes too, and that runs on its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.pages import ROOT

pytestmark = pytest.mark.slow
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")


def ran(*words: str, folder: Path, **environment: str) -> str:
    """What Python prints, in a folder."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(folder: Path, kind: str) -> Path:
    """What setuptools, which is installed, makes of a tree: "wheel" or "sdist"."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}('made')"
    ran("-W", "ignore", "-c", code, folder=folder)
    return next((folder / "made").glob("*.whl" if kind == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that nothing is built among them."""
    folder = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(tree: Path) -> Path:
    return built(tree, "wheel")


def test_every_file_of_the_package_is_in_the_wheel(tree: Path, wheel: Path) -> None:
    """Weights, digits, templates, notices: a file of a new kind that setuptools is not told about would be missing."""
    held = set(zipfile.ZipFile(wheel).namelist())
    files = {str(path.relative_to(tree / "src")) for path in (tree / "src" / "proofmap").rglob("*") if path.is_file()}
    assert len(files) > 250
    assert sorted(name for name in files if name not in held and "__pycache__" not in name) == []
    assert sum("licenses" in name for name in held) == 3


def test_the_source_archive_makes_the_same_wheel(tree: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(built(tree, "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    again = built(next(tmp_path.iterdir()), "wheel")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_runs_on_its_own(wheel: Path, tmp_path: Path) -> None:
    """Unpacked before everything else, away from the tree: the demo explains digits and writes its report."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    alone = {"PYTHONPATH": str(tmp_path / "site")}
    where = ran("-c", "import proofmap; print(proofmap.__file__)", folder=tmp_path, **alone)
    assert Path(where.strip()).is_relative_to(tmp_path)
    said = ran("-m", "proofmap", "demo", "--out", "demo", folder=tmp_path, **alone)
    assert "network says" in said
    assert (tmp_path / "demo" / "report.html").is_file()
