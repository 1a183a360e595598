"""The results of one method, in a folder: what is there already is not computed again, and nothing is lost.

FOLDER/about.json          the method, hashes of model and images, and on which machines the results were made
FOLDER/maps-START.npy      attributions of some samples, with maps-START.json, their seconds
FOLDER/seconds.json        of one explanation, once all are there
FOLDER/METRIC.npy          a value for each sample
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofmap.errors import FileError
from proofmap.runs.folder import write

__all__ = ["Shelf"]

_MADE = "made"


@dataclass(frozen=True)
class Shelf:
    """A folder for what `about` says, made or continued on `machine`."""

    folder: Path
    about: Mapping[str, Any]
    machine: str

    def __post_init__(self) -> None:
        """Refuse a folder that holds something else."""
        kept = self._read("about")
        if kept is not None and {**kept, _MADE: None} != {**json.loads(json.dumps(self.about)), _MADE: None}:
            raise FileError(
                f"{self.folder} holds results of another method, model or images: choose another folder with --out, "
                "or delete this one"
            )

    def made(self) -> list[str]:
        """The machines that results were made on."""
        kept = self._read("about")
        return [] if kept is None else list(kept[_MADE])

    def array(self, name: str) -> NDArray[Any] | None:
        """What was put under that name, or None."""
        file = self.folder / f"{name}.npy"
        if not file.exists():
            return None
        found: NDArray[Any] = np.load(file, allow_pickle=False)
        return found

    def put_array(self, name: str, values: NDArray[Any]) -> None:
        """Keep an array."""
        stream = io.BytesIO()
        np.save(stream, values, allow_pickle=False)
        self._put(f"{name}.npy", stream.getvalue())

    def seconds(self, name: str = "seconds") -> float | None:
        """What was put under that name, or None."""
        found = self._read(name)
        return None if found is None else float(found)

    def put_seconds(self, seconds: float, name: str = "seconds") -> None:
        """Keep how long something took."""
        self._put(f"{name}.json", json.dumps(seconds).encode())

    def _read(self, name: str) -> Any:
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None

    def _put(self, name: str, content: bytes) -> None:
        made = self.made()
        if self.machine not in made:
            about = {**self.about, _MADE: [*made, self.machine]}
            write(self.folder / "about.json", (json.dumps(about, indent=1) + "\n").encode())
        write(self.folder / name, content)
