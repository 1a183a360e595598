"""Outlines of groups: edges between pixels of the group and other pixels, each drawn once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proofmap.plots.outline import outline


def test_a_rectangle_has_four_sides() -> None:
    member = np.zeros((4, 5), dtype=bool)
    member[1:3, 2:5] = True
    assert sorted(outline(member)) == [((2, 1), (2, 3)), ((2, 1), (5, 1)), ((2, 3), (5, 3)), ((5, 1), (5, 3))]


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4))
def test_every_edge_is_drawn_once(pixels: list[list[bool]]) -> None:
    member = np.array(pixels)
    expected = set()
    for y, x in np.argwhere(member):
        for edge, (v, u) in {
            ((x, y), (x, y + 1)): (y, x - 1),
            ((x + 1, y), (x + 1, y + 1)): (y, x + 1),
            ((x, y), (x + 1, y)): (y - 1, x),
            ((x, y + 1), (x + 1, y + 1)): (y + 1, x),
        }.items():
            inside = 0 <= v < member.shape[0] and 0 <= u < member.shape[1] and member[v, u]
            expected |= set() if inside else {edge}
    drawn = []
    for (x, y), (u, v) in outline(member):
        assert (x == u) != (y == v)
        drawn += [((x, k), (x, k + 1)) for k in range(y, v)] if x == u else [((k, y), (k + 1, y)) for k in range(x, u)]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == expected
