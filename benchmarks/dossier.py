"""Dossiers: the process time to make one and to check it with numpy alone, and its size.

    python benchmarks/dossier.py                   # packaged digits
    python benchmarks/dossier.py --data FOLDER     # the first images of MNIST's test set

The checker is copied from the dossier into an empty folder. There it runs in a Python with numpy alone; the benchmark
first makes sure that neither torch nor proofmap can be imported.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

import numpy as np

import proofmap as pm

_MODEL = "zoo:mnist_mlp"


def main() -> None:
    """Make a run and its dossier, and check the dossier."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with MNIST's official files")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--eps", default="0.01")
    parser.add_argument("--groups", default="grid:12")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        images, labels = pm.data.digits() if args.data is None else pm.data.mnist(args.data, "test")
        np.savez(here / "digits.npz", images=images[: args.count].numpy(), labels=labels[: args.count].numpy())
        words = ["run", "digits.npz", "--model", _MODEL, "--eps", args.eps, "--groups", args.groups, "--certificates"]
        made = _seconds([sys.executable, "-m", "proofmap", *words, "--out", "results"], here)
        packed = _seconds([sys.executable, "-m", "proofmap", "dossier", "results", "--out", "dossier.zip"], here)
        checked = _check(here)
        with ZipFile(here / "dossier.zip") as archive:
            sizes = [entry.file_size for entry in archive.infolist() if entry.filename.startswith("certificates/")]
        whole = (here / "dossier.zip").stat().st_size
    print(f"{_MODEL}, {args.count} digits, ε = {args.eps}, groups {args.groups}: {len(sizes)} certificates")
    print(f"run with certificates    {made:8.1f} s")
    print(f"dossier, checks included {packed:8.1f} s")
    print(f"check, bare Python       {checked:8.1f} s   {checked / max(len(sizes), 1):.2f} s a certificate")
    print(f"dossier                  {whole / 1e6:8.2f} MB")
    print(f"certificates             {sum(sizes) / 1e6:8.2f} MB, largest {max(sizes) / 1e3:.1f} kB")


def _check(here: Path) -> float:
    """Return the process time of check.py in an empty folder, where neither torch nor proofmap can be imported."""
    bare, site = here / "bare", here / "site"
    bare.mkdir()
    site.mkdir()
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (site / name).symlink_to(installed / name)
    with ZipFile(here / "dossier.zip") as archive:
        archive.extract("check.py", bare)
    python = [sys.executable, "-S"]  # without the installed packages
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for name in ("torch", "proofmap"):
        found = subprocess.run(
            [*python, "-c", f"import {name}"], cwd=bare, env=environment, capture_output=True, check=False
        )
        assert b"ModuleNotFoundError" in found.stderr, f"{name} is there: the machine is not bare"
    return _seconds([*python, "check.py", str(here / "dossier.zip")], bare, **environment)


def _seconds(command: list[str], folder: Path, **environment: str) -> float:
    """Return the process time of a command in seconds; stop with its output if it fails."""
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=environment or None, capture_output=True, text=True, check=False)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime
    if done.returncode:
        said = done.stdout[-2000:] + done.stderr[-2000:]
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{said}")
    return seconds


if __name__ == "__main__":
    main()
