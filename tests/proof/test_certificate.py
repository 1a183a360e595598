"""Certificates: what explanations claim is what the checker derives, on a machine that has nothing of ours."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import BoundError, InputError
from proofmap.explainers import Explanation
from proofmap.proof import check
from proofmap.proof.certificate import Certificate
from proofmap.proof.make_certificate import ModelFile
from proofmap.proof.network_export import check_covered, export
from tests.models import Apply
from tests.sources.files import digits, write_linear

GRID = 2.0**-23  # as far as a claim may be above what is derived


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).eval()


def maps(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 2, stride=2), nn.LeakyReLU(0.1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, 3)).eval()


def inputs(count: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def explained(model: nn.Module, ball: pm.Ball, count: int = 1, bounds: pm.bounds.Method | None = None) -> Explanation:
    groups = pm.groups.grid(2)
    return pm.EVA(model, ball, groups=groups, bounds=bounds, sharing="one-pass", progress=False).explain(inputs(count))


def checked(folder: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    """The checker as a copied file, in a folder of its own."""
    copy = folder / "elsewhere" / "check.py"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(check.__file__, copy)
    command = [sys.executable, "-I", copy.name, *(str(file.resolve()) for file in files)]
    return subprocess.run(command, cwd=copy.parent, capture_output=True, text=True, check=False)


def accepted(certificate: Certificate, folder: Path) -> str:
    """Return the checker's answer about a saved certificate."""
    return check.check(*certificate.save(folder / "x.proof"))


BALLS = [
    pm.Ball(0.05, domain=(0.0, 1.0)),
    pm.Ball(0.03),
    pm.Ball(0.1, norm=2),
    pm.Ball(0.2, norm=1),
    pm.Ball(0.05, domain=(0.0, 1.0), half="+"),
    pm.Ball(0.05, domain=(0.0, 1.0), half="-"),
    pm.Ball(0.1, domain=(0.0, 1.0), relative=True),
    pm.Ball(torch.linspace(0.0, 0.1, 16).view(1, 1, 4, 4), domain=(torch.zeros(1, 4, 4), 1.0)),
    pm.Ball(0.05, domain=(0.0, float("inf"))),
]


@pytest.mark.parametrize(("make", "ball"), [*((small, ball) for ball in BALLS), (maps, BALLS[0]), (maps, BALLS[2])])
def test_what_backward_bounds_is_claimed_but_for_rounding(make: type, ball: pm.Ball, tmp_path: Path) -> None:
    e = explained(make(), ball)
    certificate = e.certificate()
    assert accepted(certificate, tmp_path)
    found = np.append(certificate.full, certificate.frozen)
    engine = torch.cat([e.overlap.full, e.overlap.frozen[0]]).double().numpy()
    assert np.abs(found - engine).max() < 2e-4  # hidden ends have 16 bits, and float32 rounds
    assert (found > engine - 1e-5).all()


def test_the_copied_checker_proves_a_digits_family_and_names_what_is_wrong(tmp_path: Path) -> None:
    images, _ = digits(2)
    ball = pm.Ball(0.01, domain=(0.0, 1.0))
    e = pm.EVA(pm.zoo.mnist_mlp(), ball, groups=pm.groups.grid(12), progress=False).explain(images)
    proof, model, given = e.certificate(0).save(tmp_path / "digit.proof")
    assert (model.name, given.name) == ("digit.onnx", "digit.npy")
    assert proof.stat().st_size < 15_000
    found = checked(tmp_path, proof, model, given)
    assert found.returncode == 0, found.stdout + found.stderr
    _, _, other = e.certificate(1).save(tmp_path / "other.proof")
    wrong = checked(tmp_path, proof, model, other)
    assert wrong.returncode == 1
    assert "another input" in wrong.stdout
    model.write_bytes(model.read_bytes()[:-1] + b"\x01")
    wrong = checked(tmp_path, proof, model, given)
    assert wrong.returncode == 1
    assert "another model" in wrong.stdout


def derived(certificate: Certificate, folder: Path) -> np.ndarray:
    """(1 + G,) what the checker derives from the saved proof."""
    proof, model, given = certificate.save(folder / "x.proof")
    with zipfile.ZipFile(proof) as file:
        claim = json.loads(file.read("claim.json"))
        arrays = {name[:-4]: check.read_array(file.read(name)) for name in file.namelist() if name.endswith(".npy")}
    x = np.load(given)
    network = check.read_network(model, x.shape, claim["model"]["prepare"])
    statement = check.Decision(claim["target"], claim["rivals"])
    question = check.Question(x, claim["ball"], arrays["mask"], claim["groups"]["count"], statement)
    return check.Prover(network, question).derive(arrays)


