"""The checker's rule for sigmoid and tanh: its ends, its lines and its rounding model, against a hundred digits."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import proofmap as pm
from fuzz.hunting.truth import exactly
from proofmap.proof import check as checker

CURVES = {False: "sigmoid", True: "tanh"}
ODD = pytest.mark.parametrize("odd", CURVES, ids=CURVES.values())


def truth(odd: bool, z: float | Fraction) -> Fraction:
    return exactly(CURVES[odd], Fraction(z))


def places(count: int, seed: int) -> checker.Array:
    """Numbers of all sizes and signs."""
    rng = np.random.default_rng(seed)
    sizes = np.concatenate([2.0 ** rng.integers(-60, 8, count), rng.uniform(0, 40, count), [0.0, 32.0, 64.0, 700.0]])
    found: checker.Array = sizes * rng.choice([-1.0, 1.0], len(sizes))
    return found


@ODD
def test_ends_hold_the_value_and_the_slope(odd: bool) -> None:
    z = places(60, 0)
    low, high, flat, steep = checker.curve(z, odd)
    for k, one in enumerate(z.tolist()):
        value = truth(odd, one)
        assert Fraction(low[k]) <= value <= Fraction(high[k])
        slope = 1 - value**2 if odd else value * (1 - value)
        assert Fraction(flat[k]) <= slope <= Fraction(steep[k])
    assert (high - low).max() < 2.0**-34


@ODD
def test_lines_are_on_their_sides(odd: bool) -> None:
    """At many points of intervals on either side of 0 and over it; and no looser than they have to be."""
    rng = np.random.default_rng(1)
    ends = np.concatenate([rng.uniform(-6, 6, (60, 2)), 0.01 * rng.uniform(-1, 1, (15, 2)), rng.normal(0, 60, (15, 2))])
    ends = np.concatenate([ends, [[0, 1], [-1, 0], [0, 0], [2, 2], [-3, 3], [-70, -65], [65, 90], [-1e-9, 1e-9]]])
    least, most = np.sort(ends, 1).T
    above, below = checker.lines_of_curve(least, most, odd)
    for k, (a, b) in enumerate(zip(least.tolist(), most.tolist(), strict=True)):
        (slope, offset), (under, lowest) = ((Fraction(v[k]) for v in line) for line in (above, below))
        gaps = []
        for share in range(17):
            z = Fraction(a) + (Fraction(b) - Fraction(a)) * share / 16
            value = truth(odd, z)
            assert under * z + lowest <= value <= slope * z + offset
            gaps.append((slope * z + offset - value, value - under * z - lowest))
        for side in zip(*gaps, strict=True):
            assert min(side) < 1e-4 * (1 + abs(a) + abs(b))  # every line touches the curve somewhere between the points


@ODD
def test_runtimes_compute_curves_as_is_assumed(odd: bool) -> None:
    """torch and onnxruntime use less than half of the allowance at every 60013th float32 number."""
    bits = np.arange(0, 2**32, 60013, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.linspace(-20, 20, 40001, dtype=np.float32)])
    x = x[np.isfinite(x)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(CURVES[odd].title(), ["x"], ["y"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = [session.run(None, {"x": x})[0], getattr(torch, CURVES[odd])(torch.from_numpy(x)).numpy()]
    low, high, _, _ = checker.curve(x.astype(np.float64), odd)
    for y in found:
        assert np.maximum(y - low, high - y).max() < checker.CURVED / 2


def network(activation: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, 3))


@pytest.mark.parametrize("activation", [nn.Sigmoid, nn.Tanh])
@pytest.mark.parametrize("norm", [np.inf, 2.0])
def test_certificates_of_curves_are_accepted_and_hold(activation: type[nn.Module], norm: float, tmp_path: Path) -> None:
    """As tight as the explanation, and above all float32 values at attacked points."""
    net, x = network(activation), torch.rand(1, 5, generator=torch.Generator().manual_seed(0))
    found = pm.EVA(net, pm.Ball(0.1, norm), groups=torch.arange(5), progress=False).explain(x)
    certificate = found.certificate()
    assert certificate.shortfall is None
    assert "proven" in checker.check(*certificate.save(tmp_path / "x.proof")).lower()
    generator, target = torch.Generator().manual_seed(1), int(found.target)
    side = torch.rand(500, 5, generator=generator) * 2 - 1
    delta = 0.1 * (side.sign() if norm == np.inf else side / side.norm(dim=1, keepdim=True))
    with torch.no_grad():
        logits = net(x + 0.999 * delta)
    rivals = logits.clone()
    rivals[:, target] = -np.inf
    ahead = rivals.amax(1) - logits[:, target]
    assert float(ahead.max()) <= certificate.full
    assert certificate.full <= float(found.overlap.full) + 0.01 * (1 + abs(float(found.overlap.full)))


def test_a_forged_claim_about_curves_is_rejected(tmp_path: Path) -> None:
    net, x = network(nn.Tanh), torch.rand(1, 5, generator=torch.Generator().manual_seed(0))
    certificate = pm.EVA(net, pm.Ball(0.1), groups=torch.arange(5), progress=False).explain(x).certificate()
    lower = replace(certificate, arrays={**certificate.arrays, "upper.npy": certificate.arrays["upper.npy"] - 1e-3})
    with pytest.raises(checker.Rejected, match="not proven"):
        checker.check(*lower.save(tmp_path / "x.proof"))
