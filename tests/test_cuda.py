"""Numbers on a GPU equal those on the CPU in both precisions, for any of torch's settings; skipped without a GPU."""

import subprocess
import sys
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.attack.lower_bounds import attack_lower_bounds
from proofmap.bounds import METHODS, Exact, named
from proofmap.execution import Sampler
from proofmap.explainers.methods.enclosure import enclose
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.metrics import METRICS
from proofmap.rules import linear_operations as linear
from proofmap.runtime import compiled_kernels
from proofmap.search.exact import exact_bounds
from proofmap.verify.objective import forms_of
from tests.bounds import maps
from tests.bounds.setting import both_sides, mask_for
from tests.metrics.models import network
from tests.metrics.test_metric import X, made, subject
from tests.models import MODELS, Case, graph_of
from tests.search.setting import hidden_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def tf32_on() -> Iterator[None]:
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)
def test_the_gpu_equals_the_cpu(case: Case) -> None:
    """To 1e-7 in double precision, because CUDA multiplies by a single-precision 1/6 in hardswish.

    Optimised slopes depend on every rounding error, so their bounds are only close.
    """
    x = case.inputs(2, torch.float64, seed=1)
    mask = mask_for(case.shape, 3)
    ball = pm.Ball(0.03, inf, (case.low, case.high))
    graph = graph_of(case, torch.float64)
    for name in [*METHODS, "ibp+forward+backward"]:
        expected = both_sides(graph, ball.at(x, mask), named(name), "shared")
        for dtype, close in ((torch.float64, 1e-7), (torch.float32, 1e-4)):
            found = both_sides(graph.to(CUDA, dtype), ball.at(x.to(CUDA, dtype), mask), named(name), "shared")
            close = 1e-2 if name == "alpha" else close
            for ours, cpus in zip(found, expected, strict=True):
                assert ours.device.type == "cuda"
                torch.testing.assert_close(
                    ours.cpu().double(), cpus, rtol=close, atol=close * (1 + float(cpus.abs().max()))
                )


@pytest.mark.parametrize("name", maps.BODIES)
def test_windows_through_compiled_kernels_and_matrices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for many coefficients, used for few."""
    graph = maps.graph_of(name)
    ball, mask = pm.Ball(0.05, inf, (-1.0, 1.0)), mask_for(maps.SHAPE, 16)
    expected = both_sides(graph, ball.at(maps.points(2), mask), named("backward"), "shared")
    monkeypatch.setattr(compiled_kernels, "_MIN_ENTRIES", 1)
    monkeypatch.setattr(linear, "_MATRIX_MAX_FILTERS", 10**6)
    for dtype, close in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        family = ball.at(maps.points(2).to(CUDA, dtype), mask)
        found = both_sides(graph.to(CUDA, dtype), family, named("backward"), "shared")
        for ours, cpus in zip(found, expected, strict=True):
            torch.testing.assert_close(
                ours.cpu().double(), cpus, rtol=close, atol=close * (1 + float(cpus.abs().max()))
            )


@pytest.mark.parametrize("fewest", [1, 2**22])
def test_sampled_explanations_are_those_of_the_cpu(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without our own kernel.

    The noise is drawn on the CPU for both devices, because the generators of devices differ.
    """
    monkeypatch.setattr(compiled_kernels, "_MIN_ENTRIES", fewest)
    graph = maps.graph_of("mobile")
    x, mask = maps.points(2), mask_for(maps.SHAPE, 9)[None]
    head, _ = cut(graph, graph[graph.output].inputs[0])
    delta = pm.Ball(0.05).at(x).sample(6, torch.Generator().manual_seed(0))
    expected = enclose(Sampler(head, None, 2**28), x, mask, delta, 9)
    found = enclose(Sampler(head, None, 2**28), x.to(CUDA), mask.to(CUDA), delta.to(CUDA), 9)
    for ours, cpus in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), cpus, rtol=1e-9, atol=1e-9)
    low = enclose(Sampler(head, torch.float16, 2**28), x.to(CUDA), mask.to(CUDA), delta.to(CUDA), 9)
    for ours, full, cpus in zip(low, found, expected, strict=True):
        assert torch.equal(ours[:, 0], full[:, 0])  # B itself
        torch.testing.assert_close(ours.cpu(), cpus, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [pm.SmoothEVA, pm.PathEVA, pm.NestedEVA, pm.NoiseEVA, pm.BlendEVA])
