"""Trials on real pictures: the grid pointing game (Böhle et al. 2021), and all metrics on single pictures.

A grid shows four pictures of different classes. The metric of a class is the share of positive attribution on its
picture. A grid uses only pictures that the network recognises there: alone on its quarter of a grey canvas, a picture
keeps its class, and an empty canvas has another class. Pictures with the highest probability come first. A network for
any input size gets full-size pictures on a canvas of twice the side. Other networks get pictures of half the side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.trials.trial import Trial
from benchmarks.trials.truth_metrics import Localisation
from proofmap.bench.benchmark_file import read
from proofmap.bench.benchmark_images import pictures
from proofmap.data.images import SUFFIXES
from proofmap.errors import InputError
from proofmap.metrics import METRICS
from proofmap.sources import read_model

_CANVAS_VALUE = 0.5  # value of an empty canvas
_NETWORK_BATCH = 50  # pictures in one call of the network
_CANDIDATES = 3000  # pictures from which the grids are chosen


@dataclass(frozen=True)
class Photographs:
    """A data set: the number of explained pictures, the radii of its results table, and methods that are too slow."""

    name: str
    file: str  # a glob that finds it
    count: int
    near: float
    far: float
    scale: int = 1  # side of a canvas in pictures: 2 if the network accepts any size
    grids: int = 0  # number of grids; none for grey digits on black
    without: tuple[str, ...] = ()


PHOTOGRAPHS = (
    Photographs("mnist", "t10k-images-idx3-ubyte*", 100, 0.04, 0.4),
    Photographs("cifar10", "test_batch.bin", 100, 0.008, 0.3, grids=25),
    Photographs("imagenet", "*", 60, 0.02, 0.1, scale=2, grids=10, without=("empirical", "eva")),
)


def find_data_sets(folder: Path) -> dict[Photographs, Path]:
    """Return the data sets in the folder or in its subfolders."""
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []
    there = {of: place for of in PHOTOGRAPHS for place in reversed(places) if _holds(place, of)}
    if not there:
        raise InputError(
            f"got the folder {folder}, expected one with files of MNIST, of CIFAR-10, or with pictures",
            arguments=("folder",),
        )
    return there


def _holds(place: Path, of: Photographs) -> bool:
    return any(of.name != "imagenet" or path.suffix.lower() in SUFFIXES for path in place.glob(of.file))


def metric_trial(of: Photographs, place: Path) -> Trial:
    """Return the trial of single pictures with all metrics of maps."""
    network, x = _read(of, place)
    x = x[: of.count]
    kinds = [kind for kind in METRICS.values() if kind.subject != "overlap" and not kind.needs_radius]
    metrics = tuple(kind() for kind in kinds)
    why = _too_slow(of)
    title = f"{of.name}, all metrics"
    return Trial(of.name, title, network, x, _classes(network, x), metrics, (0.0, 1.0), of.far, of.near, without=why)


def grid_trial(of: Photographs, place: Path) -> Trial:
    """Return the trial of grids of four pictures. Each grid is explained for each of its classes."""
    network, x = _read(of, place)
    x = _surest_first(network, x)
    small = x if of.scale == 2 else F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
    classes = _classes(network, x)
    known = torch.stack([_classes(network, _canvas(small, quarter)) == classes for quarter in range(4)])
    known &= classes != _classes(network, torch.full_like(_canvas(small[:1], 0), _CANVAS_VALUE))
    chosen = list(_choose(classes, known, of.grids))
    if not chosen:
        raise InputError(f"the network knows too few pictures of {place} on a quarter of a canvas, expected four")
    canvas = torch.stack([_together(small[list(four)]) for four in chosen])
    height, width = small.shape[-2:]
    truth = torch.zeros(len(chosen), 4, *canvas.shape[-2:])
    for quarter in range(4):
        rows, columns = _quarter(quarter, height, width)
        truth[:, quarter, rows, columns] = 1
    asked = classes[torch.tensor(chosen)].flatten()  # (4 G,)
    metric = Localisation(truth=truth.flatten(0, 1))
    each, why = canvas.repeat_interleave(4, dim=0), _too_slow(of)
    title = f"{of.name}, grids of four"
    return Trial(f"grid-{of.name}", title, network, each, asked, (metric,), (0.0, 1.0), of.far, of.near, without=why)


def _too_slow(of: Photographs) -> dict[str, str]:
    return dict.fromkeys(of.without, "it needs a bound, or many samples, for each of 50176 pixels")


def _read(of: Photographs, place: Path) -> tuple[nn.Module, Tensor]:
    """Return the network and the test pictures of the data set's table of results."""
    spec = replace(read(f"table1-{of.name}"), count=_CANDIDATES)
    network = read_model(f"zoo:{spec.model}").network
    assert isinstance(network, nn.Module)
    return network, pictures(spec, place, quick=False)


def _classes(network: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([network(piece).argmax(1) for piece in x.split(_NETWORK_BATCH)])


def _surest_first(network: nn.Module, x: Tensor) -> Tensor:
    """Sort pictures by the probability of their predicted class, highest first."""
    with torch.no_grad():
        sure = torch.cat([network(piece).softmax(1).amax(1) for piece in x.split(_NETWORK_BATCH)])
    return x[sure.argsort(descending=True, stable=True)]


def _quarter(quarter: int, height: int, width: int) -> tuple[slice, slice]:
    top, left = height * (quarter // 2), width * (quarter % 2)
    return slice(top, top + height), slice(left, left + width)


def _canvas(small: Tensor, quarter: int) -> Tensor:
    """Return each picture on one quarter of a grey canvas."""
    height, width = small.shape[-2:]
    rows, columns = _quarter(quarter, height, width)
    canvas = small.new_full((*small.shape[:2], 2 * height, 2 * width), _CANVAS_VALUE)
    canvas[..., rows, columns] = small
    return canvas


def _together(four: Tensor) -> Tensor:
    """Join four pictures (4, C, H, W) to a grid."""
    return torch.cat([torch.cat([four[0], four[1]], dim=2), torch.cat([four[2], four[3]], dim=2)], dim=1)


def _choose(classes: Tensor, known: Tensor, count: int) -> Iterator[tuple[int, ...]]:
    """Yield up to `count` groups of four pictures with different classes. No picture is used twice.

    known (4, N): whether the network recognises a picture on a quarter.
    """
    left = list(range(len(classes)))
    for _ in range(count):
        four: list[int] = []
        for quarter in range(4):
            taken = {int(classes[one]) for one in four}
            fits = [k for k in left if k not in four and bool(known[quarter, k]) and int(classes[k]) not in taken]
            if not fits:
                return
            four.append(fits[0])
        left = [k for k in left if k not in four]
        yield tuple(four)
