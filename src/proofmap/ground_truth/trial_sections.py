"""Sections of trials: a method is ranked in a section if it has values in all its trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proofmap.ground_truth.hand_set_networks import HAND_SET
from proofmap.ground_truth.picture_grids import Photographs, find_data_sets, grid_trial, metric_trial
from proofmap.ground_truth.tetrominoes import ALPHA
from proofmap.ground_truth.trained_networks import NetworkKind, tetrominoes
from proofmap.ground_truth.trial import Trial


@dataclass(frozen=True)
class Section:
    """Trials of one kind by name. Each is created in its own folder."""

    title: str
    trials: Mapping[str, Callable[[Path], Trial]]


def sections_without_data() -> list[Section]:
    """Return the trials that need no data: networks with hand-set weights, and networks trained on tetrominoes."""
    return [
        Section("By hand", {name: partial(_by_hand, name) for name in HAND_SET}),
        _tetrominoes("Tetrominoes, dense", "mlp"),
        _tetrominoes("Tetrominoes, convolutional", "cnn"),
    ]


def sections(folder: Path | None = None) -> list[Section]:
    """Return the trials without data, and those on the data sets in the folder: picture grids and all metrics."""
    if folder is None:
        return sections_without_data()
    data_sets = find_data_sets(folder)
    four = {
        f"grid-{of.name}": partial(_of_pictures, grid_trial, of, place) for of, place in data_sets.items() if of.grids
    }
    alone = {of.name: partial(_of_pictures, metric_trial, of, place) for of, place in data_sets.items()}
    titled = [Section(title, trials) for title, trials in (("Grids of four", four), ("All metrics", alone)) if trials]
    return [*sections_without_data(), *titled]


def _of_pictures(make: Callable[[Photographs, Path], Trial], of: Photographs, place: Path, folder: Path) -> Trial:
    return make(of, place)


def _by_hand(name: str, folder: Path) -> Trial:
    return HAND_SET[name]()


def _tetrominoes(title: str, kind: NetworkKind) -> Section:
    trials = {f"{one}-{noise}-{kind}": partial(tetrominoes, one, noise, kind) for one, noise in ALPHA}
    return Section(title, trials)