def test_maps_by_gradients_are_those_of_the_cpu(kind: type[pm.explainers.Explainer]) -> None:
    """The noise is drawn on the CPU for both devices."""
    model, x = pm.zoo.mnist_mlp().double(), pm.data.digits()[0][:3].double()
    settings: Any = {"groups": pm.groups.grid(7), "progress": False}
    expected = kind(model, pm.Ball(0.1, domain=(0.0, 1.0)), **settings).explain(x)
    found = kind(model.to(CUDA), pm.Ball(0.1, domain=(0.0, 1.0)), **settings).explain(x.to(CUDA))
    assert found.scores.device.type == "cuda"
    torch.testing.assert_close(found.scores.cpu(), expected.scores, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.overlap.full.cpu(), expected.overlap.full, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_the_packaged_network(norm: float) -> None:
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:4]
    ball = pm.Ball(0.3 if norm < inf else 0.01, norm, (0.0, 1.0))
    expected = pm.overlap(model.double(), x.double(), ball, groups=pm.groups.grid(12))
    found = pm.overlap(model.to(CUDA, torch.float32), x.to(CUDA), ball, groups=pm.groups.grid(12))
    assert found.full.device.type == "cuda"
    torch.testing.assert_close(found.full.cpu().double(), expected.full, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.frozen.cpu().double(), expected.frozen, rtol=1e-3, atol=1e-3)
    small = pm.overlap(model, x.to(CUDA), ball, groups=pm.groups.grid(12), memory=10**7)
    torch.testing.assert_close(small.frozen, found.frozen, rtol=1e-4, atol=1e-4)


def test_sampling_and_projection_stay_inside() -> None:
    x = pm.data.digits()[0][:2].to(CUDA)
    for norm in (1.0, 2.0, inf):
        family = pm.Ball(0.5, norm, (0.0, 1.0)).at(x)
        assert bool(family.contains(family.sample(20, torch.Generator(CUDA).manual_seed(0))).all())
        assert bool(family.contains(family.project(torch.randn(5, *x.shape, device=CUDA))).all())


@pytest.mark.parametrize("ball", [pm.Ball(0.02, domain=(0.0, 1.0)), pm.Ball(0.3, 2, (0.0, 1.0))])
def test_a_search_closes_its_gap_on_the_gpu(ball: pm.Ball) -> None:
    """Upper bounds from one device hold at the points of the other."""
    model, x = pm.zoo.mnist_mlp(), pm.data.digits()[0][:1]
    bounds = pm.bounds.Exact(gap=0.01, seconds=20)
    here = pm.overlap(model, x, ball, groups=pm.groups.grid(3), bounds=bounds)
    there = pm.overlap(model.to(CUDA), x.to(CUDA), ball, groups=pm.groups.grid(3), bounds=bounds)
    assert there.full.device.type == "cuda"
    for ours, cpus in ((there, here), (here, there)):
        assert bool((ours.full.cpu() >= cpus.full_lower.cpu() - 1e-4).all())
        assert bool((ours.frozen.cpu() >= cpus.frozen_lower.cpu() - 1e-4).all())
    assert bool((there.full_lower <= there.full).all())


@pytest.mark.parametrize("bounds", [named("crown-ibp"), named("backward"), Exact(gap=0.01, seconds=20)])
def test_rigorous_bounds_hold_for_every_run(bounds: pm.bounds.Method) -> None:
    """At points of the ball, in float32 on both devices and in float64, without any tolerance."""
    model, x = pm.zoo.mnist_mlp(), pm.data.digits()[0][:2]
    ball, groups = pm.Ball(0.02, domain=(0.0, 1.0)), pm.groups.grid(3)
    met = pm.overlap(model, x, ball, groups=groups, bounds=Exact(gap=0.01, seconds=10)).points
    assert met is not None
    target = model(x).argmax(1)
    there = pm.overlap(model.to(CUDA), x.to(CUDA), ball, groups=groups, bounds=bounds, rigorous=True)
    upper = torch.cat([there.full[:, None], there.frozen], 1).cpu().double()
    lower = torch.cat([there.full_lower[:, None], there.frozen_lower], 1).cpu().double()
    torch.set_float32_matmul_precision("highest")
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float32), ("cpu", torch.float64)):
        net = pm.zoo.mnist_mlp().to(device, dtype)
        for points, below in ((met, False), (there.points, True)):
            if points is None:
                continue
            with torch.no_grad():
                logits = net(points.flatten(0, 1).to(device, dtype)).cpu().double().view(*points.shape[:2], -1)
            own = target[:, None, None].expand(-1, points.shape[1], 1)
            value = logits.scatter(2, own, -inf).amax(2) - logits.gather(2, own).squeeze(2)
            assert bool((value <= upper).all())
            assert not below or bool((lower <= value).all())


