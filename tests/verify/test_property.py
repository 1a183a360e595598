"""Properties of outputs over boxes: verdicts agree with an enumeration of all activation patterns."""

from importlib import import_module

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import proofmap as pm
from fuzz.properties import HIDDEN, OUTPUTS, deepest
from proofmap.errors import InputError, UnsupportedError
from proofmap.verify.property import Region, Unsafe, decide

Array = NDArray[np.float64]
INPUTS = 2


def network(seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTPUTS))


def traced(net: nn.Module) -> pm.Graph:
    return pm.trace(net, torch.zeros(1, INPUTS))


def box(lower: list[float], upper: list[float], *unsafe: Unsafe) -> Region:
    low, high = (torch.tensor(end, dtype=torch.float64) for end in (lower, upper))
    return Region(low, high, unsafe)


def unsafe(weight: list[list[float]], bias: list[float], strict: bool = False) -> Unsafe:
    rows = torch.tensor(weight, dtype=torch.float64)
    return Unsafe(rows, torch.tensor(bias, dtype=torch.float64), torch.full((len(bias),), strict))


def drawn(generator: np.random.Generator) -> Region:
    """Draw a box with one to three cases of one to three rows."""
    middle, radius = generator.uniform(-1, 1, INPUTS), generator.uniform(0.05, 0.6, INPUTS)
    cases = []
    for _ in range(generator.integers(1, 4)):
        rows = int(generator.integers(1, 4))
        weight = generator.integers(-2, 3, (rows, OUTPUTS)).astype(float)
        cases.append(unsafe(weight.tolist(), generator.uniform(-0.6, 0.6, rows).tolist()))
    return box((middle - radius).tolist(), (middle + radius).tolist(), *cases)


def test_the_answer_is_what_enumeration_says() -> None:
    said = {"holds": 0, "violated": 0, "unknown": 0}
    for seed in range(24):
        net, region = network(seed), drawn(np.random.default_rng(seed))
        answer = decide(traced(net), [region])
        depth = max(deepest(net, region, case) for case in region.unsafe)
        said[answer.verdict] += 1
        if answer.verdict == "holds":
            assert depth < 0
            assert 0 < answer.margin <= -depth + 1e-6
        elif answer.verdict == "violated":
            assert depth >= -1e-9
            assert answer.point is not None
            assert bool(((answer.point >= region.lower) & (answer.point <= region.upper)).all())
            outputs = net.double()(answer.point[None])[0]
            assert any(bool((case.weight @ outputs + case.bias <= 1e-12).all()) for case in region.unsafe)
        else:
            assert depth > -1.0
    assert said["holds"] > 5
    assert said["violated"] > 5
    assert said["unknown"] < 8


