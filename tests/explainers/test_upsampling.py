"""Maps that pass smoothly from cell to cell: means of the scores around a pixel, whatever draws or stores them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import EmpiricalEVA
from proofmap.explainers.upsampling import spread
from tests.explainers.making import make

SMOOTH = pm.groups.grid(3, 6, smooth=True)


def slow(scores: Tensor, rows: int, columns: int, shape: tuple[int, int]) -> Tensor:
    """Pixel by pixel: exp of half the squared distance in cells, over all pixels of the picture."""
    height, width = shape
    cells = pm.groups.grid(rows, columns)(shape)
    found = torch.zeros(shape, dtype=torch.float64)
    for i in range(height):
        for j in range(width):
            down = (torch.arange(height).double() - i)[:, None] * rows / height
            right = (torch.arange(width).double() - j) * columns / width
            weight = torch.exp(-(down**2 + right**2) / 2)
            found[i, j] = (weight * scores.double()[cells]).sum() / weight.sum()
    return found


def test_a_smooth_map_is_a_weighted_mean() -> None:
    scores = torch.rand(2, 18, generator=torch.Generator().manual_seed(0))
    found = spread(scores, SMOOTH((2, 9, 24))[None], smooth=True)
    assert found.shape == (2, 2, 9, 24)
    assert found.dtype == scores.dtype
    for n in range(2):
        for channel in range(2):
            torch.testing.assert_close(found[n, channel], slow(scores[n], 3, 6, (9, 24)).to(scores.dtype))


def test_equal_scores_stay_what_they_are() -> None:
    mask = SMOOTH((9, 24))[None]
    torch.testing.assert_close(spread(torch.full((1, 18), 0.3), mask, smooth=True), torch.full((1, 9, 24), 0.3))


def test_a_smooth_grid_makes_the_same_cells() -> None:
    plain = pm.groups.grid(3, 6)
    assert torch.equal(SMOOTH((9, 24)), plain((9, 24)))
    assert plain != SMOOTH
    assert [repr(plain), repr(SMOOTH)] == ["Grid(rows=3, columns=6)", "Grid(rows=3, columns=6, smooth=True)"]
    with pytest.raises(InputError, match="grid got smooth=1, expected True or False"):
        pm.groups.grid(3, smooth=1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def both() -> tuple[pm.Explanation, pm.Explanation]:
    """One decision with cells, and with smooth maps of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ReLU(), nn.Linear(6, 3))
    x, ball = torch.rand(3, 1, 6, 8), pm.Ball(0.1, domain=(0.0, 1.0))
    first, second = (
        EmpiricalEVA(model, ball, groups=pm.groups.grid(2, 4, smooth=k), samples=4).explain(x) for k in (False, True)
    )
    return first, second


def test_scores_are_the_same_and_maps_differ(both: tuple[pm.Explanation, pm.Explanation]) -> None:
    plain, smooth = both
    assert torch.equal(plain.scores, smooth.scores)
    assert torch.equal(plain.mask, smooth.mask)
    assert torch.equal(plain.attributions, spread(plain.scores, plain.mask))
    assert torch.equal(smooth.attributions, spread(smooth.scores, smooth.mask, smooth=True))
    assert not torch.allclose(plain.attributions, smooth.attributions)
    assert smooth.settings["groups"] == "Grid(rows=2, columns=4, smooth=True)"


def test_parts_and_files_stay_smooth(both: tuple[pm.Explanation, pm.Explanation], tmp_path: Path) -> None:
    for k, e in enumerate(both):
        e.save(tmp_path / f"{k}.proofmap")
        again = pm.Explanation.load(tmp_path / f"{k}.proofmap")
        assert again.smooth == e.smooth == bool(k)
        assert torch.equal(again.attributions, e.attributions)
        torch.testing.assert_close(e[1].attributions, e.attributions[1:2])
        assert e[1].smooth == e.smooth


def test_a_mask_in_place_of_the_grid_is_not_smooth(both: tuple[pm.Explanation, pm.Explanation]) -> None:
    _, smooth = both
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    eva = pm.EVA(model, pm.Ball(0.1), groups=pm.groups.grid(2, smooth=True), progress=False)
    assert len(eva.attribute(smooth.x[:1], feature_mask=pm.groups.grid(2)((1, 6, 8))[None]).unique()) <= 4
    assert len(eva.attribute(smooth.x[:1]).unique()) > 4


def test_what_is_not_smooth_is_refused(both: tuple[pm.Explanation, pm.Explanation]) -> None:
    with pytest.raises(InputError, match="attributions differ from the scores of their groups"):
        replace(both[0], smooth=True)
    with pytest.raises(InputError, match=r"got smooth=True for x of \(3, 4\), expected pictures \(N, ..., H, W\)"):
        make((3, 4), smooth=True)
    with pytest.raises(InputError, match="got smooth=1, expected True or False"):
        make(smooth=1)
