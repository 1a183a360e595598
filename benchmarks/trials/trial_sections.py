"""Sections of trials: a method is ranked in a section if it has values in all its trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.trials.hand_set_networks import HAND_SET
from benchmarks.trials.picture_grids import Photographs, find_data_sets, grid_trial, metric_trial
from benchmarks.trials.tetrominoes import ALPHA
from benchmarks.trials.trained_networks import NetworkKind, tetrominoes
from benchmarks.trials.trial import Trial
from proofmap.errors import InputError


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


def chosen(sections: Sequence[Section], names: Sequence[str]) -> list[Section]:
    """Return the sections with only the named trials. A section without one of them is left out."""
    known = [name for section in sections for name in section.trials]
    for name in names:
        if name not in known:
            raise InputError(f"got the trial {name!r}, expected one of {', '.join(known)}")
    kept = [Section(s.title, {name: s.trials[name] for name in s.trials if name in names}) for s in sections]
    return [section for section in kept if section.trials]


def _of_pictures(make: Callable[[Photographs, Path], Trial], of: Photographs, place: Path, folder: Path) -> Trial:
    return make(of, place)


def _by_hand(name: str, folder: Path) -> Trial:
    return HAND_SET[name]()


def _tetrominoes(title: str, kind: NetworkKind) -> Section:
    trials = {f"{one}-{noise}-{kind}": partial(tetrominoes, one, noise, kind) for one, noise in ALPHA}
    return Section(title, trials)
