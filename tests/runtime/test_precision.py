"""TF32, bf16 and autocast never enter a bound, and the user's settings are as before."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.bounds.state import BoundState
from proofmap.runtime.precision import full_precision, plain_sums

BACKENDS: Any = torch.backends


def settings() -> tuple[object, ...]:
    return (
        torch.get_float32_matmul_precision(),
        BACKENDS.cuda.matmul.allow_tf32,
        BACKENDS.cudnn.allow_tf32,
        BACKENDS.mkldnn.matmul.fp32_precision,
        BACKENDS.mkldnn.conv.fp32_precision,
    )


@pytest.fixture
def loose() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("loose")
def test_settings_are_strict_inside_and_restored_outside() -> None:
    before = settings()
    with full_precision(torch.device("cpu")):
        assert BACKENDS.cuda.matmul.fp32_precision == "ieee"
        assert BACKENDS.cudnn.conv.fp32_precision == "ieee"
        assert BACKENDS.mkldnn.matmul.fp32_precision == "ieee"
        assert torch.is_grad_enabled()  # that is another matter
    assert settings() == before
    with pytest.raises(ZeroDivisionError), full_precision(torch.device("cpu")):
        _ = 1 / 0
    assert settings() == before


@pytest.mark.usefixtures("loose")
def test_bounds_are_the_same_under_loose_settings_and_autocast() -> None:
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:2]
    graph = pm.trace(model, x)
    ball = pm.Ball(0.02, domain=(0.0, 1.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = pm.overlap(graph, x, ball)
    torch.set_float32_matmul_precision("highest")
    outside = pm.overlap(graph, x, ball)
    assert inside.full.dtype == torch.float32
    assert torch.equal(inside.full, outside.full)


@pytest.mark.usefixtures("loose")
def test_tracing_compares_in_full_precision() -> None:
    """Under autocast and loose settings the model itself is off by more than the check allows."""
    model = pm.zoo.mnist_mlp()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph = pm.trace(model, pm.data.digits()[0][:1])
    assert graph.classes == 10


def test_float64_is_taken_from_x() -> None:
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:2]
    single = pm.overlap(model, x, pm.Ball(0.02, domain=(0.0, 1.0)), rigorous=False)
    double = pm.overlap(model, x.double(), pm.Ball(0.02, domain=(0.0, 1.0)), rigorous=False)
    assert double.full.dtype == torch.float64
    torch.testing.assert_close(single.full.double(), double.full, rtol=1e-3, atol=1e-3)


def test_rigorous_bounds_are_summed_by_no_library_with_other_products(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    relax = BoundState.relax

    def watched(self: BoundState, node: Any) -> None:
        seen.append(BACKENDS.cudnn.enabled)
        relax(self, node)

    monkeypatch.setattr(BoundState, "relax", watched)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    for rigorous in (True, False):
        pm.overlap(net, torch.rand(1, 2), pm.Ball(0.1), rigorous=rigorous)
    assert (seen[0], seen[-1]) == (False, True)
    with pytest.raises(ZeroDivisionError), plain_sums():
        raise ZeroDivisionError
    assert BACKENDS.cudnn.enabled