class Known(nn.Module):
    """Return the network y = (relu(x_0), x_0 - x_1)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.relu(x[:, :1]), x[:, :1] - x[:, 1:]], 1)


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (unsafe([[1, 0]], [-0.2]), "holds"),  # y_0 <= 0.2, and y_0 is 0.25 to 0.5
        (unsafe([[1, 0]], [-0.25]), "violated"),  # met at one endpoint only, with equality
        (unsafe([[1, 0]], [-0.25], strict=True), "unknown"),  # the endpoint is no counterexample of <
        (unsafe([[-1, 0]], [0.51]), "holds"),
        (unsafe([[-1, 0]], [0.4]), "violated"),
        (unsafe([[1, 0], [-1, 0]], [-0.4, 0.45]), "unknown"),  # 0.45 <= y_0 <= 0.4: each row alone can be met
        (unsafe([[1, 0], [0, 1]], [-0.4, 0.9]), "holds"),  # y_1 is at least -0.75
        (unsafe([[1, 0], [0, -1]], [-0.4, 0.1]), "violated"),
    ],
)
def test_a_case_is_excluded_by_one_row_and_met_by_all(case: Unsafe, verdict: str) -> None:
    answer = decide(traced(Known()), [box([0.25, 0.0], [0.5, 1.0], case)])
    assert answer.verdict == verdict
    assert (answer.point is None) == (verdict != "violated")


def test_every_region_and_case_counts() -> None:
    graph = traced(Known())
    never, sometimes = unsafe([[1, 0]], [-0.2]), unsafe([[-1, 0]], [0.4])
    inside, outside = ([0.25, 0.0], [0.5, 1.0]), ([0.25, 0.0], [0.3, 1.0])
    assert decide(graph, [box(*inside, never, never)]).verdict == "holds"
    assert decide(graph, [box(*inside, never, sometimes)]).verdict == "violated"
    assert decide(graph, [box(*outside, never, sometimes)]).verdict == "holds"
    found = decide(graph, [box(*outside, never, sometimes), box(*inside, never, sometimes)])
    assert found.verdict == "violated"
    assert found.point is not None
    assert float(found.point[0]) > 0.4


def test_the_point_is_in_the_box_exactly_in_float32() -> None:
    """0.1 and 0.3 are not float32 numbers. The nearest ones lie outside the box on one side."""
    region = box([0.1, 0.1], [0.3, 0.1], unsafe([[-1, 0]], [0.2999]))
    point = decide(traced(Known()), [region]).point
    assert point is not None
    assert bool(((point >= region.lower) & (point <= region.upper)).all())
    assert float(point[0]) == float(point[0].float())
    assert float(point[1]) == 0.1  # no float32 lies in the box, so the number of the file is used
    below = torch.tensor(0.3, dtype=torch.float64).float().double() > 0.3
    assert bool(below)  # so the nearest float32 would be outside


def test_a_point_that_the_model_itself_does_not_confirm_is_none() -> None:
    region = box([0.25, 0.0], [0.5, 1.0], unsafe([[-1, 0]], [0.4]))
    seen: list[Tensor] = []

    def run(x: Tensor) -> Tensor:
        seen.append(x)
        return torch.zeros(len(x), 2)

    assert decide(traced(Known()), [region], run=run).verdict == "unknown"
    assert seen
    assert decide(traced(Known()), [region], run=Known()).verdict == "violated"


def test_a_bound_within_rounding_of_zero_excludes_nothing() -> None:
    region = box([0.25, 0.0], [0.5, 1.0], unsafe([[1, 0]], [-0.25 * (1 - 1e-9)]))
    assert decide(traced(Known()), [region]).verdict == "unknown"


def test_what_cannot_be_bounded_is_unknown_and_says_why() -> None:
    class Logarithm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([torch.log(x[:, :1] - x[:, 1:]), x[:, 1:]], 1)

    region = box([0.25, 0.0], [0.5, 0.3], unsafe([[-1, 0]], [5.0]))
    answer = decide(pm.trace(Logarithm(), torch.tensor([[0.5, 0.1]])), [region])
    assert answer.verdict == "unknown"
    assert answer.why is not None
    assert "log" in answer.why


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1)])
def test_probabilities_are_compared_with_each_other_and_with_nothing_else(last: nn.Module) -> None:
    """A removed softmax or sigmoid: the logits have the order of the outputs, but not their values."""
    net = nn.Sequential(Known(), last)
    graph = traced(net)
    assert graph.taken_off is not None
    region = ([0.25, 0.1], [0.5, 1.0])
    assert decide(graph, [box(*region, unsafe([[1, -1]], [0]))], run=net).verdict == "holds"  # y_0 - y_1 = x_1 > 0
    assert decide(graph, [box(*region, unsafe([[-2, 2]], [0]))], run=net).verdict == "violated"
    for case in (unsafe([[1, -1]], [0.5]), unsafe([[-1, 0]], [0.3]), unsafe([[1, 1]], [0]), unsafe([[1, -2]], [0])):
        with pytest.raises(InputError, match=f"taken off|the model ends in a {graph.taken_off}"):
            decide(graph, [box(*region, case)], run=net)


def test_a_probability_of_one_output_is_refused() -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(x[:, :1] - x[:, 1:])

    with pytest.raises(InputError, match="the model ends in a sigmoid of one output"):
        decide(traced(One()), [box([0.0, 0.0], [1.0, 1.0], unsafe([[1, -1]], [0]))])


def test_a_part_that_cannot_be_bounded_is_named_before_any_work() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([torch.sort(x, dim=1).values, x], 1)[:, 1:3]

    with pytest.raises(UnsupportedError, match="sort"):
        decide(traced(Sorted()), [box([0.0, 0.0], [1.0, 1.0], unsafe([[1, 0]], [0]))])


def test_what_does_not_fit_the_network_is_refused() -> None:
    with pytest.raises(InputError, match="a property of 1 output, expected 2"):
        decide(traced(Known()), [box([0.0, 0.0], [1.0, 1.0], unsafe([[1]], [0]))])
    with pytest.raises(InputError, match=r"a box of shape \(3,\), expected \(2,\)"):
        decide(traced(Known()), [box([0.0] * 3, [1.0] * 3, unsafe([[1, 0]], [0]))])
    with pytest.raises(InputError, match="no region"):
        decide(traced(Known()), [])


class Ridge(nn.Module):
    """y = |x_0| + |x_1| - relu(x_0 + x_1) - relu(-x_0 - x_1) is at least 0, but linear relaxations cannot prove it."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.sum(1, keepdim=True)
        return torch.cat([x.abs().sum(1, keepdim=True) - torch.relu(total) - torch.relu(-total), x[:, :1]], 1)


@pytest.mark.parametrize(("limit", "verdict"), [(-0.01, "holds"), (-1e-8, "unknown"), (1.9, "violated")])
def test_a_search_decides_what_bounds_leave_open(limit: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """y <= limit is unsafe, and y is at least 0. A limit closer to 0 than the slack stays open."""
    monkeypatch.setattr(import_module("proofmap.verify.property_search"), "_MAX_MOVING_INPUTS", 0)
    region = box([-1.0, -1.0], [1.0, 1.0], unsafe([[1, 0]], [-limit]))
    graph = traced(Ridge())
    answer = decide(graph, [region], bounds=pm.bounds.Exact(seconds=5))
    assert answer.verdict == verdict
    if limit < 0:
        assert decide(graph, [region]).verdict == "unknown"
        assert -2e-3 <= answer.margin <= -limit + 1e-9
    short = decide(graph, [region, region], bounds=pm.bounds.Exact(seconds=1e-9))
    assert short.verdict == ("violated" if verdict == "violated" else "unknown")


def test_a_search_holds_with_all_roundings_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """relu((x + 2²⁴) - 2²⁴ - x) is 0 over the reals but up to 1 in float32. No search may exclude this."""
    first, second, last = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1)
    for layer, weight, bias in (
        (first, [[1.0, 0.0], [1.0, 0.0]], [2.0**24, 0.0]),
        (second, [[1.0, -1.0], [-1.0, 1.0]], [-(2.0**24), 2.0**24]),
        (last, [[4.0, 4.0]], [0.0]),
    ):
        layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
    net = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
    region = box([0.6, 0.0], [0.8, 1.0], unsafe([[-1.0]], [0.5]))  # y >= 0.5
    monkeypatch.setattr(import_module("proofmap.verify.property"), "attack_cases", lambda *_: None)
    verdicts = [
        decide(traced(net), (region,), bounds=pm.bounds.Exact(seconds=1), rigorous=rigorous).verdict
        for rigorous in (False, True)
    ]
    assert verdicts == ["holds", "unknown"]
