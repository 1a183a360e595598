"""Shared options: their texts become objects of the library."""

from proofmap.bounds import IBP, Backward, Exact, Intersection
from proofmap.cli.options.shared_options import Bounding, groups_of
from proofmap.inputs import groups


def test_the_limits_of_a_search_reach_it() -> None:
    assert Bounding("exact", 5.0, 0.1).method == Exact(gap=0.1, seconds=5.0)
    assert Bounding("exact", seconds=5.0).method == Exact(seconds=5.0)
    assert Bounding("ibp+exact", gap=0.5).method == Intersection((IBP(), Exact(gap=0.5)))


def test_names_alone() -> None:
    assert Bounding().method is None
    assert Bounding("crown").method == Backward()
    assert Bounding("exact").method == Exact()


def test_groups_by_their_text() -> None:
    assert groups_of("grid:12") == groups.grid(12)
    assert groups_of("grid:8,12:smooth") == groups.grid(8, 12, smooth=True)
    assert groups_of("windows:8") == groups.windows(8)
    assert groups_of("tokens") == groups.tokens()
    assert groups_of(None) == groups.pixels()