@pytest.mark.parametrize("leaves", [0, 12])
def test_claims_are_what_is_derived_and_no_more_than_the_last_digits_above(leaves: int, tmp_path: Path) -> None:
    certificate = explained(small(), pm.Ball(0.1, domain=(0.0, 1.0))).certificate(leaves=leaves)
    above = np.stack([certificate.sides(reals=reals)[1] for reals in (False, True)]) - derived(certificate, tmp_path)
    assert (above > 0).all()
    assert (above < 2 * GRID).all()


def test_no_point_of_a_member_is_above_its_claim(tmp_path: Path) -> None:
    model, ball, x = small(), pm.Ball(0.2, domain=(0.0, 1.0)), inputs()
    e = explained(model, ball)
    certificate = e.certificate(leaves=12)
    torch.manual_seed(1)
    low, high = (x - 0.2).clamp(min=0), (x + 0.2).clamp(max=1)
    points = low + (high - low) * torch.rand(4000, 1, 4, 4).mul(3).sub(1).clamp(0, 1)
    for member, most in enumerate(np.append(certificate.full, certificate.frozen), start=-1):
        logits = model(torch.where(e.mask == member, x, points)).detach().double()
        rivals = logits.clone()
        rivals[:, int(e.target)] = -torch.inf
        assert float((rivals.amax(1) - logits[:, int(e.target)]).max()) <= most


def test_a_searched_explanation_is_certified_from_both_sides(tmp_path: Path) -> None:
    e = explained(small(3), pm.Ball(0.3, domain=(0.0, 1.0)), bounds=pm.bounds.Exact(seconds=2))
    certificate = e.certificate()
    assert accepted(certificate, tmp_path)
    lower, upper = certificate.lower, np.append(certificate.full, certificate.frozen)
    assert lower is not None
    assert (lower <= upper).all()
    assert np.abs(lower - torch.cat([e.overlap.full_lower, e.overlap.frozen_lower[0]]).double().numpy()).max() < 1e-3
    closer, least = certificate.sides(reals=True)[::-1]
    assert least is not None
    assert (lower < least).all()
    assert (closer < upper).all()
    pairs = certificate.order()
    assert len(pairs) >= len(certificate.order(reals=False)) > 0
    for u, v in pairs:
        assert bool(e.overlap.frozen_lower[0, u] <= e.overlap.frozen[0, v])


@pytest.mark.parametrize("pool", [nn.AvgPool2d(2), nn.AvgPool2d(2, padding=1), nn.AdaptiveAvgPool2d(1)], ids=str)
def test_means_of_windows_are_certified(pool: nn.Module, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), pool, nn.Flatten()]
    model = nn.Sequential(*layers, nn.LazyLinear(3)).eval()
    model(inputs())
    e = explained(model, pm.Ball(0.05, domain=(0.0, 1.0)))
    certificate = e.certificate()
    assert accepted(certificate, tmp_path)
    assert abs(certificate.full - float(e.overlap.full)) < 2e-4


@pytest.mark.parametrize("bounds", [None, pm.bounds.Exact(seconds=1)], ids=["backward", "exact"])
def test_a_targeted_map_has_a_certificate_for_each_half(bounds: pm.bounds.Method | None, tmp_path: Path) -> None:
    model, ball, groups = small(3), pm.Ball(0.2, domain=(0.0, 1.0)), pm.groups.grid(2)
    eva = pm.TargetedEVA(model, ball, groups=groups, bounds=bounds, sharing="one-pass", progress=False)
    predicted = int(model(inputs()).argmax())
    e = eva.explain(inputs(), target=(predicted + 1) % 3)
    torch.manual_seed(0)
    halves: tuple[Literal["+", "-"], ...] = ("+", "-")
    for half in halves:
        overlap = e.overlap if half == "+" else e.opposite
        assert overlap is not None
        certificate = e.certificate(half=half)
        claim = certificate.claim
        assert (claim["target"], claim["rivals"], claim["ball"]["half"]) == (predicted, [int(e.target)], half)
        said = accepted(certificate, tmp_path)
        assert f"ecision {predicted} is proven against class {int(e.target)} alone, for one half of a ball" in said
        assert certificate.full > float(overlap.full_lower)
        if certificate.lower is not None:
            assert certificate.lower[0] == pytest.approx(float(overlap.full_lower), abs=1e-4)
        if bounds is None:
            assert certificate.full == pytest.approx(float(overlap.full), abs=2e-4)
        steps = torch.rand(3000, 1, 4, 4).mul(3).sub(1).clamp(0, 1) * (0.2 if half == "+" else -0.2)
        points = (inputs() + steps).clamp(0, 1)
        for member, most in enumerate(np.append(certificate.full, certificate.frozen), start=-1):
            logits = model(torch.where(e.mask == member, inputs(), points)).detach().double()
            assert float((logits[:, int(e.target)] - logits[:, predicted]).max()) <= most


