"""The atlas: one row for each sample, one column for each class."""

import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError


@pytest.fixture(scope="module")
def every() -> pm.Explanation:
    x = pm.data.digits()[0][:2]
    ball = pm.Ball(0.02, domain=(0.0, 1.0))
    return pm.TargetedEVA(pm.zoo.mnist_mlp(), ball, groups=pm.groups.grid(7)).explain_all(x)


def test_rows_are_samples_and_columns_are_classes(every: pm.Explanation) -> None:
    figure = every.atlas()
    assert len(figure.axes) == 2 * 11
    assert [axes.get_title() for axes in figure.axes[:11]] == ["input", *map(str, range(10))]
    assert not figure.axes[1 + int(every.predicted[0])].images
    maps = [axes.images[0] for k, axes in enumerate(figure.axes) if k % 11 and axes.images]
    assert len(maps) == 18
    limits = {m.get_clim() for m in maps}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low is not None
    assert high == -low


def test_bold_frames_are_proofs(every: pm.Explanation) -> None:
    figure = every.atlas()
    assert every.opposite is not None
    proven = (every.overlap.full < 0) & (every.opposite.full < 0) & (every.target != every.predicted)
    bold = [axes.spines["left"].get_linewidth() > 1 for k, axes in enumerate(figure.axes) if k % 11]
    assert bold == proven.tolist()
    assert any(bold)


def test_names_and_refusals(every: pm.Explanation) -> None:
    assert every.atlas([f"digit {k}" for k in range(10)]).axes[3].get_title() == "digit 2"
    with pytest.raises(InputError, match="expected images from TargetedEVA"):
        every[1:].atlas()
    with pytest.raises(InputError, match="expected images from TargetedEVA"):
        pm.EVA(pm.zoo.mnist_mlp(), pm.Ball(0.01)).explain(torch.zeros(1, 1, 28, 28)).atlas()
