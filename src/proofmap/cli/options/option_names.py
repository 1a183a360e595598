"""The names that options take, for help, completion and a first look at what was typed.

The tables that hold what they stand for need torch, which nobody who asks for help waits for; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources import files

from proofmap.registry import JUDGES

BOUNDS = ("ibp", "forward", "backward", "alpha", "crown-ibp", "exact", "crown")
SEARCH = "exact"  # of them the one that takes limits
METRICS = tuple(name for name, judge in JUDGES.items() if judge.maps)
FORMATS = (".csv", ".parquet", ".npz", ".zarr")
NORMS = ("1", "2", "inf")
LAYOUTS = ("NCHW", "NHWC")
ENGINES = ("local", "ray")
WHICH = ("all", "top", "none")  # groups whose claims are written
ZOO = "zoo:"
COURT = "court"  # beside the benchmarks: every method before judges that know the truth


def zoo() -> list[str]:
    """The models of the package: each has a TOML that says how pictures become its input."""
    return _tables("zoo")


def benches() -> list[str]:
    """The benchmarks of the package."""
    return _tables("bench", "specs")


def among(names: Iterable[str]) -> Callable[[], list[str]]:
    """What the shell completes a value to."""
    return lambda: list(names)


def models(incomplete: str) -> list[str]:
    """What the shell completes a model to, once something is typed: before that, the user's files are offered."""
    return [f"{ZOO}{name}" for name in zoo()] if incomplete else []


def _tables(*folders: str) -> list[str]:
    folder = files("proofmap").joinpath(*folders)
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
