"""Range of folded operations: bounds account for underflow, and operations that may overflow are not folded."""

import random
from collections.abc import Sequence
from math import isfinite

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import ProofmapError
from proofmap.graph.ir import Folded, Graph, Node
from proofmap.graph.rewrite.fold import fold_constants

IBP = pm.bounds.IBP()


class Chain(nn.Module):
    """A chain of factors after an optional batch norm, layer or pool."""

    def __init__(self, factors: Sequence[float], first: nn.Module | None = None) -> None:
        super().__init__()
        self.factors, self.first = tuple(factors), nn.Identity() if first is None else first

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for factor in self.factors:
            x = x * factor
        return x


def norm(weight: float, var: float) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(3, eps=0.0)
    assert layer.running_var is not None
    layer.weight.data.fill_(weight)
    layer.running_var.fill_(var)
    return layer.eval()


def layer(scale: float) -> nn.Linear:
    made = nn.Linear(3, 3, bias=False)
    made.weight.data = scale * torch.eye(3)
    return made


def violated(model: nn.Module, x: Tensor, eps: float, *, rigorous: bool = True) -> bool:
    """Return whether the module leaves its bounds somewhere in the ball; a refusal counts as no violation."""
    try:
        found = pm.overlap(model, x, pm.Ball(eps), bounds=IBP, rigorous=rigorous)
    except ProofmapError:
        return False
    bound, target = found.full.item(), int(found.target)
    noise = torch.rand(64, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        outputs = model(torch.cat([x, x + 0.999 * eps * noise])).double()
    if not isfinite(bound):
        return False
    if not bool(outputs.isfinite().all()):
        return True
    reached = float((outputs[:, [k for k in range(3) if k != target]] - outputs[:, target : target + 1]).max())
    return reached > bound + (0.0 if rigorous else 1e-3 * abs(bound))


CHAINS: dict[str, nn.Module] = {
    "down and up": Chain([1e-20, 1e-20, 1e20, 1e20]),
    "down and up, a layer": Chain([1e-20, 1e20, 1e20], layer(1e-20)),
    "down and up, a norm": Chain([1e-19, 1e20, 1e20], norm(1e-20, 1.0)),
    "up and down": Chain([1e38, 1e-38]),
    "up and down, a layer": Chain([1e-38], layer(1e38)),
    "up and down, a norm": Chain([1e-38], norm(1.0, 1e-38)),
    "norm of extremes": Chain([1.0], norm(1e-30, 1e-38)),
    "absorbed into a layer": nn.Sequential(Chain([1e-20, 1e-20]), layer(1e20), Chain([1e20])),
    "a constant that float32 takes for 0": Chain([1e-50, 1e30, 1e20]),
    "over the range": Chain([1e20, 1e20, 1e-20, 1e-20]),
}


@pytest.mark.parametrize("rigorous", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_bounds_hold_for_the_values_of_the_module(name: str, rigorous: bool) -> None:
    if name.startswith("down") and not rigorous:
        pytest.skip("without roundings nothing is said of underflow")
    for seed in range(4):
        x = 3.3 + 0.3 * torch.rand(1, 3, generator=torch.Generator().manual_seed(seed))
        assert not violated(CHAINS[name], x, (0.0, 0.3)[seed % 2], rigorous=rigorous)


@pytest.mark.whole
def test_random_chains() -> None:
    """600 chains with factors up to the limits of float32 and back."""
    for seed in range(600):
        draw = random.Random(seed)
        edge = draw.choice([draw.uniform(-41.5, -39), draw.uniform(37, 38.7)])
        share = draw.uniform(0.3, 0.7)
        there, back = [10.0 ** (edge * part) for part in (share, 1 - share)], [10.0 ** (-edge / 2)] * 2
        first = draw.choice([None, None, layer(1.0), norm(1.0, 1.0)])
        x = 0.2 + torch.rand(1, 3, generator=torch.Generator().manual_seed(seed))
        assert not violated(Chain([*there, *back], first), x, draw.choice([0.0, 0.0, 0.05, 0.2])), seed


def chain(*scales: float) -> Graph:
    nodes = [Node("x", "input", (), (3,))]
    for scale in scales:
        weight = torch.full((3,), scale, dtype=torch.float64)
        nodes.append(Node(f"n{len(nodes)}", "affine", (nodes[-1].name,), (3,), weight=weight))
    return Graph(tuple(nodes), nodes[-1].name)


def test_a_folded_node_states_the_gain_of_underflow_errors() -> None:
    folded = fold_constants(chain(1e-20, 1e-20, 1e20, 1e20))
    assert [node.op for node in folded.nodes] == ["input", "affine"]
    assert isinstance(folded.nodes[1].folded, Folded)
    assert folded.nodes[1].folded.gain == pytest.approx(1e40)


def test_operations_that_may_overflow_are_not_folded() -> None:
    assert len(fold_constants(chain(1e20, 1e-20)).nodes) == 3
    assert len(fold_constants(chain(1e10, 1e-10)).nodes) == 2


def test_a_constant_outside_float32_is_named() -> None:
    with pytest.raises(pm.ModelError, match=r"has the entry 1e-50, which torch.float32 cannot hold"):
        pm.trace(Chain([1e-50]), torch.rand(1, 3))
    assert pm.trace(Chain([1e-50], layer(1.0)).double(), torch.rand(1, 3).double()).classes == 3
