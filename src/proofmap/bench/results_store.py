"""The results of one method, in a folder: what is there already is not computed again, and nothing is lost.

FOLDER/about.json          the method, hashes of model and images, and on which machines the results were made
FOLDER/maps-START.npy      attributions of some samples, with maps-START.json, their seconds
FOLDER/seconds.json        of one explanation, once all are there
FOLDER/METRIC.npy          a value for each sample, with METRIC.json, the metric's settings
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from proofmap.errors import FileError
from proofmap.metrics import Metric
from proofmap.storage.resumable_folder import record_differences, write_piece

__all__ = ["Shelf"]

_ABOUT, _MADE = "about.json", "made"

T = TypeVar("T")


@dataclass(frozen=True)
class Shelf:
    """A folder for results of the work that `about` describes, created or continued on `machine`."""

    folder: Path
    about: Mapping[str, Any]
    machine: str

    def __post_init__(self) -> None:
        """Refuse a folder that holds something else."""
        about = self._about()
        if about is not None and record_differences({**about, _MADE: None}, _as_read(self.about)):
            raise FileError(
                f"{self.folder} holds results of another method, model or images: choose another output folder, or "
                "delete this one",
                arguments=("out",),
            )

    def check(self, metric: Metric[Any]) -> None:
        """Refuse values of a metric that were measured with other settings, or nobody knows with which."""
        file = self.folder / f"{metric.name}.npy"
        if not file.exists():
            return
        settings = self._read(f"{metric.name}.json", json.loads)
        how = "with settings that are not on record"
        if isinstance(settings, dict):
            different = record_differences(settings, _as_read(metric.settings()))
            if not different:
                return
            name, (measured, expected) = next(iter(different.items()))
            how = f"with {name} = {measured}, expected {expected}"
        raise FileError(
            f"{file} was measured {how}: delete it to measure it again, or choose another output folder",
            arguments=("out",),
        )

    def made(self) -> list[str]:
        """The machines that results were made on."""
        about = self._about()
        return [] if about is None else list(about[_MADE])

    def values(self, metric: Metric[Any]) -> NDArray[Any] | None:
        """What the metric says of each sample, or None where it was not measured."""
        return self.array(metric.name)

    def put_values(self, metric: Metric[Any], values: NDArray[Any]) -> None:
        """Keep what a metric says, and before it the settings: no values stand without them."""
        self._put(f"{metric.name}.json", metric.settings())
        self.put_array(metric.name, values)

    def array(self, name: str) -> NDArray[Any] | None:
        """What was put under that name, or None."""
        return self._read(f"{name}.npy", _array)

    def put_array(self, name: str, values: NDArray[Any]) -> None:
        """Keep an array."""
        stream = io.BytesIO()
        np.save(stream, values, allow_pickle=False)
        self._put(f"{name}.npy", stream.getvalue())

    def seconds(self, name: str = "seconds") -> float | None:
        """What was put under that name, or None."""
        return self._read(f"{name}.json", _seconds)

    def put_seconds(self, seconds: float, name: str = "seconds") -> None:
        """Keep how long something took."""
        self._put(f"{name}.json", json.dumps(seconds).encode())

    def _about(self) -> dict[str, Any] | None:
        return self._read(_ABOUT, _about)

    def _read(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        """What a file holds, or None where it is not there; a damaged one is named, and what to delete for it."""
        try:
            return parse((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, RecursionError) as error:
            what = self.folder if name == _ABOUT else "it"  # nobody knows what the rest is about
            raise FileError(f"{self.folder / name} is damaged: delete {what}, and run again") from error

    def _put(self, name: str, piece: bytes | Mapping[str, Any]) -> None:
        made = self.made()
        if self.machine not in made:
            write_piece(self.folder, _ABOUT, {**self.about, _MADE: [*made, self.machine]})
        write_piece(self.folder, name, piece)


def _about(content: bytes) -> dict[str, Any]:
    about = json.loads(content)
    if not isinstance(about, dict) or not isinstance(about.get(_MADE), list):
        raise ValueError
    return about


def _array(content: bytes) -> NDArray[Any]:
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError
    return array


def _seconds(content: bytes) -> float:
    seconds = json.loads(content)
    if not isinstance(seconds, int | float):
        raise ValueError
    return float(seconds)


def _as_read(record: Mapping[str, Any]) -> dict[str, Any]:
    """As it is when it comes back from a file."""
    read: dict[str, Any] = json.loads(json.dumps(record))
    return read
