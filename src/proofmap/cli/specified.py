"""VNN-LIB files among a command's inputs: they bring their own balls, and are not mixed with samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proofmap.errors import InputError

__all__ = ["check_result", "specified"]

_BOX = (".vnnlib", ".vnnlib.gz")


def specified(inputs: Sequence[Path]) -> bool:
    """Whether the inputs are VNN-LIB files, all of them or none."""
    boxed = [path.name.lower().endswith(_BOX) for path in inputs]
    if any(boxed) and not all(boxed):
        raise InputError("got VNN-LIB files together with other inputs, expected one kind: run the command twice")
    return any(boxed)


def check_result(result: Path | None, count: int) -> None:
    """Refuse a result file that cannot be written, or that has not one specification to answer."""
    if result is None:
        return
    if count != 1:
        got = f"with {count} specifications" if count else "without a VNN-LIB file"
        raise InputError(f"got --result {got}, expected one: the file holds the answer to one")
    if result.is_dir() or not result.parent.is_dir():
        what = "it is a folder" if result.is_dir() else f"there is no folder {result.parent}"
        raise InputError(f"got --result {result}, expected a file that can be written: {what}")
