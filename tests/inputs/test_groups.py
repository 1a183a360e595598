"""Groupings: their ids, their formulas, and what they refuse."""

import dataclasses
import math
import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from proofmap import Ball, overlap
from proofmap.errors import InputError
from proofmap.explainers import EVA
from proofmap.inputs import groups

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
            assert (mask[..., i, j] == math.floor(i * rows / height) * columns + math.floor(j * columns / width)).all()
    heights = torch.tensor([(mask[..., 0].reshape(-1, height)[0] == r * columns).sum().item() for r in range(rows)])
    assert heights.max() - heights.min() <= 1


def test_grid_of_one_number_is_square() -> None:
    assert groups.grid(12) == groups.grid(12, 12)
    assert groups.grid(12)((1, 28, 28)).max() == 143
    assert (groups.grid(1)((3, 4, 5)) == 0).all()
    assert torch.equal(groups.grid(28)((3, 28, 28)), groups.pixels()((3, 28, 28)))


def test_tokens_part_a_sequence() -> None:
    assert groups.tokens()((3, 2)).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert repr(groups.tokens()) == "Tokens()"


def test_windows_part_a_series() -> None:
    assert groups.windows(3)((8,)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert groups.windows(4)((2, 6)).tolist() == [[0, 0, 0, 0, 1, 1]] * 2
    with pytest.raises(InputError, match="windows got length"):
        groups.windows(0)


@given(width=sizes)
def test_columns_number_a_flat_sample(width: int) -> None:
    assert groups.columns()((width,)).tolist() == list(range(width))


@pytest.mark.parametrize("make", [groups.pixels, lambda: groups.grid(3, 4), groups.columns, groups.superpixels])
def test_groupings_are_values(make: Callable[[], object]) -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    assert dataclasses.is_dataclass(make())


def test_the_mask_that_is_advised_for_flat_pictures_groups_the_same_pixels() -> None:
    mask = groups.grid(2)((28, 28)).flatten()
    assert torch.equal(groups.mask_of(mask, torch.zeros(1, 784)).view(28, 28), groups.grid(2)((28, 28)))


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
        (groups.grid(2), (784,), r"pm\.groups\.grid\(2, 2\)\(\(28, 28\)\)\.flatten\(\), else columns\(\)"),
        (groups.grid(2), (785,), r"use columns\(\)"),
        (groups.grid(8), (32, 32, 3), r"channels seem to come last.*use x\.permute\(0, 3, 1, 2\)"),
        (groups.grid(2), (1, 2, 28, 28), "pass an integer mask"),
        (groups.columns(), (1, 28, 28), r"use pixels\(\) or grid\(n\)"),
        (groups.columns(), (784, 1), r"use pixels\(\) or grid\(n\)"),
        (groups.windows(8), (1, 28, 28), r"expected a series \(T,\) or \(C, T\)"),
        (groups.tokens(), (784,), r"tokens\(\) got a sample \(784,\), expected a sequence \(T, D\)"),
        (groups.pixels(), (), "at least 1"),
        (groups.pixels(), (3, 0, 4), "at least 1"),
    ],
)
def test_unfit_shapes_are_refused_with_advice(grouping: groups.Grouping, shape: tuple[int, ...], advice: str) -> None:
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


