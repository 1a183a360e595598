"""Searches of properties: conjunctions, disjunctions and clipped boxes agree with an enumeration of all patterns."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import proofmap as pm
from proofmap.verify.property import Region, decide
from tests.verify.test_property import INPUTS, OUTPUTS, box, deepest, drawn, network, traced, unsafe

SEARCHES = ("boxes", "units")


def only(search: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let one of the two searches decide everything, without an attack before it. Return how it ends each time."""
    module: Any = import_module("proofmap.verify.property_search")
    monkeypatch.setattr(import_module("proofmap.verify.property"), "attack_cases", lambda *_: None)
    if search == "units":
        monkeypatch.setattr(module, "_MAX_MOVING_INPUTS", 0)
    else:
        monkeypatch.setattr(module, "_TRIAL_SECONDS", 1e6)
        monkeypatch.setattr(module, "_TRIAL_SHARE", 1.0)
    ends: list[str] = []
    name = "BoxSearch" if search == "boxes" else "UnitSearch"
    run = getattr(module, name).run

    def recorded(self: Any, *arguments: Any) -> Any:
        found = run(self, *arguments)
        ends.append(found if isinstance(found, str) else found.stopped)
        return found

    monkeypatch.setattr(getattr(module, name), "run", recorded)
    return ends


def conjunction(seed: int) -> Region:
    """Draw a box with one case of two or three rows, close to the value at its centre."""
    generator = np.random.default_rng(seed)
    region = drawn(generator)
    net = network(seed)
    with torch.no_grad():
        outputs = net.double()((region.lower + region.upper)[None] / 2)[0]
    cases = []
    for _ in range(int(generator.integers(1, 3))):
        weight = torch.tensor(generator.integers(-2, 3, (int(generator.integers(2, 4)), OUTPUTS)).astype(float))
        bias = -(weight @ outputs) + torch.tensor(generator.uniform(-0.1, 0.3, len(weight)))
        cases.append(unsafe(weight.tolist(), bias.tolist()))
    return Region(region.lower, region.upper, tuple(cases))


@pytest.mark.parametrize("search", SEARCHES)
def test_each_search_agrees_with_the_enumeration(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = only(search, monkeypatch)
    said = {"holds": 0, "violated": 0, "unknown": 0}
    for seed in range(40):
        net, region = network(seed), conjunction(seed)
        answer = decide(traced(network(seed)), [region], bounds=pm.bounds.Exact(seconds=1))
        depth = max(deepest(net, region, case) for case in region.unsafe)
        said[answer.verdict] += 1
        if answer.verdict == "holds":
            assert depth < 0
            assert answer.margin <= -depth + 1e-6
        elif answer.verdict == "violated":
            assert answer.point is not None
            outputs = net.double()(answer.point[None])[0]
            assert any(bool((case.weight @ outputs + case.bias <= 1e-12).all()) for case in region.unsafe)
        else:
            assert abs(depth) < 1e-4
    assert min(said["holds"], said["violated"]) > 5
    assert said["unknown"] <= 1
    assert len(ends) > 10


@pytest.mark.parametrize("search", SEARCHES)
def test_a_conjunction_that_no_row_excludes(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """y = (|x_0|, x_1): |x_0| <= 0.3 and -|x_0| <= -0.4 cannot both hold, while each can."""
    ends = only(search, monkeypatch)

    class Absolute(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x[:, :1].abs(), x[:, 1:]], 1)

    graph = traced(Absolute())
    never = unsafe([[1, 0], [-1, 0]], [-0.3, 0.4])
    for cases, verdict in (((never,), "holds"), ((never, unsafe([[1, 0], [0, 1]], [-0.1, 0.4])), "violated")):
        region = box([-1.0, -0.5], [1.0, 0.5], *cases)
        assert decide(graph, [region], bounds=pm.bounds.Exact(seconds=3)).verdict == verdict
    assert ends[0] == ""


def test_several_boxes_share_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that one of many boxes can meet is found, and every other one is excluded."""
    ends = only("boxes", monkeypatch)
    net = network(1)
    regions = []
    for k in range(12):
        low = [-1 + k / 6, -0.5]
        regions.append(box(low, [low[0] + 1 / 6, 0.5], unsafe([[1, 0, 0]], [0.0]), unsafe([[0, 1, 0]], [0.0])))
    depths = [max(deepest(net, one, case) for case in one.unsafe) for one in regions]
    shift = sorted(depths)[-1]
    cases = [unsafe([[1, 0, 0]], [shift - 0.02]), unsafe([[0, 1, 0]], [shift - 0.02])]
    shifted = [Region(one.lower, one.upper, tuple(cases)) for one in regions]
    found = decide(traced(net), shifted, bounds=pm.bounds.Exact(seconds=5))
    assert found.verdict == "violated"
    safe = [unsafe([[1, 0, 0]], [shift + 0.02]), unsafe([[0, 1, 0]], [shift + 0.02])]
    clear = [Region(one.lower, one.upper, tuple(safe)) for one in regions]
    assert decide(traced(net), clear, bounds=pm.bounds.Exact(seconds=5)).verdict == "holds"
    assert ends
    assert INPUTS == 2
