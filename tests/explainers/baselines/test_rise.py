"""RISE: a cell that is read, a loop over masks, and the masks themselves."""

from dataclasses import replace
from itertools import product
from math import ceil

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.explainers.baselines import RISE, Occlusion, Saliency
from proofmap.explainers.baselines.rise import enlarge
from tests.explainers.baselines.setting import SHAPE, TARGET, Reads, Square, drawn, seeded


def test_rise_ranks_the_cell_that_is_read_first() -> None:
    x = torch.ones(1, 1, 28, 28)
    found = RISE(Reads(slice(8, 12), slice(16, 20))).attribute(x, 0)[0, 0]
    row, column = divmod(int(found.argmax()), 28)
    assert 8 <= row < 12
    assert 16 <= column < 20
    assert int(F.avg_pool2d(found[None, None], 4)[0, 0].argmax()) == 2 * 7 + 4


def test_rise_is_a_loop_over_masks(cnn: nn.Sequential, x: Tensor) -> None:
    rise = RISE(cnn, masks=9, cells=3, p=0.4, seed=5)
    bits, places = rise._draw()
    masks = enlarge(bits.double(), places, 8, 8)
    for probabilities in (False, True):
        found = replace(rise, probabilities=probabilities).attribute(x, TARGET)
        for k, c in enumerate(TARGET):
            above = below = torch.zeros(8, 8, dtype=torch.float64)
            for mask in masks:
                logits = cnn((x[k] * mask)[None]).detach()[0]
                above = above + (logits.softmax(0) if probabilities else logits)[c] * mask
                below = below + mask
            torch.testing.assert_close(found[k], (above / below).expand(SHAPE))


def test_masks_are_enlarged_bilinearly_and_cut_out_at_their_place() -> None:
    bits, places = (drawn(4, 3, 3) < 0.5).double(), drawn(4, 2, seed=1)
    height, width = 7, 10
    tall, wide = ceil(height / 3), ceil(width / 3)
    found = enlarge(bits, places, height, width)

    def at(bits: Tensor, i: int, j: int) -> float:
        """The bilinear mean of the four bits around pixel (i, j) of a 4-cell picture; edges repeat."""
        total = 0.0
        y, z = ((n + 0.5) * 3 / (4 * size) - 0.5 for n, size in ((i, tall), (j, wide)))
        for a, b in product(range(-1, 4), repeat=2):
            near = max(0.0, 1 - abs(y - a)) * max(0.0, 1 - abs(z - b))
            total += near * float(bits[min(2, max(0, a)), min(2, max(0, b))])
        return total

    for k in range(4):
        down, right = int(places[k, 0] * tall), int(places[k, 1] * wide)
        for i, j in product(range(height), range(width)):
            assert float(found[k, i, j]) == pytest.approx(at(bits[k], i + down, j + right))


def test_masks_keep_a_share_p_of_every_pixel() -> None:
    bits, places = RISE(Square(), p=0.3)._draw()
    masks = enlarge(bits.float(), places, 28, 28)
    assert masks.shape == (6000, 28, 28)
    assert 0 <= float(masks.min()) <= float(masks.max()) <= 1
    assert float((masks.mean(0) - 0.3).abs().max()) < 0.03


class Shifted(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x) + 100
        return logits


def test_a_constant_in_the_logits_changes_no_ranking_of_rise(cnn: nn.Sequential, x: Tensor) -> None:
    found, shifted = (RISE(model, masks=30).attribute(x, 1) for model in (cnn, Shifted(cnn)))
    torch.testing.assert_close(shifted, found + 100)


def test_rise_needs_images() -> None:
    with pytest.raises(InputError, match=r"RISE got samples of shape \(5,\), expected images"):
        RISE(seeded(lambda: nn.Linear(5, 3))).attribute(drawn(2, 5))


def test_images_without_channels() -> None:
    x = drawn(2, 8, 8)
    model = seeded(nn.Flatten, lambda: nn.Linear(64, 3))
    for kind in (RISE, Occlusion, Saliency):
        wide = kind(model).attribute(x[:, None], 1)
        torch.testing.assert_close(kind(model).attribute(x, 1), wide[:, 0])
