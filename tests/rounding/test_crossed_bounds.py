"""Frontier that cross by rounding are mended, and what crosses by more is a contradiction: in either precision, at any
size of what is summed up.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.lower_bounds import AttackBounds
from proofmap.errors import ProofmapError
from proofmap.rounding.crossed_bounds import estimate_error, estimate_stored_error
from proofmap.search.exact import ExactBounds
from proofmap.verify import searched_overlap as overlaps

BALL = pm.Ball(0.1)


def network(scale: float = 1.0) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter in model[2].parameters():
            parameter.mul_(scale)
    return model


def inputs(dtype: torch.dtype) -> Tensor:
    return torch.tensor([[0.3, -0.2, 0.5]], dtype=dtype)


def lowered(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """As if every search had proven that much less than what was reached."""

    def close(graph: object, family: object, reached: AttackBounds, *rest: object, rigorous: bool) -> ExactBounds:
        return ExactBounds(reached.value - by, ())

    monkeypatch.setattr(overlaps, "exact_bounds", close)


def exact(dtype: torch.dtype, scale: float = 1.0) -> pm.Overlap:
    """Without roundings: their sides have room for them."""
    search = pm.bounds.Exact(seconds=5)
    return pm.overlap(network(scale), inputs(dtype), BALL, groups=torch.arange(3), bounds=search, rigorous=False)


@pytest.mark.parametrize(
    ("dtype", "scale", "by"),
    [
        (torch.float64, 1.0, 1e-11),
        (torch.float64, 1e6, 1e-5),
        (torch.float64, 1e-6, 1e-13),
        (torch.float32, 1.0, 1e-3),
        (torch.float32, 1e6, 1e3),
    ],
)
def test_a_search_that_proves_less_than_was_reached_is_wrong(
    dtype: torch.dtype, scale: float, by: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered(monkeypatch, by)
    with pytest.raises(ProofmapError, match=r"an input reaches an overlap of .* was proven to be the most"):
        exact(dtype, scale)


@pytest.mark.parametrize(
    ("dtype", "scale", "by"),
    [(torch.float64, 1.0, 1e-15), (torch.float64, 1e6, 1e-10), (torch.float32, 1.0, 1e-6), (torch.float32, 1e6, 0.1)],
)
def test_what_rounding_crosses_is_mended(
    dtype: torch.dtype, scale: float, by: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered(monkeypatch, by)
    over = exact(dtype, scale)
    assert bool((over.full >= over.full_lower).all())
    assert bool((over.frozen >= over.frozen_lower).all())


def test_room_is_that_of_the_sums() -> None:
    """|W| |x| + |b| of the layer where that is largest."""
    x = inputs(torch.float64)
    first, second = (layer.double() for layer in network() if isinstance(layer, nn.Linear))
    sums = [first.weight.abs() @ x[0].abs() + first.bias.abs()]
    sums += [second.weight.abs() @ first(x[0]).relu() + second.bias.abs()]
    size = max(float(one.detach().max()) for one in sums)
    graph = pm.trace(network().double(), x)
    assert float(estimate_error(graph, x)) == pytest.approx(64 * 2.0**-52 * max(size, 0.5))
    single = graph.to(torch.device("cpu"), torch.float32)
    assert float(estimate_error(single, x.float())) == pytest.approx(64 * 2.0**-23 * max(size, 0.5), rel=1e-4)


@pytest.mark.parametrize("end", [0, 1])
def test_a_score_that_contradicts_its_sides_is_wrong(end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupted search, drops are bounded directly: here on the wrong side of the known bounds."""
    over, x = exact(torch.float64), inputs(torch.float64)
    graph = pm.trace(network().double(), x)
    forms = torch.tensor([[[-1.0, 1.0] if int(over.target) == 0 else [1.0, -1.0]]], dtype=torch.float64)
    known, ends = over.intervals, torch.tensor([0.0, torch.inf], dtype=torch.float64).repeat(1, 3, 1)

    def bounded(by: float) -> pm.Overlap:
        ends[0, 0, end] = known[0, 0, 1 - end] + (by if end == 0 else -by)
        monkeypatch.setattr(overlaps, "drops", lambda *_: ends)
        return overlaps.with_drops(over, graph, BALL.at(x, torch.arange(3)), forms, torch.tensor([0]), 2**30)

    with pytest.raises(ProofmapError, match="a score was proven to be at least"):
        bounded(1e-11)
    found = bounded(1e-15)
    assert found.drops is not None
    low, high = found.drops.unbind(2)
    assert bool((low <= known[..., 1]).all())
    assert bool((high >= known[..., 0]).all())


def test_what_a_file_keeps_may_cross_by_what_its_precision_allows() -> None:
    assert estimate_stored_error(torch.tensor([3.0])).tolist() == pytest.approx([4e-4])
    assert estimate_stored_error(torch.tensor([3.0], dtype=torch.float64)).tolist() == pytest.approx([4e-10])
    over = exact(torch.float64)
    with pytest.raises(ProofmapError, match="was proven to be the most"):
        replace(over, full=over.full_lower - 1e-6)


@pytest.mark.parametrize("rigorous", [False, True, None])
def test_sides_that_hold_with_all_roundings_may_not_cross_at_all(
    rigorous: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much room plain sides have."""
    lowered(monkeypatch, 1e-3)
    monkeypatch.setattr(overlaps, "rounding_room", lambda *_: torch.tensor(torch.inf))
    ask = partial(pm.overlap, network(), inputs(torch.float32), BALL, bounds=pm.bounds.Exact(seconds=5))
    if rigorous is False:
        ask(rigorous=False)
    else:
        with pytest.raises(ProofmapError, match="one of both is wrong"):
            ask(rigorous=rigorous)
