"""Trees of certificates: they prove more, stay within their limits, and claim nothing that is not so."""

from pathlib import Path

import numpy as np
import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError
from proofmap.proof.proof_tree import Growth, Opened
from tests.proof.test_certificate import accepted, explained, maps, small
from tests.sources.files import digits


def test_a_tree_proves_more_of_a_digit(tmp_path: Path) -> None:
    images, _ = digits(1)
    ball = pm.Ball(0.01, domain=(0.0, 1.0))
    e = pm.EVA(pm.zoo.mnist_mlp(), ball, groups=pm.groups.grid(12), progress=False).explain(images)
    whole, split = e.certificate(), e.certificate(leaves=24)
    assert (whole.leaves, split.leaves) == (0, 24)
    assert split.full < whole.full - 0.05
    assert (split.frozen < whole.frozen).all()
    assert accepted(split, tmp_path)
    assert len(split.content) < 15_000


@pytest.mark.parametrize("make", [small, maps])
@pytest.mark.parametrize("ball", [pm.Ball(0.3, domain=(0.0, 1.0)), pm.Ball(0.8, norm=2), pm.Ball(2.0, norm=1)], ids=str)
def test_trees_of_small_networks_are_accepted_and_never_looser(make: type, ball: pm.Ball, tmp_path: Path) -> None:
    e = explained(make(), ball)
    claims = [np.append(c.full, c.frozen) for c in (e.certificate(leaves=n) for n in (0, 3, 20))]
    assert accepted(e.certificate(leaves=20), tmp_path)
    assert (claims[1] <= claims[0] + 1e-4).all()
    assert claims[2][0] < claims[0][0] - 1e-3


def test_parts_without_a_bend_are_closed(tmp_path: Path) -> None:
    """Few units: all of them are split, and both sides meet but for what float32 rounds."""
    e = explained(small(3), pm.Ball(0.3, domain=(0.0, 1.0)), bounds=pm.bounds.Exact(seconds=2))
    certificate = e.certificate(leaves=400)
    assert accepted(certificate, tmp_path)
    assert certificate.lower is not None
    assert certificate.full - certificate.lower[0] < 2e-3


def test_stored_slopes_are_what_they_stand_for() -> None:
    numbers, multipliers = np.array([[0, 1, 128, 254, 255]], np.uint8), np.array([[0, 0.5, -2, 1, 0]], np.float16)
    plain = Opened(np.zeros(5)).stored(numbers, multipliers)
    assert plain.slopes.tolist() == [[0, 1 / 256, 0.5, 254 / 256, 1]]
    assert plain.multipliers.tolist() == [[0, 0.5, -2, 1, 0]]
    leaky = Opened(np.full(5, 0.25))
    assert leaky.stored(numbers, multipliers).slopes[0].tolist() == pytest.approx([0, 0, 1 / 3, 0.98958333, 1])
    again = leaky.numbered(torch.tensor([[0, 1 / 3, 1]], dtype=torch.float64).repeat(1, 5)[:, :5])
    assert again.tolist() == [[64, 128, 255, 64, 128]]


def test_a_limit_that_is_none_is_refused() -> None:
    e = explained(small(), pm.Ball(0.1))
    with pytest.raises(InputError, match=r"got leaves=-1|got leaves -1"):
        e.certificate(leaves=-1)
    with pytest.raises(InputError, match=r"seconds"):
        Growth(4, float("nan"))


def test_a_tree_has_no_more_leaves_than_allowed() -> None:
    e = explained(small(), pm.Ball(0.3))
    assert 2 < e.certificate(leaves=7).leaves <= 7
    assert e.certificate(leaves=50, seconds=1e-9).leaves == 2  # one for each rival
