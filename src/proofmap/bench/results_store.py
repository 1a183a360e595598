"""The resumable folder with the results of one method in a benchmark: existing results are not computed again.

FOLDER/about.json          the method, the hashes of model and images, and the machines that made the results
FOLDER/maps-START.npy      attributions of a chunk of samples; maps-START.json: their seconds
FOLDER/seconds.json        seconds of one explanation, written at the end
FOLDER/METRIC.npy          a value for each sample; METRIC.json: the settings of the metric
"""

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
from proofmap.storage.resumable_folder import check_same_work, read_piece, record_differences, write_piece

_ABOUT_FILE, _MACHINES = "about.json", "made"


@dataclass(frozen=True)
class ResultsStore:
    """A folder for results of the work that `about` describes, created or continued on `machine`."""

    folder: Path
    about: Mapping[str, Any]
    machine: str

    def __post_init__(self) -> None:
        """Refuse a folder with results of other work."""
        about = self._about()
        if about is not None:
            earlier = {name: value for name, value in about.items() if name != _MACHINES}
            what = "results of another method, model or images"
            check_same_work(self.folder, earlier, self.about, what, arguments=("out",))

    def check(self, metric: Metric[Any]) -> None:
        """Refuse existing values of a metric that were measured with other or unknown settings."""
        file = self.folder / f"{metric.name}.npy"
        if not file.exists():
            return
        settings = read_piece(self.folder, f"{metric.name}.json", json.loads)
        how = "with unknown settings"
        if isinstance(settings, dict):
            different = record_differences(settings, json.loads(json.dumps(metric.settings())))
            if not different:
                return
            name, (measured, expected) = next(iter(different.items()))
            how = f"with {name} = {measured}, expected {expected}"
        raise FileError(
            f"{file} was measured {how}: delete it to measure it again, or choose another output folder",
            arguments=("out",),
        )

    def made(self) -> list[str]:
        """Return the machines that made the results."""
        about = self._about()
        return [] if about is None else list(about[_MACHINES])

    def values(self, metric: Metric[Any]) -> NDArray[Any] | None:
        """Return the values of a metric, or None if it was not measured."""
        return self.array(metric.name)

    def put_values(self, metric: Metric[Any], values: NDArray[Any]) -> None:
        """Store the settings of a metric, then its values, so that values always have settings."""
        self._put(f"{metric.name}.json", metric.settings())
        self.put_array(metric.name, values)

    def array(self, name: str) -> NDArray[Any] | None:
        """Return the array of a name, or None."""
        return read_piece(self.folder, f"{name}.npy", _array)

    def put_array(self, name: str, values: NDArray[Any]) -> None:
        """Store an array."""
        stream = io.BytesIO()
        np.save(stream, values, allow_pickle=False)
        self._put(f"{name}.npy", stream.getvalue())

    def seconds(self, name: str = "seconds") -> float | None:
        """Return a stored time in seconds, or None."""
        return read_piece(self.folder, f"{name}.json", _seconds)

    def put_seconds(self, seconds: float, name: str = "seconds") -> None:
        """Store a time in seconds."""
        self._put(f"{name}.json", json.dumps(seconds).encode())

    def _about(self) -> dict[str, Any] | None:
        return read_piece(self.folder, _ABOUT_FILE, _about, delete=f"{self.folder}")  # all files need it

    def _put(self, name: str, piece: bytes | Mapping[str, Any]) -> None:
        made = self.made()
        if self.machine not in made:
            write_piece(self.folder, _ABOUT_FILE, {**self.about, _MACHINES: [*made, self.machine]})
        write_piece(self.folder, name, piece)


def _about(content: bytes) -> dict[str, Any]:
    about = json.loads(content)
    if not isinstance(about, dict) or not isinstance(about.get(_MACHINES), list):
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
