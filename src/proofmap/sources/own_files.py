"""What Proofmap itself wrote: results may lie among the samples they are of, and are none of them."""

from __future__ import annotations

from pathlib import Path

# of a run
MANIFEST = "manifest.json"
FORMAT = "proofmap-run"  # the manifest's first entry
MASK = "mask.npy"
DRAWING = "totals.png"

_MAP = ".map.png"  # of an explanation, which lies beside it

# of a point that verify found: a record, x.refuted.json, lies beside it
REFUTED, VIOLATED = ".refuted", ".violated"


def written(path: Path) -> bool:
    """Whether a file is a run's own, beside its manifest, an explanation's map, or a point that was found.

    By itself, a name proves nothing.
    """
    if path.name in (MASK, DRAWING):
        return _is_manifest(path.with_name(MANIFEST))
    if path.stem.endswith((REFUTED, VIOLATED)):
        return path.with_suffix(".json").is_file()
    return path.name.endswith(_MAP) and path.with_name(f"{path.name.removesuffix(_MAP)}.proofmap").is_file()


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return f'"{FORMAT}"'.encode() in file.read(100)
    except OSError:
        return False
