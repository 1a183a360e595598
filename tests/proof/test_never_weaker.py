"""A certificate is never weaker than the proof of its explanation, or says so with both numbers."""

import warnings
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import ProofmapWarning
from proofmap.explainers import Explanation
from proofmap.proof.never_weaker import Explained
from proofmap.runtime.outward_numbers import format_overlap
from tests.proof.test_certificate import accepted, inputs, small
from tests.sources.files import digits

METHODS: dict[str, pm.bounds.Method] = {
    "Backward": pm.bounds.Backward(),
    "CrownIBP": pm.bounds.CrownIBP(),
    "Alpha": pm.bounds.Alpha(),
    "Exact": pm.bounds.Exact(seconds=2),
}


@cache
def pooled() -> nn.Module:
    """A small network with max pools, trained on packaged digits."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 10))
    images, labels = pm.data.digits()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(25):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def explained(model: nn.Module, x: Tensor, eps: float, method: str) -> Explanation:
    ball, groups = pm.Ball(eps, domain=(0.0, 1.0)), pm.groups.grid(2)
    return pm.EVA(model, ball, groups=groups, bounds=METHODS[method], progress=False).explain(x)


def check(e: Explanation, folder: Path) -> None:
    """The certificate is as strong as the explanation, or warns with both numbers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ProofmapWarning)
        certificate = e.certificate()
    proof = Explained(float(e.overlap.full), float(e.overlap.nominal), rigorous=bool(e.settings.get("rigorous")))
    assert certificate.shortfall == proof.shortfall(certificate.full, float(certificate.sides(reals=True)[1][0]))
    assert [str(one.message) for one in caught] == ([] if certificate.shortfall is None else [certificate.shortfall])
    assert certificate.shortfall is None, certificate.shortfall
    assert certificate.full <= proof.enough + 1e-3  # what float32 rounds
    assert accepted(certificate, folder)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("Backward", marks=pytest.mark.slow),
        "CrownIBP",
        pytest.param("Alpha", marks=pytest.mark.whole),
        pytest.param("Exact", marks=pytest.mark.whole),
    ],
)
def test_max_pools(method: str, tmp_path: Path) -> None:
    check(explained(pooled(), digits(1)[0], 0.034, method), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Backward", "Alpha"])
def test_dense_layers(method: str, tmp_path: Path) -> None:
    check(explained(pm.zoo.mnist_mlp(), digits(1)[0], 0.02, method), tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("eps", [0.01, 0.025])
def test_dense_layers_by_every_method(method: str, eps: float, tmp_path: Path) -> None:
    check(explained(pm.zoo.mnist_mlp(), digits(1)[0], eps, method), tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize("method", ["Backward", "CrownIBP"])
def test_a_convolutional_network(method: str, tmp_path: Path) -> None:
    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    check(explained(pm.zoo.cifar_cnn(), x, 0.001, method), tmp_path)


def test_a_weaker_certificate_warns_with_both_numbers_when_it_is_made_and_saved(tmp_path: Path) -> None:
    """An explanation that a search made tight, and a certificate that must not split."""
    ball, groups = pm.Ball(0.3, domain=(0.0, 1.0)), pm.groups.grid(2)
    e = pm.EVA(small(3), ball, groups=groups, bounds=pm.bounds.Exact(seconds=2), progress=False).explain(inputs())
    with pytest.warns(ProofmapWarning, match=r"weaker than the explanation: it claims AO\(B\) <= ") as made:
        certificate = e.certificate(leaves=0)
    sentence = str(made[0].message)
    assert made[0].filename == __file__
    assert sentence == certificate.shortfall
    assert f"<= {format_overlap(certificate.full, 'certified')}" in sentence
    assert f"the explanation proved AO(B) <= {format_overlap(float(e.overlap.full), 'certified')}" in sentence
    with pytest.warns(ProofmapWarning, match="weaker than the explanation") as saved:
        certificate.save(tmp_path / "x.proof")
    assert saved[0].filename == __file__
    assert e.certificate().shortfall is None


@pytest.mark.parametrize(
    ("full", "reals", "rigorous", "met"),
    [
        (-1.0, -1.0, True, True),
        (-0.99, -1.0, True, True),  # within 1 % of what AO(B) is above the overlap at x
        (-0.97, -1.0, True, False),
        (-0.97, -1.0, False, True),  # the explanation does not cover what float32 rounds
        (-0.97, -0.97, False, False),
        (0.0, -1.0, False, False),  # decided by the explanation, and not by the certificate
    ],
)
def test_the_room_is_what_it_is_said_to_be(full: float, reals: float, rigorous: bool, met: bool) -> None:
    explanation = Explained(-1.0, -2.0, rigorous)
    assert explanation.enough == pytest.approx(-1.0 + 0.01 + 0.002)
    assert explanation.met(full, reals) == met
    assert (explanation.shortfall(full, reals) is None) == met
    decided = "decides nothing" in (explanation.shortfall(full, reals) or "")
    assert decided == (full >= 0)
