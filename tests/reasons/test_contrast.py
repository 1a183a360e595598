"""The record of contrastive sets: properties, slices, and parts that do not fit together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from proofmap.errors import InputError
from proofmap.reasons.contrasts.contrast import Contrast


def record_points() -> torch.Tensor:
    return torch.arange(8.0).view(2, 4)


def record() -> Contrast:
    """Return two sets of sample 0, none of sample 1, and sample 2, whose decision nothing can change."""
    sets = torch.tensor([[True, True, False], [False, False, True]])
    return Contrast(
        sets=sets,
        owner=torch.tensor([0, 0]),
        points=record_points(),
        classes=torch.tensor([2, 1]),
        values=torch.tensor([0.5, 0.25], dtype=torch.float64),
        least=torch.tensor([1, 1, 4]),
        counted=torch.tensor([True, False, False]),
        limit=torch.zeros(3, dtype=torch.float64),
        seconds=torch.ones(3, dtype=torch.float64),
    )


def test_a_sample_without_a_set_is_not_a_sample_that_nothing_can_change() -> None:
    contrast = record()
    assert contrast.found.tolist() == [True, False, False]
    assert contrast.impossible.tolist() == [False, False, True]
    assert contrast.size.tolist() == [2, 0, 0]
    assert contrast.smallest.tolist() == [False, False, False]
    assert contrast.reached.tolist() == [2, -1, -1]
    assert torch.equal(contrast.point(0), contrast.points[0])
    with pytest.raises(InputError, match="sample 1 has no input that changes the decision"):
        contrast.point(1)


def test_samples_are_picked_and_joined_with_more_groups() -> None:
    contrast = record()
    part = contrast.pick(torch.tensor([2, 0, 0]))
    assert part.owner.tolist() == [1, 1, 2, 2]
    assert part.impossible.tolist() == [True, False, False]
    both = Contrast.join([part, contrast], 5)
    assert both.owner.tolist() == [1, 1, 2, 2, 3, 3]
    assert both.impossible.tolist() == [True, False, False, False, False, True]
    assert both.sets.shape == (6, 5)
    assert not bool(both.sets[:, 3:].any())
    assert len(contrast.pick(torch.tensor([1])).sets) == 0


def test_a_part_of_several_inputs_knows_no_least_size() -> None:
    part = record().of_groups(slice(1, 3), slice(1, 3), (2,))
    assert part.sets.tolist() == [[True, False], [False, True]]
    assert torch.equal(part.points, record_points()[:, 1:3])
    assert part.least.tolist() == [0, 0, 3]
    assert part.impossible.tolist() == [False, False, True]


def test_parts_that_do_not_fit_are_refused() -> None:
    contrast = record()
    wrong = {
        "does not exceed its limit": {"values": torch.zeros(2, dtype=torch.float64)},
        "fewer groups than the proven least": {"least": torch.tensor([3, 1, 4])},
        "expected samples in ascending order": {"owner": torch.tensor([1, 0])},
        "got points of 1 entries": {"points": torch.rand(1, 4)},
    }
    for message, part in wrong.items():
        with pytest.raises(InputError, match=message):
            replace(contrast, **part)
