"""Sums of products in blocks are the sums, and a product passes few additions."""

import pytest
import torch

from proofmap.runtime.block_sums import additions_per_product, dot


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1000, 1024])
def test_blocks_and_what_is_left_are_summed(count: int) -> None:
    rows = torch.arange(3.0)[:, None] + torch.ones(count)
    values = torch.arange(count, dtype=torch.float32) % 7
    assert torch.equal(dot(rows, values[None]), (rows * values).double().sum(1).float())
    assert torch.equal(dot(rows.view(3, count, 1), values.expand(3, -1)), dot(rows, values[None]))


def test_a_product_passes_the_additions_of_its_block_and_of_the_blocks() -> None:
    assert [additions_per_product(count) for count in (1, 256, 257, 115200)] == [1, 256, 258, 707]
