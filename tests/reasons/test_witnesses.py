"""Points of necessary groups: each belongs to the box whose categories it has."""

import torch

from proofmap.reasons.witnesses import _nearest_box


def test_large_columns_beside_a_block_do_not_hide_its_category() -> None:
    centres = torch.tensor([[40.0, 1.0, 0.0, 0.0], [40.0, 0.0, 1.0, 0.0], [40.0, 0.0, 0.0, 1.0]])
    points = torch.tensor([[90.0, 0.0, 1.0, 0.0], [10.0, 0.0, 0.0, 1.0], [40.0, 1.0, 0.0, 0.0], [55.0, 1.0, 0.0, 0.0]])
    assert _nearest_box(centres, points).tolist() == [1, 2, 0, 0]
    assert _nearest_box(centres[:1], points).tolist() == [0, 0, 0, 0]
