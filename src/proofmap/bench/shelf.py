"""The results of one method, in a folder: what is there already is not computed again, and nothing is lost.

FOLDER/about.json          the method, hashes of model and images, and on which machines the results were made
FOLDER/maps-START.npy      attributions of some samples, with maps-START.json, their seconds
FOLDER/seconds.json        of one explanation, once all are there
FOLDER/METRIC.npy          a value for each sample, with METRIC.json, the metric's settings
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
from proofmap.metrics import Metric
from proofmap.records import JSON
from proofmap.runs.folder import write

__all__ = ["Shelf"]

_ABOUT, _MADE = "about", "made"


@dataclass(frozen=True)
class Shelf:
    """A folder for what `about` says, made or continued on `machine`."""

    folder: Path
    about: Mapping[str, Any]
    machine: str

    def __post_init__(self) -> None:
        """Refuse a folder that holds something else."""
        kept = self._about()
        if kept is not None and {**kept, _MADE: None} != {**_plain(self.about), _MADE: None}:
            raise FileError(
                f"{self.folder} holds results of another method, model or images: choose another folder with --out, "
                "or delete this one"
            )

    def check(self, metric: Metric[Any]) -> None:
        """Refuse values of a metric that were measured with other settings, or nobody knows with which."""
        file = self.folder / f"{metric.name}.npy"
        if not file.exists():
            return
        kept, wanted = self._read(metric.name), _plain(metric.settings())
        if not isinstance(kept, dict):
            said = "with settings that are not on record"
        elif kept != wanted:
            name = next(name for name in {**wanted, **kept} if kept.get(name) != wanted.get(name))
            said = f"with {name} = {kept.get(name)}, expected {wanted.get(name)}"
        else:
            return
        raise FileError(f"{file} was measured {said}: delete it to have it measured again, or choose another --out")

    def made(self) -> list[str]:
        """The machines that results were made on."""
        kept = self._about()
        return [] if kept is None else list(kept[_MADE])

    def values(self, metric: Metric[Any]) -> NDArray[Any] | None:
        """What the metric says of each sample, or None where it was not measured."""
        return self.array(metric.name)

    def put_values(self, metric: Metric[Any], values: NDArray[Any]) -> None:
        """Keep what a metric says, and before it the settings: no values stand without them."""
        self._put(f"{metric.name}.json", _json(metric.settings()))
        self.put_array(metric.name, values)

    def array(self, name: str) -> NDArray[Any] | None:
        """What was put under that name, or None."""
        file = self.folder / f"{name}.npy"
        if not file.exists():
            return None
        try:
            found = np.load(file, allow_pickle=False)
        except (OSError, EOFError, ValueError) as error:
            raise _damaged(file, file) from error
        if not isinstance(found, np.ndarray):
            raise _damaged(file, file)
        return found

    def put_array(self, name: str, values: NDArray[Any]) -> None:
        """Keep an array."""
        stream = io.BytesIO()
        np.save(stream, values, allow_pickle=False)
        self._put(f"{name}.npy", stream.getvalue())

    def seconds(self, name: str = "seconds") -> float | None:
        """What was put under that name, or None."""
        found, file = self._read(name), self.folder / f"{name}.json"
        if found is not None and not isinstance(found, int | float):
            raise _damaged(file, file)
        return None if found is None else float(found)

    def put_seconds(self, seconds: float, name: str = "seconds") -> None:
        """Keep how long something took."""
        self._put(f"{name}.json", json.dumps(seconds).encode())

    def _about(self) -> dict[str, Any] | None:
        found = self._read(_ABOUT)
        if found is not None and not (isinstance(found, dict) and isinstance(found.get(_MADE), list)):
            raise _damaged(self.folder / f"{_ABOUT}.json", self.folder)
        return found

    def _read(self, name: str) -> Any:
        file = self.folder / f"{name}.json"
        if not file.exists():
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(file, self.folder if name == _ABOUT else file) from error

    def _put(self, name: str, content: bytes) -> None:
        made = self.made()
        if self.machine not in made:
            write(self.folder / f"{_ABOUT}.json", _json({**self.about, _MADE: [*made, self.machine]}))
        write(self.folder / name, content)


def _json(found: Mapping[str, JSON]) -> bytes:
    return (json.dumps(found, indent=1) + "\n").encode()


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """As it is when it comes back from a file."""
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def _damaged(file: Path, whole: Path) -> FileError:
    """What cannot be read, and what has to be deleted for it."""
    return FileError(f"{file} is damaged: delete {'it' if whole == file else whole}, and run again")
