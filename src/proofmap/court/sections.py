"""The trials of the court, in sections: a method that stands in all trials of a section has a rank there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proofmap.court.handset_networks import HAND
from proofmap.court.picture_grids import Photographs, found, grids, judged
from proofmap.court.tetrominoes import ALPHA
from proofmap.court.trained_networks import Kind, tetrominoes
from proofmap.court.trial import Trial

__all__ = ["Section", "known", "sections"]


@dataclass(frozen=True)
class Section:
    """Trials of one kind by name, each made in a folder of its own."""

    title: str
    trials: Mapping[str, Callable[[Path], Trial]]


def known() -> list[Section]:
    """What needs no data: networks set by hand, and networks trained on images of tetrominoes."""
    return [
        Section("By hand", {name: partial(_by_hand, name) for name in HAND}),
        _tetrominoes("Tetrominoes, dense", "mlp"),
        _tetrominoes("Tetrominoes, convolutional", "cnn"),
    ]


def sections(folder: Path | None = None) -> list[Section]:
    """What needs no data, and what the data in the folder allow: grids of four pictures, and all metrics."""
    if folder is None:
        return known()
    there = found(folder)
    four = {f"grid-{of.name}": partial(_of_pictures, grids, of, place) for of, place in there.items() if of.grids}
    alone = {of.name: partial(_of_pictures, judged, of, place) for of, place in there.items()}
    titled = [Section(title, trials) for title, trials in (("Grids of four", four), ("All metrics", alone)) if trials]
    return [*known(), *titled]


def _of_pictures(make: Callable[[Photographs, Path], Trial], of: Photographs, place: Path, folder: Path) -> Trial:
    return make(of, place)


def _by_hand(name: str, folder: Path) -> Trial:
    return HAND[name]()


def _tetrominoes(title: str, kind: Kind) -> Section:
    trials = {f"{one}-{noise}-{kind}": partial(tetrominoes, one, noise, kind) for one, noise in ALPHA}
    return Section(title, trials)
