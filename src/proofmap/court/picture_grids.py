"""Trials on real pictures: a grid of four, of which one shows the class, and all the metrics there are.

The grid (Böhle et al. 2021): four pictures of different classes; for each class, how much of a map's positive
attribution lies on its picture. Only pictures that the network knows there are taken: alone on their quarter of an
otherwise grey canvas they get the class that they get by themselves, and that an empty canvas does not get; those it
is surest of come first. A network that takes any size gets them as they are, on a canvas of twice the side; another one
half as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proofmap.bench.benchmark_file import read
from proofmap.bench.benchmark_images import pictures
from proofmap.court.ground_truth import Localisation
from proofmap.court.trial import Trial
from proofmap.data.images import SUFFIXES
from proofmap.errors import InputError
from proofmap.metrics import METRICS
from proofmap.sources import read_model

__all__ = ["PHOTOGRAPHS", "Photographs", "found", "grids", "judged"]

_GREY = 0.5
_BATCH = 50
_LOOKED_AT = 3000  # pictures, of which a few are taken


@dataclass(frozen=True)
class Photographs:
    """A data set: how many pictures are explained, radii as in the tables of results, and what takes too long."""

    name: str
    file: str  # a glob that finds it
    count: int
    near: float
    far: float
    scale: int = 1  # of the side of a canvas: 2 where the network takes any size
    grids: int = 0  # none where pictures are of one colour, on black
    without: tuple[str, ...] = ()


PHOTOGRAPHS = (
    Photographs("mnist", "t10k-images-idx3-ubyte*", 100, 0.04, 0.4),
    Photographs("cifar10", "test_batch.bin", 100, 0.008, 0.3, grids=25),
    Photographs("imagenet", "*", 60, 0.02, 0.1, scale=2, grids=10, without=("empirical", "eva")),
)


def found(folder: Path) -> dict[Photographs, Path]:
    """The data sets in the folder, or in one of those in it."""
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


def judged(of: Photographs, place: Path) -> Trial:
    """Decisions on single pictures before every metric of maps."""
    network, x = _read(of, place)
    x = x[: of.count]
    judges = [kind for kind in METRICS.values() if kind.subject != "overlap" and not kind.needs_radius]
    made = tuple(kind() for kind in judges)
    why = _too_many(of)
    title = f"{of.name}, all metrics"
    return Trial(of.name, title, network, x, _classes(network, x), made, (0.0, 1.0), of.far, of.near, without=why)


def grids(of: Photographs, place: Path) -> Trial:
    """Grids of four pictures, each explained for each of its classes."""
    network, x = _read(of, place)
    x = _surest_first(network, x)
    small = x if of.scale == 2 else F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
    classes = _classes(network, x)
    known = torch.stack([_classes(network, _canvas(small, quarter)) == classes for quarter in range(4)])
    known &= classes != _classes(network, torch.full_like(_canvas(small[:1], 0), _GREY))
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
    judge = Localisation(truth=truth.flatten(0, 1))
    each, why = canvas.repeat_interleave(4, dim=0), _too_many(of)
    title = f"{of.name}, grids of four"
    return Trial(f"grid-{of.name}", title, network, each, asked, (judge,), (0.0, 1.0), of.far, of.near, without=why)


def _too_many(of: Photographs) -> dict[str, str]:
    return dict.fromkeys(of.without, "it takes a bound, or many samples, for each of 50176 pixels")


def _read(of: Photographs, place: Path) -> tuple[nn.Module, Tensor]:
    """The network of the data set's table of results, and the pictures that are reported on."""
    spec = replace(read(f"table1-{of.name}"), count=_LOOKED_AT)
    network = read_model(f"zoo:{spec.model}").network
    assert isinstance(network, nn.Module)
    return network, pictures(spec, place, quick=False)


def _classes(network: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([network(piece).argmax(1) for piece in x.split(_BATCH)])


def _surest_first(network: nn.Module, x: Tensor) -> Tensor:
    """The pictures by the probability of the class that they get."""
    with torch.no_grad():
        sure = torch.cat([network(piece).softmax(1).amax(1) for piece in x.split(_BATCH)])
    return x[sure.argsort(descending=True, stable=True)]


def _quarter(quarter: int, height: int, width: int) -> tuple[slice, slice]:
    top, left = height * (quarter // 2), width * (quarter % 2)
    return slice(top, top + height), slice(left, left + width)


def _canvas(small: Tensor, quarter: int) -> Tensor:
    """Each picture on its quarter, the rest grey."""
    height, width = small.shape[-2:]
    rows, columns = _quarter(quarter, height, width)
    canvas = small.new_full((*small.shape[:2], 2 * height, 2 * width), _GREY)
    canvas[..., rows, columns] = small
    return canvas


def _together(four: Tensor) -> Tensor:
    """Four pictures (4, C, H, W) as one."""
    return torch.cat([torch.cat([four[0], four[1]], dim=2), torch.cat([four[2], four[3]], dim=2)], dim=1)


def _choose(classes: Tensor, known: Tensor, count: int) -> Iterator[tuple[int, ...]]:
    """So many fours of pictures, of different classes, each known on its quarter (known: 4 x N), and none twice."""
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
