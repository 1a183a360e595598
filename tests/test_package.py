"""The release: the wheel contains all files, and the source archive builds the same wheel.

`make release` tries the wheel in an empty environment.
"""

import zipfile
from pathlib import Path

import pytest

from scripts import release

pytestmark = pytest.mark.slow


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the content of each file in a wheel."""
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.copied(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.packed(tree, tmp_path_factory.mktemp("wheel"))


def test_every_file_of_the_package_is_in_the_wheel(tree: Path, wheel: Path) -> None:
    """Weights, digits, templates, notices: setuptools omits a file of a kind that it was not told about."""
    held = contents(wheel)
    files = {str(path.relative_to(tree / "src")) for path in (tree / "src" / "proofmap").rglob("*") if path.is_file()}
    assert len(files) > 250
    assert sorted(name for name in files if name not in held and "__pycache__" not in name) == []


def test_a_notice_in_the_wheel_covers_everything_that_is_not_code(wheel: Path) -> None:
    """Weights, digits and lists of names: each is in the notice of its folder, which is among the licences."""
    held = contents(wheel)
    licences = [name for name in held if "/licenses/" in name]
    others = [Path(name) for name in held if Path(name).suffix in {".safetensors", ".npz", ".txt"}]
    packaged = [path for path in others if path.parts[1] in {"data", "zoo"}]
    assert len(licences) == 3
    assert len(packaged) == 7
    for path in packaged:
        assert path.name in held[next(name for name in licences if name.endswith(f"{path.parent}/NOTICE.md"))].decode()


def test_the_source_archive_makes_the_same_wheel(tree: Path, wheel: Path, tmp_path: Path) -> None:
    again = release.packed(release.unpacked(release.archived(tree, tmp_path), tmp_path), tmp_path)
    assert contents(again) == contents(wheel)
