"""Build the release: the source archive, and the wheel from it.

python scripts/release.py [--out dist]

setuptools builds both in a copy of the sources, so that files of an earlier build cannot get in. `make release` then
tries the wheel in an empty environment with scripts/try_release.py.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")


def copied(folder: Path) -> Path:
    """Copy everything that a build reads into the folder."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def archived(tree: Path, out: Path) -> Path:
    """Build the source archive of a tree."""
    return _built("sdist", tree, out)


def packed(tree: Path, out: Path) -> Path:
    """Build the wheel of a tree."""
    return _built("wheel", tree, out)


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack a source archive; return its tree."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def _built(kind: str, tree: Path, out: Path) -> Path:
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    words = [sys.executable, "-W", "ignore", "-c", code, str(out)]
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: setuptools could not build the {kind}:\n{done.stdout}{done.stderr}")
    return out / done.stdout.splitlines()[-1]


def main() -> None:
    """Build both; files of earlier builds in the folder are replaced."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for both")
    out: Path = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("proofmap-*.whl"), *out.glob("proofmap-*.tar.gz")):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tree").mkdir()
        archive = archived(copied(Path(folder) / "tree"), out)
        print(archive)
        print(packed(unpacked(archive, Path(folder) / "again"), out))


if __name__ == "__main__":
    main()
