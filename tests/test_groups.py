"""Groupings: their ids, their formulas, and what they refuse."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from proofmap import groups
from proofmap.errors import InputError

sizes = st.integers(min_value=1, max_value=12)


def assert_ids_are_dense(mask: Tensor, shape: tuple[int, ...], count: int) -> None:
    assert mask.dtype == torch.int64
    assert tuple(mask.shape) == shape
    assert mask.unique().tolist() == list(range(count))


@given(channels=sizes, height=sizes, width=sizes)
def test_pixels_of_an_image_span_channels(channels: int, height: int, width: int) -> None:
    mask = groups.pixels()((channels, height, width))
    assert_ids_are_dense(mask, (channels, height, width), height * width)
    for i in range(height):
        for j in range(width):
            assert (mask[:, i, j] == i * width + j).all()


@pytest.mark.parametrize("shape", [(1,), (7,), (784, 1), (5, 6), (2, 3, 4, 5)])
def test_pixels_of_other_shapes_are_elements(shape: tuple[int, ...]) -> None:
    mask = groups.pixels()(shape)
    assert_ids_are_dense(mask, shape, math.prod(shape))
    assert mask.flatten().tolist() == list(range(math.prod(shape)))


@given(data=st.data(), height=sizes, width=sizes, channels=st.none() | sizes)
def test_grid_follows_its_formula(data: st.DataObject, height: int, width: int, channels: int | None) -> None:
    rows = data.draw(st.integers(1, height))
    columns = data.draw(st.integers(1, width))
    shape = (height, width) if channels is None else (channels, height, width)
    mask = groups.grid(rows, columns)(shape)
    assert_ids_are_dense(mask, shape, rows * columns)
    for i in range(height):
        for j in range(width):
            expected = math.floor(i * rows / height) * columns + math.floor(j * columns / width)
            assert (mask[..., i, j] == expected).all()
    heights = torch.tensor([(mask[..., 0].reshape(-1, height)[0] == r * columns).sum().item() for r in range(rows)])
    assert heights.max() - heights.min() <= 1


def test_grid_of_one_number_is_square() -> None:
    assert groups.grid(12) == groups.grid(12, 12)
    mask = groups.grid(12)((1, 28, 28))
    assert mask.max() == 143
    assert (groups.grid(1)((3, 4, 5)) == 0).all()
    assert torch.equal(groups.grid(28)((3, 28, 28)), groups.pixels()((3, 28, 28)))


@given(width=sizes)
def test_columns_number_a_flat_sample(width: int) -> None:
    assert groups.columns()((width,)).tolist() == list(range(width))


@pytest.mark.parametrize("make", [groups.pixels, lambda: groups.grid(3, 4), groups.columns])
def test_groupings_are_values(make: Callable[[], groups.Grouping]) -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    assert dataclasses.is_dataclass(make())


@pytest.mark.parametrize("count", [0, -1, True, 2.5, "3"])
def test_grid_refuses_what_is_not_a_count(count: object) -> None:
    with pytest.raises(InputError, match="at least 1"):
        groups.grid(count)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="columns="):
        groups.grid(2, count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grouping", "shape", "advice"),
    [
        (groups.grid(12), (1, 8, 28), r"grid\(8, 12\), or pixels\(\)"),
        (groups.grid(12), (28, 8), r"grid\(12, 8\), or pixels\(\)"),
        (groups.grid(2), (784,), r"use columns\(\)"),
        (groups.grid(2), (1, 2, 28, 28), "pass an integer mask"),
        (groups.columns(), (1, 28, 28), r"use pixels\(\) or grid\(n\)"),
        (groups.columns(), (784, 1), r"use pixels\(\) or grid\(n\)"),
        (groups.pixels(), (), "at least 1"),
        (groups.pixels(), (3, 0, 4), "at least 1"),
    ],
)
def test_unsuitable_shapes_are_refused_with_advice(
    grouping: groups.Grouping, shape: tuple[int, ...], advice: str
) -> None:
    with pytest.raises(InputError, match=advice):
        grouping(shape)


def test_resolve_accepts_nothing_a_grouping_a_function_or_a_mask() -> None:
    shape = (3, 4, 4)
    mask = torch.arange(16).reshape(4, 4).expand(shape)
    assert groups.resolve(None, shape) is None
    assert groups.resolve(mask, shape) is mask
    for grouping in (groups.pixels(), lambda _: mask):
        resolved = groups.resolve(grouping, shape)
        assert resolved is not None
        assert torch.equal(resolved, mask)


def test_resolve_hands_the_grouping_a_plain_tuple() -> None:
    seen: list[type] = []

    def spy(shape: tuple[int, ...]) -> Tensor:
        seen.append(type(shape))
        return torch.zeros(shape, dtype=torch.int64)

    groups.resolve(spy, torch.Size((2, 2)))
    assert seen == [tuple]


@pytest.mark.parametrize("wrong", ["grid", 12, [0, 1]])
def test_resolve_refuses_other_types(wrong: object) -> None:
    with pytest.raises(InputError, match=r"expected a grouping such as grid\(12\)"):
        groups.resolve(wrong, (4,))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_resolve_refuses_masks_that_are_not_integers(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match="expected an integer type"):
        groups.resolve(torch.zeros(4).to(dtype), (4,))
    with pytest.raises(InputError, match="expected an integer type"):
        groups.resolve(lambda shape: torch.zeros(shape).to(dtype), (4,))


def test_resolve_refuses_a_grouping_that_returns_no_tensor() -> None:
    with pytest.raises(InputError, match="returned list, expected an integer tensor"):
        groups.resolve(list, (4,))  # type: ignore[arg-type]
