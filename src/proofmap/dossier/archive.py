"""A zip whose bytes depend on its members alone, with a list of all of them and their hashes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

__all__ = ["MANIFEST", "Check", "Content", "pack"]

MANIFEST = "manifest.json"
_FORMAT = ("proofmap-dossier", 2)
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can state
_FILE = 0o100644 << 16  # a plain file that everybody may read
_PIECE = 2**20

Content: TypeAlias = "bytes | Path"
Check: TypeAlias = Mapping[str, str]  # the members "certificate", "model" and "input" that belong together


def pack(out: Path, members: Mapping[str, Content], checks: Sequence[Check], done: Callable[[], None]) -> None:
    """Write the members, sorted by name, and last the list that names them; `done` is called after each."""
    hashes = {}
    with ZipFile(out, "x") as file:
        for name in sorted(members):
            hashes[name] = _add(file, name, members[name])
            done()
        listed = {
            "format": _FORMAT[0],
            "version": _FORMAT[1],
            "certificates": [dict(one) for one in checks],
            "files": hashes,
        }
        _add(file, MANIFEST, (json.dumps(listed, indent=1, sort_keys=True) + "\n").encode())


def _add(file: ZipFile, name: str, content: Content) -> str:
    """Put one member in, piece by piece; its SHA-256."""
    info = ZipInfo(name, _LONG_AGO)
    info.compress_type, info.external_attr, info.create_system = ZIP_DEFLATED, _FILE, 3
    seen = sha256()
    if isinstance(content, bytes):
        seen.update(content)
        file.writestr(info, content)
        return seen.hexdigest()
    info.file_size = content.stat().st_size
    with content.open("rb") as source, file.open(info, "w") as target:
        while piece := source.read(_PIECE):
            seen.update(piece)
            target.write(piece)
    return seen.hexdigest()