def test_halves_are_those_of_targeted_maps_alone() -> None:
    eva = pm.TargetedEVA(small(), pm.Ball(0.05), groups=pm.groups.grid(2), progress=False)
    predicted = int(small()(inputs()).argmax())
    with pytest.raises(InputError, match=r"expected certificate\(half='\+'\) for δ >= 0 or"):
        eva.explain(inputs(), target=(predicted + 1) % 3).certificate()
    with pytest.raises(InputError, match=r"as the aim of an input of that class"):
        eva.explain(inputs(), target=predicted).certificate(half="+")
    with pytest.raises(InputError, match=r"got half='-' of a map by EVA, expected none"):
        explained(small(), pm.Ball(0.05)).certificate(half="-")


def test_the_same_explanation_gives_the_same_bytes() -> None:
    e = explained(small(), pm.Ball(0.1), count=2)
    assert e.certificate(1).content == e[1].certificate().content != e.certificate(0).content


def test_radii_for_each_sample_are_those_of_the_sample(tmp_path: Path) -> None:
    e = explained(small(), pm.Ball(torch.tensor([0.05, 0.0])), count=2)
    assert float.fromhex(e.certificate(0).claim["ball"]["eps"]) == float(np.float32(0.05))
    still = e.certificate(1)
    assert float.fromhex(still.claim["ball"]["eps"]) == 0
    assert still.full == pytest.approx(float(e.overlap.nominal[1]), abs=1e-4)


def test_an_onnx_file_is_certified_as_it_is(tmp_path: Path) -> None:
    write_linear(tmp_path / "net.onnx", (1, 4, 4))
    graph, ball = pm.load(tmp_path / "net.onnx"), pm.Ball(0.05)
    e = pm.EVA(graph, ball, groups=pm.groups.grid(2), progress=False).explain(inputs())
    proof, model, given = e.certificate(file=ModelFile(tmp_path / "net.onnx")).save(tmp_path / "x.proof")
    assert model == tmp_path / "net.onnx"
    assert not (tmp_path / "x.onnx").exists()
    assert checked(tmp_path, proof, model, given).returncode == 0
    other = tmp_path / "other.onnx"
    other.write_bytes(export(pm.trace(small(1), inputs())))
    with pytest.raises(InputError, match=r"gives logits of .*: give the file that the explanation was made from"):
        e.certificate(file=ModelFile(other))


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("product", lambda x: (x * x.relu()).flatten(1)),
        ("contract", lambda x: (x @ x.transpose(1, 2)).flatten(1)),
        ("softmax", lambda x: x.softmax(2).flatten(1)),
        ("rsqrt", lambda x: (x + 1).rsqrt().flatten(1)),
    ],
)
def test_values_that_all_move_together_are_refused(op: str, function: Callable[[Tensor], Tensor]) -> None:
    graph = pm.trace(Apply(function), torch.rand(1, 4, 4))
    with pytest.raises(InputError, match=rf"got the operation {op} \(node '.*'\), expected a network of dense layers"):
        check_covered(graph)


