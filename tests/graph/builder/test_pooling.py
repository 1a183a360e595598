"""Pooling and reductions over axes, against their definitions, window by window."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from proofmap.graph.builder import pooling
from proofmap.graph.builder.graph_builder import Builder, NoRule
from proofmap.graph.sliding_windows import SlidingWindow
from tests.graph.built import assert_is, built

Axis = tuple[int, int, int, tuple[int, int], int]  # size, kernel, stride, pads, dilation


def windows(axis: Axis, ceil: bool) -> list[list[int]]:
    """Return the positions of every window that fits into the padded axis.

    With `ceil`, also of one that starts on an entry and reaches beyond the axis by less than a stride.
    """
    n, k, s, (before, after), d = axis
    sets: list[list[int]] = []
    start = -before
    while True:
        over = start + d * (k - 1) + 1 - (n + after)
        if over > 0 and not (ceil and over < s and start < n):
            return sets
        sets.append([start + d * j for j in range(k)])
        start += s


def inside(axis: Axis, window: list[int]) -> list[int]:
    return [i for i in window if 0 <= i < axis[0]]


pads = st.tuples(st.integers(0, 3), st.integers(0, 3))
axes = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 3), pads, st.integers(1, 2))


def grids(first: Axis, second: Axis, ceil: bool) -> list[tuple[list[int], list[int]]]:
    """Return every window of a map if each contains an entry; otherwise skip the example."""
    rows, columns = windows(first, ceil), windows(second, ceil)
    assume(rows and columns)
    assume(all(inside(first, w) for w in rows) and all(inside(second, w) for w in columns))
    return list(product(rows, columns))


def slide_of(first: Axis, second: Axis) -> SlidingWindow:
    (_, *one), (_, *other) = first, second
    return SlidingWindow.of(*zip(one, other, strict=True))  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(first=axes, second=axes, ceil=st.booleans())
def test_max_pool_is_the_largest_of_every_window(first: Axis, second: Axis, ceil: bool) -> None:
    cells = grids(first, second, ceil)
    slide = slide_of(first, second)
    graph = built((2, first[0], second[0]), lambda b: pooling.max_pool(b, "y", "input", slide, ceil=ceil))
    assert_is(
        graph,
        lambda x: torch.stack([x[:, :, inside(first, r)][..., inside(second, c)].amax((2, 3)) for r, c in cells], -1),
    )


@settings(max_examples=150, deadline=None)
@given(first=axes, second=axes, ceil=st.booleans(), counting=st.booleans())
def test_avg_pool_is_the_mean_of_every_window(first: Axis, second: Axis, ceil: bool, counting: bool) -> None:
    cells, slide = grids(first, second, ceil), slide_of(first, second)

    def counted(axis: Axis, window: list[int]) -> int:
        padded = [i for i in window if -axis[3][0] <= i < axis[0] + axis[3][1]]
        return len(padded if counting else inside(axis, window))

    def expected(x: Tensor) -> Tensor:
        sums = [x[:, :, inside(first, r)][..., inside(second, c)].sum((2, 3)) for r, c in cells]
        return torch.stack(
            [s / (counted(first, r) * counted(second, c)) for s, (r, c) in zip(sums, cells, strict=True)], -1
        )

    graph = built(
        (2, first[0], second[0]), lambda b: pooling.avg_pool(b, "y", "input", slide, ceil=ceil, count_padding=counting)
    )
    assert_is(graph, expected)


@pytest.mark.parametrize(("n", "m"), [(5, 3), (7, 4), (6, 2), (3, 5), (4, 1)])
def test_adaptive_pools_equal_torch(n: int, m: int) -> None:
    largest = built((2, n, 4), lambda b: pooling.adaptive_max_pool(b, "y", "input", (m, 3)))
    assert_is(largest, lambda x: F.adaptive_max_pool2d(x, (m, 3)))
    mean = built((2, n, 4), lambda b: pooling.adaptive_avg_pool(b, "y", "input", (m, 3)))
    assert_is(mean, lambda x: F.adaptive_avg_pool2d(x, (m, 3)))


def test_windows_of_padding_have_no_rule() -> None:
    b = Builder((1, 3), 5)
    with pytest.raises(NoRule, match="windows of nothing but padding"):
        pooling.max_pool(b, "y", "input", SlidingWindow.of((2,), padding=[(3, 0)]))


@pytest.mark.parametrize("axes", [[0], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("keepdim", [True, False])
def test_extremes_over_axes(axes: list[int], keepdim: bool) -> None:
    batched = [axis + 1 for axis in axes]
    largest = built((2, 3, 4), lambda b: pooling.reduce_max(b, "y", "input", axes, keepdim=keepdim))
    assert_is(largest, lambda x: x.amax(batched, keepdim=keepdim).unsqueeze(-1))
    smallest = built((2, 3, 4), lambda b: pooling.reduce_min(b, "y", "input", axes, keepdim=keepdim))
    assert_is(smallest, lambda x: x.amin(batched, keepdim=keepdim).unsqueeze(-1))
