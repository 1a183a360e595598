"""The names that options accept, for help texts, shell completion and early checks.

The library's own tables need torch, and help must not wait for it. A test compares these names with those tables.
"""

from importlib.resources import files

from proofmap.registry import METRIC_ENTRIES

BOUND_NAMES = ("ibp", "forward", "backward", "alpha", "crown-ibp", "exact", "crown")
SEARCH_BOUNDS = "exact"  # the method of BOUND_NAMES that accepts --seconds and --gap
MAP_METRICS = tuple(name for name, entry in METRIC_ENTRIES.items() if entry.maps)
COMPARED_METRICS = (*MAP_METRICS, *(name for name in METRIC_ENTRIES if name.startswith(("reason-", "contrast-"))))
EXPORT_SUFFIXES = (".csv", ".parquet", ".npz", ".zarr")
NORMS = ("1", "2", "inf")
LAYOUTS = ("NCHW", "NHWC")
ENGINES = ("local", "ray")
CLAIMED_GROUPS = ("all", "top", "none")  # the groups whose AO(B_u) are claimed
ZOO_PREFIX = "zoo:"
OLD_TRIALS_NAME = "court"  # the earlier name of the trials with known ground truth, which `proofmap bench` ran


def zoo() -> list[str]:
    """Return the names of the packaged models. Each has a TOML file with the preparation of its inputs."""
    return _tables("zoo")


def benches() -> list[str]:
    """Return the names of the packaged benchmarks."""
    return _tables("bench", "specs")


def models(incomplete: str) -> list[str]:
    """Complete a model's name once something is typed. Before that, the shell offers the user's files."""
    return [f"{ZOO_PREFIX}{name}" for name in zoo()] if incomplete else []


def _tables(*folders: str) -> list[str]:
    folder = files("proofmap").joinpath(*folders)
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
