"""A decision by the logits is also a decision by the probabilities in float32 if the margin is large enough."""

from math import inf
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from onnx import helper
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph.rewrite.probability_head import MAX_LOGIT_GAP, decision_margin
from proofmap.verify.property import Region, Unsafe, decide
from tests.graph.onnx.files import make

MARGIN = decision_margin("softmax")
LAST = {"Softmax": nn.Softmax(1), "LogSoftmax": nn.LogSoftmax(1)}


def spread(count: int, classes: int, seed: int = 0) -> Tensor:
    """Return logits of all sizes; the largest is ahead by at least the margin, often by no more, rounded up."""
    draw = torch.Generator().manual_seed(seed)
    size = 10 ** (7 * torch.rand(count, 1, generator=draw, dtype=torch.float64) - 4)
    z = (size * torch.randn(count, classes, generator=draw, dtype=torch.float64)).float()
    best = z[:, 1:].amax(1)
    ahead = torch.nextafter((best.double() + MARGIN).float(), torch.tensor(inf))
    ahead = torch.where(ahead.double() - best.double() < MARGIN, torch.nextafter(ahead, torch.tensor(inf)), ahead)
    return torch.cat([ahead[:, None], z[:, 1:]], 1)


def by_onnxruntime(op: str, z: Tensor, tmp_path: Path) -> Tensor:
    attributes: dict[str, Any] = {} if op == "Sigmoid" else {"axis": 1}
    model = make([helper.make_node(op, ["x"], ["y"], **attributes)], ("n", z.shape[1]), {})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": z.numpy()})[0])


@pytest.mark.parametrize("op", LAST)
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_margin_of_the_logits_is_kept(op: str, classes: int, tmp_path: Path) -> None:
    z = spread(2_000_000 // classes, classes)
    for p in (LAST[op](z), by_onnxruntime(op, z, tmp_path)):
        assert bool((p[:, :1] > p[:, 1:]).all())


def test_a_smaller_margin_of_the_logits_is_not_kept(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    z = torch.rand(10000, 1, generator=torch.Generator().manual_seed(0))
    z = torch.cat([torch.nextafter(z, torch.tensor(inf)), z], 1)
    for p in (z.softmax(1), by_onnxruntime("Softmax", z, tmp_path)):
        assert bool((p[:, 0] <= p[:, 1]).any())


@pytest.mark.parametrize("op", LAST)
def test_classes_close_to_the_largest_have_different_probabilities(op: str, tmp_path: Path) -> None:
    z = spread(100_000, 3, seed=1)
    top = z[:, :1] + MAX_LOGIT_GAP * torch.rand(len(z), 1, generator=torch.Generator().manual_seed(2))
    z = torch.cat([z, top], 1)[(top - z[:, :1] <= MAX_LOGIT_GAP)[:, 0]]
    for p in (LAST[op](z), by_onnxruntime(op, z, tmp_path)):
        assert bool((p[:, :1] > p[:, 1:3]).all())


def test_one_probability_is_on_the_right_side_of_a_half(tmp_path: Path) -> None:
    z = torch.logspace(-16, 8, 100_000, base=2, dtype=torch.float64).float()[:, None]
    z = z[z[:, 0] >= MARGIN]
    for p in (torch.sigmoid, lambda z: by_onnxruntime("Sigmoid", z, tmp_path)):
        assert bool((p(z) > 0.5).all())
        assert bool((p(-z) < 0.5).all())


class Moved(nn.Module):
    """The input plus an offset in float32, and a last operation."""

    def __init__(self, offset: list[float], last: nn.Module) -> None:
        super().__init__()
        self.offset, self.last = nn.Parameter(torch.tensor(offset)), last

    def forward(self, x: Tensor) -> Tensor:
        p: Tensor = self.last(x + self.offset)
        return p


X = torch.zeros(1, 2)
NEAR = [0.3, 0.3 + 2.0**-24]  # two logits with equal probabilities


@pytest.mark.parametrize("rigorous", [False, True])
@pytest.mark.parametrize("bounds", [pm.bounds.IBP(), pm.bounds.Exact(seconds=1.0)], ids=["IBP", "Exact"])
@pytest.mark.parametrize(
    ("offset", "last"),
    [(NEAR, nn.Softmax(1)), (NEAR, nn.LogSoftmax(1)), ([20.0, 30.0], nn.Sigmoid()), ([-120.0, -110.0], nn.Sigmoid())],
    ids=["softmax", "log-softmax", "two of 1", "two of 0"],
)
def test_equal_probabilities_leave_the_decision_open(
    offset: list[float], last: nn.Module, bounds: pm.bounds.Method, rigorous: bool
) -> None:
    model = Moved(offset, last)
    p = model(X)[0]
    assert p[1] <= p[0] + 2.0**-24  # a tie, or one rounding error: the first class may be chosen
    assert pm.overlap(model, X, pm.Ball(0.0), target=1, bounds=bounds, enough=0.0, rigorous=rigorous).full.item() >= 0
    assert not bool(pm.certified_radius(model, X, target=1, rigorous=rigorous) > 0)


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1)])
@pytest.mark.parametrize("bounds", [pm.bounds.IBP(), pm.bounds.Exact(seconds=1.0)], ids=["IBP", "Exact"])
def test_probabilities_that_differ_decide(last: nn.Module, bounds: pm.bounds.Method) -> None:
    found = pm.overlap(Moved([0.3, 0.4], last), X, pm.Ball(0.01), bounds=bounds, enough=0.0, rigorous=True)
    assert found.full.item() < 0


def ordered(first: int, second: int, *, strict: bool) -> Region:
    """Return the unsafe region: the probability of the first class is at most that of the second, or smaller."""
    weight = torch.zeros(1, 3, dtype=torch.float64)
    weight[0, first], weight[0, second] = 1.0, -1.0
    case = Unsafe(weight, torch.zeros(1, dtype=torch.float64), torch.tensor([strict]))
    box = torch.full((3,), 2.0**-30, dtype=torch.float64)
    return Region(-box, box, (case,))


@pytest.mark.parametrize("bounds", [pm.bounds.IBP(), pm.bounds.Exact(seconds=1.0)], ids=["IBP", "Exact"])
@pytest.mark.parametrize(
    ("offset", "first", "strict", "verdict"),
    [
        ([5.0, 4.0, 0.0], 0, False, "holds"),
        ([0.0, -1.0, 9.0], 0, False, "holds"),
        ([0.0, -1.0, 200.0], 0, False, "unknown"),  # both are 0
        ([0.0, -1.0, 200.0], 0, True, "holds"),  # and 0 < 0 is false
        ([0.3 + 2.0**-20, 0.3, 0.0], 0, False, "unknown"),  # both may round to the same number
    ],
)
def test_properties_compare_differences_that_float32_keeps(
    offset: list[float], first: int, strict: bool, verdict: str, bounds: pm.bounds.Method
) -> None:
    model = Moved(offset, nn.Softmax(1))
    graph = pm.trace(model, torch.zeros(1, 3))
    assert decide(graph, [ordered(first, 1, strict=strict)], bounds=bounds, run=model).verdict == verdict
