"""A time limit of bounds: hidden nodes that are not tightened in time keep valid, looser intervals."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Backward, Cases, CrownIBP, Exact, solve
from proofmap.bounds.engine import solve_plans
from proofmap.runtime.memory import run_in_chunks
from proofmap.runtime.time_limit import time_limit
from proofmap.verify import family_bounds
from tests.bounds.setting import BUDGET


def network() -> tuple[pm.Graph, Tensor]:
    """Return a random network with two hidden layers, and two inputs."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    for values in model.parameters():
        values.data = torch.randn(values.shape, generator=generator)
    x = torch.rand(2, 4, generator=generator)
    return pm.trace(model, x), x


@pytest.mark.parametrize("rigorous", [False, True])
def test_without_time_hidden_nodes_keep_interval_bounds(rigorous: bool) -> None:
    graph, x = network()
    cases = Cases(pm.Ball(0.1).at(x))
    forms = torch.eye(graph.classes).to(x).expand(len(x), -1, -1)
    late, hidden = solve_plans(
        graph,
        cases,
        forms,
        Backward(),
        "one-pass",
        BUDGET,
        rigorous=rigorous,
        keep_hidden=True,
        until=time.monotonic() - 1,
    )
    cheap, full = (
        solve(graph, cases, forms, one, "one-pass", BUDGET, rigorous=rigorous) for one in (CrownIBP(), Backward())
    )
    torch.testing.assert_close(late, cheap)
    assert bool((late > full).any())
    assert hidden


def test_the_limit_ends_work_between_two_chunks() -> None:
    done = []
    with pytest.raises(TimeoutError), time_limit(time.monotonic() - 1):
        run_in_chunks(3, 1, lambda start, stop: done.append(start))
    assert done == []
    run_in_chunks(3, 1, lambda start, stop: done.append(start))
    assert done == [0, 1, 2]


def test_an_inner_limit_is_never_later_than_the_outer_one() -> None:
    begin = time.monotonic()
    with time_limit(begin - 1), time_limit(begin + 1e6), pytest.raises(TimeoutError):
        run_in_chunks(1, 1, lambda start, stop: None)


@pytest.mark.parametrize("enough", [-float("inf"), 0.0])
def test_the_bounds_before_a_search_have_its_time_limit(enough: float, monkeypatch: pytest.MonkeyPatch) -> None:
    given, usual = [], vars(family_bounds)["solve_plans"]

    def limited(*arguments: Any, **rest: Any) -> Any:
        given.append(rest["until"] - time.monotonic())
        return usual(*arguments, **rest)

    monkeypatch.setattr(family_bounds, "solve_plans", limited)
    graph, x = network()
    pm.overlap(graph, x, pm.Ball(0.1), bounds=Exact(seconds=2), enough=enough)
    assert given
    assert max(given) <= 2 * len(x)