def halves(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A dark picture with a bright right half, and one with a bright lower half: (2, *shape)."""
    x = torch.full((2, *shape), 0.2, dtype=dtype)
    x[0, ..., shape[-1] // 2 :] = 0.9
    x[1, ..., shape[-2] // 2 :, :] = 0.9
    return x


@pytest.mark.parametrize("shape", [(16, 20), (1, 16, 20), (3, 16, 20)])
@pytest.mark.parametrize("segments", [1, 2, 12])
def test_superpixels_number_each_picture_from_zero(shape: tuple[int, ...], segments: int) -> None:
    x = halves(*shape) + 0.05 * torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    mask = groups.superpixels(segments).of(x)
    assert mask.dtype == torch.int64
    assert mask.shape == x.shape
    for own in mask:
        assert own.unique().tolist() == list(range(int(own.max()) + 1))
        assert (own.reshape(-1, 16, 20) == own.reshape(-1, 16, 20)[0]).all()  # a segment spans the channels
    if segments == 12:
        assert 4 <= mask.max() <= 24


@pytest.mark.parametrize("shape", [(16, 20), (1, 16, 20), (3, 16, 20)])
def test_superpixels_follow_the_picture(shape: tuple[int, ...]) -> None:
    x = halves(*shape)
    mask = groups.superpixels(12, compactness=1.0).of(x)
    for picture, own in zip(x, mask, strict=True):
        for u in own.unique():
            assert len(picture[own == u].unique()) == 1  # no segment crosses the edge
    assert not torch.equal(mask[0], mask[1])


def test_superpixels_tell_colours_apart() -> None:
    x = torch.zeros(1, 3, 16, 16)
    x[:, 0, :, :8], x[:, 1, :, 8:] = 0.8, 0.45  # red beside green
    mask = groups.superpixels(4, compactness=1.0).of(x)[0, 0]
    assert not set(mask[:, :8].unique().tolist()) & set(mask[:, 8:].unique().tolist())


def test_superpixels_take_grey_for_rgb_in_any_range_and_precision() -> None:
    grey = halves(1, 16, 20) + 0.2 * torch.rand(2, 1, 16, 20, generator=torch.Generator().manual_seed(2))
    grouping = groups.superpixels(10)
    expected = grouping.of(grey)
    assert torch.equal(grouping.of(grey[:, 0]), expected[:, 0])
    assert torch.equal(grouping.of(grey.expand(-1, 3, -1, -1))[:, :1], expected)
    assert torch.equal(grouping.of(grey.double()), expected)
    assert torch.equal(grouping.of(4 * grey.double() - 2), expected)
    assert torch.equal(grouping.of(grey[1:]), expected[1:])
    assert torch.equal(grouping.of(grey.clone().requires_grad_()), expected)


def test_a_picture_of_one_colour_still_has_superpixels() -> None:
    mask = groups.superpixels(4).of(torch.full((1, 1, 8, 8), 0.5))
    assert mask.unique().tolist() == list(range(int(mask.max()) + 1))


@pytest.mark.parametrize("segments", [0, -1, True, 2.5, "3"])
def test_superpixels_refuse_what_is_not_a_count(segments: object) -> None:
    with pytest.raises(InputError, match="expected a whole number of at least 1"):
        groups.superpixels(segments)  # type: ignore[arg-type]


@pytest.mark.parametrize("compactness", [0, -1.0, math.inf, math.nan, True, "10"])
def test_superpixels_refuse_what_weighs_nothing(compactness: object) -> None:
    with pytest.raises(InputError, match="expected a finite number above 0"):
        groups.superpixels(5, compactness)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "advice"),
    [
        (torch.zeros(2, 784), r"flat samples \(784,\), expected pictures: use columns\(\)"),
        (torch.zeros(2, 4, 8, 8), "pass an integer mask"),
        (torch.zeros(2, 1, 3, 8, 8), "pass an integer mask"),
        (torch.zeros(2, 1, 0, 8), "at least 1"),
        (torch.full((2, 1, 8, 8), torch.nan), "NaN or infinite"),
    ],
)
def test_superpixels_refuse_what_is_no_picture(x: Tensor, advice: str) -> None:
    with pytest.raises(InputError, match=advice):
        groups.superpixels().of(x)


def test_superpixels_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    with pytest.raises(InputError, match=r"pip install 'proofmap\[superpixels\]'"):
        groups.superpixels().of(torch.zeros(1, 1, 8, 8))


def test_resolve_hands_samples_to_what_follows_them() -> None:
    x = halves(1, 16, 20)
    grouping = groups.superpixels(6)
    mask = groups.resolve(grouping, x)
    assert mask is not None
    assert torch.equal(mask, grouping.of(x))
    assert torch.equal(groups.resolve(groups.grid(2), x), groups.grid(2)((1, 16, 20)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected the samples"):
        groups.resolve(grouping, (1, 16, 20))


def test_superpixels_serve_overlap_and_explainers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = halves(1, 16, 16, dtype=torch.float64)
    x[1] = 0.5  # plain: cut into squares
    x[0] += 0.1 * torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(3))
    grouping = groups.superpixels(9)
    counts = [int(own.max()) + 1 for own in grouping.of(x)]
    assert counts[0] != counts[1]
    over = overlap(model, x, Ball(0.05), groups=grouping)
    found = EVA(model, Ball(0.05), groups=grouping, progress=False, batch=1).explain(x)
    assert found.scores.shape == over.frozen.shape == (2, max(counts))
    torch.testing.assert_close(found.overlap.frozen, over.frozen)
    for k, count in enumerate(counts):
        alone = EVA(model, Ball(0.05), groups=grouping, progress=False).explain(x[k : k + 1])
        torch.testing.assert_close(found.attributions[k : k + 1], alone.attributions)
        torch.testing.assert_close(found.scores[k, :count], alone.scores[0])
        absent = over.full[k].expand(over.frozen.shape[1] - count)  # an absent group freezes nothing
        torch.testing.assert_close(over.frozen[k, count:], absent, rtol=0, atol=1e-14)  # batches sum in other orders
        torch.testing.assert_close(found.scores[k, count:], 0 * absent, rtol=0, atol=1e-14)
    assert found.settings["groups"] == "Superpixels(segments=9, compactness=10.0)"
