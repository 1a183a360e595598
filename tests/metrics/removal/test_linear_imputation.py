"""Linear imputation: by hand, by a dense system, and independence of other channels."""

import pytest
import torch
from torch import Tensor

from proofmap.metrics.removal.linear_imputation import imputed
from tests.metrics.models import drawn


def dense(image: Tensor, missing: Tensor) -> Tensor:
    """Solve the authors' system of one channel (H, W) as a dense system."""
    height, width = image.shape
    holes = [(int(i), int(j)) for i, j in missing.nonzero()]
    matrix, right = torch.zeros(len(holes), len(holes)).double(), torch.zeros(len(holes)).double()
    for row, (i, j) in enumerate(holes):
        for di in (-1, 0, 1):
            for dj in (-1, 0, 1):
                at, weight = (i + di, j + dj), 1 / 6 if di == 0 or dj == 0 else 1 / 12
                if at == (i, j) or not (0 <= at[0] < height and 0 <= at[1] < width):
                    continue
                matrix[row, row] += weight
                if at in holes:
                    matrix[row, holes.index(at)] -= weight
                else:
                    right[row] += weight * image[at]
    filled = image.clone()
    filled[missing] = torch.linalg.solve(matrix, right)
    return filled


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.97])
def test_a_dense_system(share: float) -> None:
    x, missing = drawn(3, 2, 7, 6), drawn(3, 2, 7, 6, seed=2) < share
    missing[:, :, 3, 3] = False
    expected = torch.stack([dense(x[n, c], missing[n, c]) for n in range(3) for c in range(2)]).view_as(x)
    torch.testing.assert_close(imputed(x, missing), expected)
    torch.testing.assert_close(imputed(x.float(), missing), expected.float(), rtol=1e-4, atol=1e-4)


def test_one_pixel_by_hand() -> None:
    """Inside: (2 · sides + corners) / 12. In a corner of the image: (2 · 2 sides + 1 corner) / 5."""
    x = torch.arange(9.0).double().view(1, 1, 3, 3) ** 2
    for at, expected in (((1, 1), (2 * (1 + 9 + 25 + 49) + 0 + 4 + 36 + 64) / 12), ((0, 0), (2 * (1 + 9) + 16) / 5)):
        missing = torch.zeros_like(x, dtype=torch.bool)
        missing[0, 0, at[0], at[1]] = True
        filled = imputed(x, missing)
        assert float(filled[0, 0, at[0], at[1]]) == pytest.approx(expected)
        assert torch.equal(filled[~missing], x[~missing])


def test_a_slope_is_found_again() -> None:
    """A linear image is the mean of its neighbours, except at the edge."""
    i, j = torch.meshgrid(torch.arange(8.0).double(), torch.arange(9.0).double(), indexing="ij")
    x = (0.3 + 0.02 * i - 0.05 * j)[None, None]
    missing = drawn(1, 1, 8, 9) < 0.8
    missing[..., [0, -1], :] = missing[..., [0, -1]] = False
    torch.testing.assert_close(imputed(x, missing), x)


def test_one_colour_is_kept_and_a_missing_channel_gets_the_mean() -> None:
    x, missing = torch.full((1, 2, 5, 5), 0.4).double(), drawn(1, 2, 5, 5) < 0.9
    torch.testing.assert_close(imputed(x, missing), x)
    x = drawn(2, 2, 4, 4)
    missing = torch.zeros_like(x, dtype=torch.bool)
    missing[0, 1] = True
    filled = imputed(x, missing)
    torch.testing.assert_close(filled[0, 1], x[0, 0].mean().expand(4, 4))
    assert torch.equal(filled[1], x[1])


def test_half_a_picture_in_single_precision() -> None:
    """With a whole side missing, the system is ill-conditioned, but the error stays below a tenth of the noise."""
    x = drawn(1, 1, 48, 48)
    missing = (torch.arange(48) < 40).expand(1, 1, 48, 48)
    torch.testing.assert_close(imputed(x.float(), missing).double(), imputed(x, missing), rtol=0, atol=1e-3)


def test_channels_are_solved_independently() -> None:
    """Each channel stops by its own residual, whatever the other channels do."""
    x, missing = drawn(6, 1, 12, 12), drawn(6, 1, 12, 12, seed=2) < torch.linspace(0, 1, 6).view(6, 1, 1, 1)
    whole = imputed(x, missing)
    for n in range(6):
        torch.testing.assert_close(imputed(x[n : n + 1], missing[n : n + 1]), whole[n : n + 1], rtol=1e-12, atol=1e-12)