@pytest.mark.parametrize("ball", [pm.Ball(0.5, domain=(0.0, 1.0)), pm.Ball(0.6, 1), pm.Ball(0.5, 2, (0.0, 1.0))])
def test_rigorous_searches_agree_with_the_cpu(ball: pm.Ball) -> None:
    """The two devices solve triangular systems and sum in different orders; upper bounds hold at the other's points."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.ReLU(), torch.nn.Linear(12, 8), torch.nn.ReLU())
    model.append(torch.nn.Linear(8, 3))
    x, groups = torch.rand(2, 4), torch.arange(4)
    bounds = Exact(seconds=5)
    here = pm.overlap(model, x, ball, groups=groups, bounds=bounds, rigorous=True)
    there = pm.overlap(model.to(CUDA), x.to(CUDA), ball, groups=groups.to(CUDA), bounds=bounds, rigorous=True)
    for ours, cpus in ((there, here), (here, there)):
        assert bool((ours.full.cpu() >= cpus.full_lower.cpu()).all())
        assert bool((ours.frozen.cpu() >= cpus.frozen_lower.cpu()).all())
    assert bool((there.full - there.full_lower < 0.01).all())


def test_several_searches_at_once_agree_with_one_after_the_other() -> None:
    """Upper bounds of either hold at the points of the other, and each kept point has its stated value."""
    model, x = pm.zoo.mnist_mlp().to(CUDA, torch.float64), pm.data.digits()[0][:6].to(CUDA, torch.float64)
    graph, family = pm.trace(model, x), pm.Ball(0.02, domain=(0.0, 1.0)).at(x, mask_for((1, 28, 28), 4).to(CUDA))
    logits = graph(x)
    forms = forms_of(logits, logits.argmax(1), None, "margin")
    sides = []
    for workers in (1, 4):
        met = attack_lower_bounds(graph, family, forms, 2**34)
        known = torch.full_like(met.value, 99.0)
        hidden = hidden_of(graph, family)
        closing = exact_bounds(graph, family, met, known, hidden, Exact(gap=0.01, seconds=5), 2**34, workers=workers)
        assert {one.stopped for one in closing.results} <= {"", "time"}
        assert bool((closing.upper < 99).all())
        values = (graph(met.points.flatten(0, 1)).view(6, 5, -1) @ forms.mT).amax(2)
        torch.testing.assert_close(met.value, values, rtol=1e-9, atol=1e-9)
        sides.append((met.value, closing.upper))
    for lower, _ in sides:
        for _, upper in sides:
            assert bool((lower <= upper + 1e-9).all())


def test_probable_bounds_contain_the_truth_for_a_half_space() -> None:
    """Other random numbers than on the CPU, the same statement; in float32, with TF32 enabled outside."""
    line = torch.nn.Linear(4, 2, device=CUDA)
    weights = torch.tensor([2.0, 1.0, 0.5, 0.0], device=CUDA)
    with torch.no_grad():
        line.weight.copy_(torch.stack([weights, -weights]))
        line.bias.copy_(torch.tensor([-1.0, 1.0], device=CUDA))
    x, groups = torch.full((2, 4), 0.5, device=CUDA), torch.arange(4, device=CUDA)
    explainer = pm.ProbableEVA(line, pm.Ball(0.2, norm=2), sigma=0.4, samples=60_000, groups=groups, progress=False)
    found = explainer.explain(x).overlap
    lead = (float(weights.sum()) / 2 - 1) / (0.4 * float(weights.norm()))
    truth = 2 * torch.special.ndtr(0.5 * (1 - (weights / weights.norm()).square()).sqrt().double() - lead) - 1
    for frozen in found.frozen.double():
        assert bool(((truth <= frozen) & (frozen <= truth + 0.03)).all())


_FIRST = """
import threading, torch
from proofmap.search.frontier import SearchResult
from proofmap.search.parallel import run_searches

together_at = threading.Barrier(4)
def work(n, _):
    one = torch.eye(3, device="cuda")
    together_at.wait()
    torch.linalg.solve_triangular(one, one, upper=False)
    return n
assert run_searches(4, 4, torch.device("cuda"), threading.Event(), work) == [0, 1, 2, 3]
"""


def test_torchs_solvers_may_be_loaded_by_threads() -> None:
    """Torch loads its solvers at their first use, and fails if two threads do so at once."""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", _FIRST], check=True)


@pytest.mark.parametrize("name", [name for name, kind in METRICS.items() if kind.subject != "overlap"])
def test_metrics_equal_those_of_the_cpu(name: str) -> None:
    """Random numbers of metrics are drawn on the CPU, wherever the samples are."""
    kind, model = METRICS[name], network(12, 8, 3)
    here = made(kind)(model, X, None, subject(kind, X))
    there = made(kind)(model.to(CUDA), X.to(CUDA), None, subject(kind, X.to(CUDA)))
    assert there.device.type == "cuda"
    torch.testing.assert_close(there.cpu(), here, rtol=1e-6, atol=1e-6)
