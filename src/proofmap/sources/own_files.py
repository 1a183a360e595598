"""Names of the files that Proofmap writes, so that a folder of samples can contain results and is still read right."""

from pathlib import Path

# files of a run
MANIFEST = "manifest.json"
FORMAT = "proofmap-run"  # the first entry of the manifest
MASK = "mask.npy"
DRAWING = "totals.png"

_MAP = ".map.png"  # a picture of an explanation; it lies beside the explanation's file

# points that `verify` found; each lies beside its record, such as x.refuted.json
REFUTED, VIOLATED = ".refuted", ".violated"


def written(path: Path) -> bool:
    """Return whether Proofmap wrote this file: a run's file beside its manifest, a map, or a point beside its record.

    The name alone is not enough: the file that belongs to it must be there.
    """
    if path.name in (MASK, DRAWING):
        return _is_manifest(path.with_name(MANIFEST))
    if path.stem.endswith((REFUTED, VIOLATED)):
        return path.with_suffix(".json").is_file()
    if not path.name.endswith(_MAP):
        return False
    stem = path.name.removesuffix(_MAP)  # it ends in the name of one of several inputs
    return any(path.with_name(f"{one}.proofmap").is_file() for one in (stem, stem.rpartition(".")[0]))


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return f'"{FORMAT}"'.encode() in file.read(100)
    except OSError:
        return False
