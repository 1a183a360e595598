"""Explainers that sample: the same samples give the same answer as running the whole network for every member."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import proofmap as pm
from proofmap.bounds import IBP, Backward, Method
from proofmap.errors import BoundError, InputError
from proofmap.explainers import EmpiricalEVA, HybridEVA
from proofmap.explainers.methods.enclosure import overlap_of_boxes
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.verify.overlap import OverlapSettings, family_overlap
from tests.explainers.making import draw
from tests.models import Apply, Inverted, Residual
from tests.peak import with_peak

SAMPLES = 5
BALL = pm.Ball(0.1, domain=(0.0, 1.0))


def small_vgg() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(6 * 6 * 6, 8), nn.ReLU(), nn.Linear(8, 4)),
    )


def blocks() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU6(), Inverted(4, 8), Residual(4, 6, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)),
    )


def dense() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 24 * 24, 9), nn.ReLU(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 4)
    )


# with a split in front of the last layer, and one further up
NETWORKS = {"vgg": (small_vgg, ("10", "6")), "blocks": (blocks, ("7", "2")), "dense": (dense, ("4", "1"))}


def made(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = NETWORKS[name][0]().eval()
        for layer in model.modules():  # weights that keep the scale of the noise, far above rounding
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
    return model


@pytest.fixture
def x() -> Tensor:
    return torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))


def masks(kind: str, x: Tensor) -> Tensor:
    grid = pm.groups.grid(5)((3, 24, 24))
    if kind == "grid":
        return grid
    if kind == "one and the rest":
        mask = torch.zeros(3, 24, 24, dtype=torch.int64)
        mask[:, -1, -1] = 1
        return mask
    return torch.stack([grid, torch.roll(grid, 2, -1).clamp(max=20)])  # for each sample; one lacks some groups


def members(x: Tensor, mask: Tensor, seed: int) -> list[Tensor]:
    """x + δ for the samples of every member, (S, n, *shape)."""
    family = BALL.at(x, mask)
    assert family.mask is not None
    delta = draw(family, SAMPLES, seed)
    return [x + delta] + [torch.where(family.mask == u, x, x + delta) for u in range(family.groups)]


def run(graph: pm.Graph, points: Tensor) -> Tensor:
    with torch.no_grad():
        value = graph(points.flatten(0, 1))
    return value.reshape(*points.shape[:2], *value.shape[1:])


def plain_hybrid(graph: pm.Graph, x: Tensor, mask: Tensor, split: str, method: Method) -> Tensor:
    """The overlap (n, members): boxes from whole runs, and bounds of the rest."""
    head, tail = cut(graph, split)
    target = run(graph, x[None])[0].argmax(1)
    found = []
    for points in members(x, mask, seed=3):
        value = torch.cat([run(head, points), run(head, x[None])])
        low, high = value.amin(0), value.amax(0)
        ball = pm.Ball((high - low) / 2).at((low + high) / 2)
        found.append(family_overlap(tail, ball, target, OverlapSettings(method, 2**30, "separate")).full)
    return torch.stack(found, dim=1)


def plain_empirical(graph: pm.Graph, x: Tensor, mask: Tensor) -> Tensor:
    """The largest margin (n, members) at the samples and at x."""
    target = run(graph, x[None])[0].argmax(1)
    found = []
    for points in members(x, mask, seed=3):
        logits = run(graph, torch.cat([points, x[None]]))
        own = logits.gather(2, target.expand(len(logits), -1)[..., None])
        others = logits.masked_fill(nn.functional.one_hot(target, 4).bool(), -torch.inf)
        found.append((others.amax(2) - own.squeeze(2)).amax(0))
    return torch.stack(found, dim=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "one and the rest", "for each sample"])
@pytest.mark.parametrize("name", NETWORKS)
def test_hybrid_is_what_whole_runs_give(name: str, kind: str, x: Tensor) -> None:
    graph, mask = pm.trace(made(name), x), masks(kind, x)
    for split in NETWORKS[name][1]:
        for method in (Backward(), IBP()):
            truth = plain_hybrid(graph, x, mask, split, method)
            assert float((truth[:, :1] - truth[:, 1:]).amax()) > 1e-2
            wide = (name, split) == ("blocks", "2") and isinstance(method, Backward)
            for memory in (None, 10**6 if wide else 300_000):  # in pieces: two, where forms would go row by row in less
                explainer = HybridEVA(
                    graph, BALL, split=split, groups=mask, samples=SAMPLES, bounds=method, seed=3, memory=memory
                )
                found = explainer.explain(x)
                torch.testing.assert_close(found.overlap.full, truth[:, 0], rtol=1e-4, atol=2e-5)
                torch.testing.assert_close(found.overlap.frozen, truth[:, 1:], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", ["grid", "one and the rest", "for each sample"])
@pytest.mark.parametrize("name", NETWORKS)
def test_empirical_is_what_whole_runs_give(name: str, kind: str, x: Tensor) -> None:
    graph, mask = pm.trace(made(name), x), masks(kind, x)
    truth = plain_empirical(graph, x, mask)
    assert float((truth[:, :1] - truth[:, 1:]).abs().amax()) > 1e-2
    for memory in (None, 30_000):
        found = EmpiricalEVA(graph, BALL, groups=mask, samples=SAMPLES, seed=3, memory=memory).explain(x)
        torch.testing.assert_close(found.overlap.full, truth[:, 0], rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(found.overlap.frozen, truth[:, 1:], rtol=1e-4, atol=2e-5)


STEEP: dict[str, Callable[[Tensor], Tensor]] = {
    "norms": lambda v: v.square().sum((2, 3)).sqrt(),
    "powers": lambda v: (0.5 * (v - 0.3).relu().log()).exp().flatten(1),
    "logarithms": lambda v: ((v - 0.3).relu().log() + 3).relu().flatten(1),
    "reciprocals": lambda v: (v - 0.3).relu().reciprocal().tanh().flatten(1),
    "jumps": lambda v: nn.functional.threshold(v, 0.0, -2.0).flatten(1),
    "jumps down": lambda v: nn.functional.softplus(v, threshold=0).flatten(1),
}


@pytest.mark.parametrize("name", STEEP)
def test_at_the_edge_of_a_domain_members_run_by_themselves(name: str, x: Tensor) -> None:
    """Differences f(b + d) - f(b) are useless where f is undefined or infinite at a sample."""
    x[:, :, 6:] = 0
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), Apply(STEEP[name]))
    with torch.no_grad():
        size = first(x).shape[1]
    graph = pm.trace(nn.Sequential(first, nn.Linear(size, 4)), x)
    black = torch.zeros_like(x)
    for at, mask in ((x, masks("grid", x)), (x, masks("for each sample", x)), (black, black[0].long())):
        truth = plain_empirical(graph, at, mask)
        assert bool(truth.isfinite().all())
        for memory in (None, 3_000_000):
            found = EmpiricalEVA(graph, BALL, groups=mask, samples=SAMPLES, seed=3, memory=memory).explain(at).overlap
            torch.testing.assert_close(found.full, truth[:, 0], rtol=1e-4, atol=2e-5)
            torch.testing.assert_close(found.frozen, truth[:, 1:], rtol=1e-4, atol=2e-5)


def test_a_network_without_weights_keeps_the_type_of_x(x: Tensor) -> None:
    graph = pm.trace(nn.Sequential(nn.AvgPool2d(12), nn.Flatten(), Apply(lambda v: v[:, :4])), x)
    x, mask = x.double(), masks("grid", x)
    found = EmpiricalEVA(graph, BALL, groups=mask, samples=SAMPLES, seed=3).explain(x)
    torch.testing.assert_close(found.overlap.frozen, plain_empirical(graph, x, mask)[:, 1:], rtol=0, atol=1e-14)


def test_values_that_are_not_finite_are_said(x: Tensor) -> None:
    x = torch.full_like(x, 0.8)  # exp(88.8) is too large for float32
    graph = pm.trace(nn.Sequential(Apply(lambda v: (100 * v).exp()), nn.Flatten(), nn.Linear(3 * 24 * 24, 4)), x)
    with pytest.raises(BoundError, match=r"samples lead to NaN or infinite values, .* take a smaller ball"):
        EmpiricalEVA(graph, BALL, samples=2, groups=pm.groups.grid(2)).explain(x)


def operations(graph: pm.Graph, x: Tensor) -> tuple[int, int]:
    """Return the operations of the explainer, and those of one run of the network at one point."""
    with FlopCounterMode(display=False) as spent:
        EmpiricalEVA(graph, BALL, groups=pm.groups.grid(8), samples=SAMPLES).explain(x[:1])
    with FlopCounterMode(display=False) as one:
        graph(x[:1])
    return spent.get_total_flops(), one.get_total_flops()


def test_a_convolutional_network_is_recomputed_in_parts(x: Tensor) -> None:
    spent, one = operations(pm.trace(made("vgg"), x), x)
    assert spent < 65 * SAMPLES * one / 4


def test_a_dense_network_is_run_as_a_whole(x: Tensor) -> None:
    spent, one = operations(pm.trace(made("dense"), x), x)
    assert 65 * SAMPLES * one <= spent <= (65 * SAMPLES + 3) * one


@pytest.mark.slow
def test_the_budget_is_kept() -> None:
    """The boxes at once would need ten times the budget; the samples do not depend on it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, 4, 1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(4 * 12 * 12, 4)),
        )
    x = torch.rand(6, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    graph, limit = pm.trace(model, x), 40 * 10**6

    def explained(memory: int) -> pm.Explanation:
        cells = pm.groups.grid(12)
        return HybridEVA(graph, BALL, split="1", groups=cells, samples=2, bounds=IBP(), memory=memory).explain(x)

    large, free = with_peak(lambda: explained(4 * 10**9))
    small, kept = with_peak(lambda: explained(limit))
    assert kept < limit < free / 10
    torch.testing.assert_close(small.overlap.full, large.overlap.full)
    torch.testing.assert_close(small.overlap.frozen, large.overlap.frozen)
    assert torch.equal(small.scores > 0, large.scores > 0)


@pytest.mark.parametrize("bias", [True, False])
def test_one_last_layer_is_bounded_exactly(bias: bool) -> None:
    """By a formula, which every method agrees with."""
    torch.manual_seed(0)
    graph = pm.trace(nn.Linear(6, 4, bias=bias).double(), torch.zeros(1, 6, dtype=torch.float64))
    lower = torch.rand(2, 3, 6, dtype=torch.float64)
    upper = lower + torch.rand(2, 3, 6, dtype=torch.float64)
    target = torch.tensor([1, 3])
    found = overlap_of_boxes(graph, lower, upper, target, OverlapSettings(Backward(), 2**20))
    for i, j in ((0, 0), (0, 2), (1, 1)):
        ball = pm.Ball((upper - lower)[i, j][None] / 2).at((upper + lower)[i, j][None] / 2)
        for method in (IBP(), Backward()):
            one = family_overlap(graph, ball, int(target[i]), OverlapSettings(method, 2**20))
            torch.testing.assert_close(found[i, j], one.full[0])


@pytest.mark.parametrize(("precision", "close"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_differences_in_low_precision(precision: torch.dtype, close: float, x: Tensor) -> None:
    """The error is relative to the differences: in a small ball, values of this precision would hide them."""
    graph, ball = pm.trace(made("vgg"), x), pm.Ball(0.005, domain=(0.0, 1.0))
    common: dict[str, Any] = {"groups": pm.groups.grid(4), "samples": SAMPLES}
    for make in (
        lambda **own: HybridEVA(graph, ball, split="10", **own),
        lambda **own: EmpiricalEVA(graph, ball, **own),
    ):
        high, low = (make(precision=chosen, **common).explain(x) for chosen in (None, precision))
        assert [high.settings["precision"], low.settings["precision"]] == [None, str(precision)]
        assert torch.equal(low.overlap.full, high.overlap.full)
        assert low.scores.dtype == torch.float32
        assert not torch.equal(low.scores, high.scores)
        torch.testing.assert_close(low.scores, high.scores, rtol=0, atol=close * float(high.scores.abs().max()))


def test_low_precision_that_does_not_suffice(x: Tensor) -> None:
    first = nn.Conv2d(3, 4, 3)
    nn.init.constant_(first.weight, 1e5)
    graph = pm.trace(nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 22 * 22, 3)), x)
    seen = EmpiricalEVA(graph, BALL, precision=torch.float16, samples=2, groups=pm.groups.grid(2))
    with pytest.raises(BoundError, match=r"samples lead to NaN or infinite values, .* leave `precision` out"):
        seen.explain(x)
    hybrid = HybridEVA(graph, BALL, split="1", precision=torch.float16, samples=2, groups=pm.groups.grid(2))
    with pytest.raises(BoundError, match=r"leave `precision` out"):
        hybrid.explain(x)


def test_a_precision_that_torch_lacks_an_operation_for() -> None:
    x = torch.rand(1, 1, 4, 4, 4)
    graph = pm.trace(nn.Sequential(nn.AvgPool3d(2), nn.Flatten(), nn.Linear(8, 3)), x)
    with pytest.raises(InputError, match=r"torch has no torch\.float16 for this network here: leave `precision` out"):
        EmpiricalEVA(graph, BALL, precision=torch.float16, samples=2).explain(x)


@pytest.mark.parametrize("precision", [torch.int8, torch.float64, "float16"])
def test_precisions_that_are_none(precision: torch.dtype, x: Tensor) -> None:
    for make in (
        lambda: EmpiricalEVA(made("vgg"), BALL, precision=precision),
        lambda: HybridEVA(made("vgg"), BALL, split="10", precision=precision),
    ):
        with pytest.raises(InputError, match=r"expected torch\.float16 or torch\.bfloat16"):
            make()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"samples": 0}, "samples=0, expected a whole number of at least 1"),
        ({"samples": 2.5}, r"samples=2\.5, expected a whole number"),
        ({"samples": True}, "samples=True, expected a whole number"),
        ({"samples": "10"}, "samples='10', expected a whole number"),
        ({"split": 1}, "split=1, expected the name of a module or node"),
        ({"split": None}, "split=None, expected the name of a module or node"),
        ({"bounds": "ibp"}, "bounds='ibp', expected a method such as"),
    ],
)
def test_what_is_wrong_is_found_before_any_work(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        HybridEVA(made("vgg"), BALL, **{"split": "10", **wrong})
    if "samples" in wrong:
        with pytest.raises(InputError, match=message):
            EmpiricalEVA(made("vgg"), BALL, **wrong)