class Mixed(nn.Module):
    """A clamp, parts that are joined, a frame of zeros, a slice, entries by number, and a mean without padding."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 3), nn.Linear(10, 3)
        self.pool = nn.AvgPool2d(2, padding=1, count_include_pad=False)

    def forward(self, x: Tensor) -> Tensor:
        z = nn.functional.relu6(4 * self.first(nn.functional.pad(x, (1, 1, 1, 0))))
        pooled = self.pool(torch.cat([z, z[:, :, 1:, :]], 2)).flatten(1)
        logits: Tensor = self.last(pooled[:, torch.tensor([0, 3, 5, 1, 2, 7, 11, 8, 9, 4])])
        return logits


def test_a_certificate_covers_clamps_joins_frames_and_parts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Mixed().eval()
    assert {"clamp", "concat", "pad", "slice", "index", "avg_pool"} <= {n.op for n in pm.trace(model, inputs()).nodes}
    certificate = explained(model, pm.Ball(0.02, domain=(0.0, 1.0))).certificate()
    assert accepted(certificate, tmp_path)
    low, high = (inputs() - 0.02).clamp(min=0), (inputs() + 0.02).clamp(max=1)
    points = low + (high - low) * torch.rand(2000, 1, 4, 4)
    target = certificate.claim["target"]
    with torch.no_grad():
        logits = model(points).double()
    rivals = torch.tensor([c for c in range(3) if c != target])
    assert float((logits[:, rivals].amax(1) - logits[:, target]).max()) <= certificate.arrays["upper.npy"][0]


def test_what_no_certificate_speaks_of_is_refused(tmp_path: Path) -> None:
    smooth = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.GELU(), nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"got the operation gelu \(node '2'\), expected a network of dense layers"):
        explained(smooth, pm.Ball(0.1)).certificate()
    leaky = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.LeakyReLU(1.5), nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"got a leaky ReLU with slopes from 1.5 to 1.5"):
        explained(leaky, pm.Ball(0.1)).certificate()
    with pytest.raises(InputError, match=r"got an explanation of 2 samples, expected the number of one"):
        explained(small(), pm.Ball(0.1), count=2).certificate()
    mean = pm.EVA(small(), pm.Ball(0.1), objective="mean", progress=False).explain(inputs())
    with pytest.raises(InputError, match=r"got an explanation of the objective 'mean', expected 'margin'"):
        mean.certificate()
    smoothed = pm.SmoothEVA(small(), pm.Ball(0.1), progress=False).explain(inputs())
    with pytest.raises(
        InputError, match=r"got an explanation by SmoothEVA, expected one by pm.EVA, pm.TargetedEVA, pm.Sufficient or"
    ):
        smoothed.certificate()
    e = explained(small(), pm.Ball(0.1))
    e.save(tmp_path / "e.proofmap")
    with pytest.raises(InputError, match=r"got an explanation from a file, .*: explain the input again"):
        Explanation.load(tmp_path / "e.proofmap").certificate()
    with pytest.raises(InputError, match=r"got the name x.zip, expected one that ends in .proof"):
        e.certificate().save(tmp_path / "x.zip")
    double = pm.EVA(small().double(), pm.Ball(0.1), progress=False).explain(inputs().double())
    with pytest.raises(
        InputError, match=r"got a network in torch.float64, expected float32.* by \.float\(\), and explain"
    ):
        double.certificate()
    single = pm.EVA(small().double().float(), pm.Ball(0.1), progress=False).explain(inputs().double().float())
    assert single.certificate(progress=False).content


def test_a_network_that_float32_may_overflow_in_is_undecided() -> None:
    model = small()
    layers = [layer for layer in model.children() if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.abs_()
            layer.bias.zero_()
        share = (1e38 / model(inputs()).abs().max()) ** (1 / 3)
        for layer in layers:
            layer.weight.mul_(share)
    e = pm.EVA(model, pm.Ball(0.1), groups=pm.groups.grid(2), progress=False, rigorous=False).explain(inputs())
    with pytest.raises(BoundError, match=r"undecided"):
        e.certificate()


def test_what_is_proven_is_said() -> None:
    certificate = explained(small(), pm.Ball(0.001)).certificate(leaves=4)
    says = "no input of the ball is classified otherwise" if certificate.full < 0 else "nothing is decided"
    assert certificate.summary().startswith("AO(B) <= ")
    assert f"and AO(B_u) of 4 groups, {certificate.leaves} parts; {says}, over the reals" in certificate.summary()
    assert repr(certificate) == f"Certificate({certificate.summary()})"


def test_points_just_outside_are_brought_inside(tmp_path: Path) -> None:
    e = explained(small(3), pm.Ball(0.3, domain=(0.0, 1.0)), bounds=pm.bounds.Exact(seconds=1))
    assert e.overlap.points is not None
    away = e.x[:, None] + 1.0001 * (e.overlap.points - e.x[:, None]) + 1e-4
    assert accepted(replace(e, overlap=replace(e.overlap, points=away)).certificate(), tmp_path)
