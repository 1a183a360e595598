"""Claims as others see them: Marabou, which reads both files by itself, and a mixed-integer program by HiGHS.

Marabou 2.0.0 is known to rule out points that are there (`benchmarks/marabou.py`): what it confirms is confirmed by
HiGHS too.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import proofmap as pm
from benchmarks.programs import Array, program
from proofmap.bounds import Method
from proofmap.claims.claim import BoundClaim, claims_of, vnnlib_text
from proofmap.graph.onnx import as_onnx, with_rows
from proofmap.sources import Preparation, read_specification
from tests.graph.onnx.files import run
from tests.proof.test_check import exact

highs = pytest.importorskip("benchmarks.highs", reason="needs highspy")
marabou = pytest.importorskip("benchmarks.marabou", reason="needs maraboupy")

BELOW = 0.01  # what is reached less this is a false claim


def dense(seed: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    for parameter in model.parameters():
        parameter.data *= 3
    return model, torch.rand(1, 4)


def convolutional() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    for parameter in model.parameters():
        parameter.data *= 3
    return model, torch.rand(1, 1, 5, 5)


def asked(claim: BoundClaim, graph: pm.graph.Graph, folder: Path) -> tuple[Path, Path]:
    """Write both files of a claim."""
    net, question = folder / "net.onnx", folder / f"{claim.name}.vnnlib"
    net.write_bytes(with_rows(as_onnx(graph), claim.form.rows).SerializeToString())
    question.write_text(vnnlib_text(claim, net.name, []), encoding="utf-8")
    return net, question


def by_highs(net: Path, question: Path, seconds: float = 60) -> tuple[str, Array | None]:
    """Return whether an output can reach its threshold on the box, from the files alone, and the input that does."""
    graph = pm.load(net)
    (region,) = read_specification(question, Preparation(shape=graph.input.shape))
    threshold = float(region.unsafe[0].bias[0])
    single = region.ball(torch.device("cpu"))
    points, above, _ = highs.maximise(program(graph, single, np.eye(graph.classes)), seconds, 1, 1e-6)
    ends = (region.lower.numpy(), region.upper.numpy())
    for point in points:
        inside = point.reshape(graph.input.shape).clip(*ends).astype(np.float32)
        if reached(net, inside) >= threshold:
            return "sat", inside
    return ("unsat" if above < threshold else "open"), None


def reached(net: Path, point: Array) -> float:
    """Return the largest output by onnxruntime."""
    import onnx

    return float(run(onnx.load(net), point.astype(np.float32)[None]).max())


def family(
    model: nn.Module, x: torch.Tensor, eps: float, bounds: Method | None, rigorous: bool = False
) -> Iterator[BoundClaim]:
    ball, groups = pm.Ball(eps, domain=(0.0, 1.0)), torch.arange(2).repeat_interleave(2)
    e = pm.EVA(model, ball, groups=groups, bounds=bounds, rigorous=rigorous).explain(x)
    yield from (claim for _, claim in sorted(claims_of(e, "x", 3, "all"), key=lambda named: named[1].name))


def over_the_reals(model: nn.Module, claim: BoundClaim) -> Fraction:
    """Return the largest row at a corner of the box, in exact arithmetic."""
    ends = [sorted({*pair}) for pair in zip(claim.lower.tolist(), claim.upper.tolist(), strict=True)]
    layers = [
        (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy())
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
    ]
    logits = [exact(layers, [Fraction(value) for value in corner]) for corner in product(*ends)]
    return max(values[rival] - values[claim.form.target] for values in logits for rival in claim.form.rivals)


@pytest.mark.parametrize("seed", range(4))
def test_claims_are_confirmed_by_both(seed: int, tmp_path: Path) -> None:
    """Bounds by interval arithmetic are loose enough that float32's rounding does not matter."""
    model, x = dense(seed)
    graph = pm.trace(model, x)
    for claim in family(model, x, 0.2, pm.bounds.IBP()):
        files = asked(claim, graph, tmp_path)
        assert by_highs(*files)[0] == "unsat"
        assert marabou.answer(*files, 60.0)[0] == "unsat"


@pytest.mark.parametrize("seed", range(4))
def test_false_claims_are_refuted_by_both(seed: int, tmp_path: Path) -> None:
    """A threshold slightly below a value that a search reached: the other verifiers find a counterexample, too."""
    model, x = dense(seed)
    graph = pm.trace(model, x)
    for claim in family(model, x, 0.2, pm.bounds.Exact(gap=1e-4)):
        false = replace(claim, value=claim.value - BELOW)
        net, question = asked(false, graph, tmp_path)
        for verdict, point in (by_highs(net, question), marabou.answer(net, question, 60.0)):
            assert verdict == "sat"
            assert point is not None
            assert reached(net, point.reshape(4)) >= false.threshold - 1e-5


@pytest.mark.parametrize("seed", [0, 1, 2, 6])
def test_a_rigorous_claim_is_confirmed_where_the_plain_one_is_false(seed: int, tmp_path: Path) -> None:
    """At a small radius only rounding matters: non-rigorous bounds lie below the value at a corner."""
    model, x = dense(seed)
    graph = pm.trace(model, x)
    plain, rigorous = (list(family(model, x, 0.002, pm.bounds.Backward(), rigorous)) for rigorous in (False, True))
    assert len(plain) == len(rigorous) == 3
    for false, claim in zip(plain, rigorous, strict=True):
        reached = over_the_reals(model, claim)
        assert Fraction(false.value) < reached < Fraction(claim.value)
        assert claim.value - false.value < 1e-4
        files = asked(claim, graph, tmp_path)
        assert by_highs(*files)[0] == "unsat"
        assert marabou.answer(*files, 60.0)[0] == "unsat"


def test_a_convolution_is_confirmed_and_refuted_by_both(tmp_path: Path) -> None:
    model, x = convolutional()
    e = pm.EVA(model, pm.Ball(0.05, domain=(0.0, 1.0)), bounds=pm.bounds.IBP()).explain(x)
    (claim,) = (claim for _, claim in claims_of(e, "x", 3, "none"))
    graph = pm.trace(model, x)
    files = asked(claim, graph, tmp_path)
    assert by_highs(*files)[0] == "unsat"
    assert marabou.answer(*files, 60.0)[0] == "unsat"
    files = asked(replace(claim, value=float(e.overlap.nominal) - BELOW), graph, tmp_path)
    assert by_highs(*files)[0] == "sat"
    assert marabou.answer(*files, 60.0)[0] == "sat"


@pytest.mark.slow
def test_the_packaged_network_is_confirmed_by_both(tmp_path: Path) -> None:
    """AO(B) and the three cells with the largest scores, at a small radius."""
    model, x = pm.zoo.mnist_mlp(), pm.data.digits()[0][:1]
    e = pm.EVA(model, pm.Ball(0.003, domain=(0.0, 1.0)), groups=pm.groups.grid(7)).explain(x)
    graph = pm.trace(model, x)
    for _, claim in list(claims_of(e, "x", 10, "top"))[:4]:
        files = asked(claim, graph, tmp_path)
        assert by_highs(*files)[0] == "unsat"
        assert marabou.answer(*files, 120.0)[0] == "unsat"
