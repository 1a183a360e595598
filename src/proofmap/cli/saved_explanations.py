"""Find the .proofmap files that `proofmap explain` saved."""

import re
from collections.abc import Iterator
from pathlib import Path

from proofmap.errors import InputError

_SUFFIX = ".proofmap"


def saved(path: Path) -> Iterator[Path]:
    """Yield the file, or the files of a folder in natural order: x2 comes before x10."""
    if not path.is_dir():
        yield path
        return
    written = (file for file in path.iterdir() if file.suffix == _SUFFIX)
    files = sorted(written, key=lambda file: [part.zfill(9) for part in re.split(r"(\d+)", file.name)])
    if not files:
        raise InputError(f"{path} has no {_SUFFIX} file in it, expected a folder of proofmap explain or run")
    yield from files
