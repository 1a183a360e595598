"""Grids of four pictures: the quarter of each class, the choice of pictures, and the data sets of a folder."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.trials import picture_grids as photographs
from benchmarks.trials.picture_grids import PHOTOGRAPHS, find_data_sets, grid_trial, metric_trial
from benchmarks.trials.trial_sections import sections
from benchmarks.trials.truth_metrics import Localisation
from proofmap.errors import InputError
from proofmap.metrics import METRICS

SIDE = 8


class Brightest(nn.Module):
    """Four classes are the sums of the channels. A fifth class wins for an empty canvas."""

    def forward(self, x: Tensor) -> Tensor:
        sums = x.sum((2, 3))
        return torch.cat([sums, sums.mean(1, keepdim=True) + 1], dim=1)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Twelve pictures of the four classes in turn, for a network that recognises all of them."""
    x = torch.eye(4).repeat(3, 1)[:, :, None, None].repeat(1, 1, SIDE, SIDE)
    monkeypatch.setattr(photographs, "pictures", lambda spec, folder, quick: x)
    monkeypatch.setattr(photographs, "read_model", lambda name: SimpleNamespace(network=Brightest()))
    return x


def of(**changes: Any) -> photographs.Photographs:
    return replace(PHOTOGRAPHS[1], **{"grids": 2, **changes})


@pytest.mark.parametrize("scale", [1, 2])
def test_localisation_is_measured_in_the_quarter_of_the_class(shown: Tensor, scale: int) -> None:
    """The channel of the class has the value 1, its opposite 0, and a constant map a quarter."""
    trial = grid_trial(of(scale=scale), Path())
    assert trial.x.shape == (8, 4, scale * SIDE, scale * SIDE)
    assert sorted(trial.target[:4].tolist()) == [0, 1, 2, 3]
    (metric,) = trial.metrics
    assert isinstance(metric, Localisation)
    oracle = trial.x[torch.arange(8), trial.target][:, None] > 0
    for maps, value in ((oracle, 1.0), (~oracle, 0.0), (torch.ones_like(oracle), 0.25)):
        assert metric(trial.network, trial.x, trial.target, maps.float()).tolist() == pytest.approx([value] * 8)


def test_each_recognised_picture_is_used_once() -> None:
    classes = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0])
    known = torch.ones(4, 9, dtype=torch.bool)
    known[0, 0] = known[3, 3] = False
    assert list(photographs._choose(classes, known, 5)) == [(1, 0, 2, 7), (3, 4, 5, 6)]
    assert list(photographs._choose(classes, ~known, 5)) == []


def test_the_class_of_an_empty_canvas_is_not_used(shown: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an empty canvas has the class 2, the class 2 of a picture proves nothing."""
    tilted = nn.Sequential(Brightest(), nn.Linear(5, 5))
    tilted[1].load_state_dict({"weight": torch.eye(5), "bias": 2 * torch.eye(5)[2]})
    monkeypatch.setattr(photographs, "read_model", lambda name: SimpleNamespace(network=tilted))
    with pytest.raises(InputError, match="knows too few pictures"):
        grid_trial(of(), Path())


def test_pictures_with_the_highest_probability_come_first(shown: Tensor) -> None:
    shown[:8] /= 8  # recognised, with lower probability
    assert grid_trial(of(grids=1), Path()).x.amax((1, 2, 3)).tolist() == [1, 1, 1, 1]


def test_pictures_of_too_few_classes_are_refused(shown: Tensor) -> None:
    shown[:] = shown[:1].clone()
    with pytest.raises(InputError, match="knows too few pictures"):
        grid_trial(of(), Path())


def test_single_pictures_are_measured_by_all_metrics_of_maps(shown: Tensor) -> None:
    trial = metric_trial(of(count=5), Path())
    expected = {name for name, kind in METRICS.items() if kind.subject != "overlap" and not kind.needs_radius}
    assert {metric.name for metric in trial.metrics} == expected
    assert len(trial.x) == 5
    assert (trial.near, trial.far) == (0.008, 0.3)


def test_data_sets_are_found_in_a_folder_and_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "batches").mkdir()
    (tmp_path / "batches" / "test_batch.bin").touch()
    (tmp_path / "one.JPEG").touch()
    there = {of.name: place for of, place in find_data_sets(tmp_path).items()}
    assert there == {"cifar10": tmp_path / "batches", "imagenet": tmp_path}
    assert [section.title for section in sections(tmp_path)][-2:] == ["Grids of four", "All metrics"]
    assert list(sections(tmp_path)[-2].trials) == ["grid-cifar10", "grid-imagenet"]
    assert len(sections()) == len(sections(tmp_path)) - 2


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="expected one with files of MNIST"):
            find_data_sets(folder)
