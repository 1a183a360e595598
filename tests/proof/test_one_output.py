"""Certificates about a file with one output z, which is read as the logits (0, z)."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.graph.onnx import as_onnx
from proofmap.proof import check

X = torch.tensor([[0.2, -0.4, 0.9]])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An ONNX file of one output, which is below 0 at x and above 0 elsewhere in a larger ball."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        net[2].bias -= net(X)[0, 0] + 0.1
    file = tmp_path / "one.onnx"
    file.write_bytes(as_onnx(pm.trace(net, X)).SerializeToString())
    return file


@pytest.fixture
def saved(path: Path) -> tuple[Path, Path, Path]:
    e = pm.EVA(pm.load(path), pm.Ball(0.02), progress=False).explain(X)
    assert bool(e.proven.all())
    made = e.certificate(progress=False)
    assert made.model == path  # the user's own file
    return made.save(path.with_name("one.proof"))


def changed(proof: Path, edit: Any) -> Path:
    """Write the certificate with another claim."""
    other = proof.with_name("other.proof")
    with zipfile.ZipFile(proof) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "claim.json":
                claim = json.loads(data)
                edit(claim)
                data = json.dumps(claim).encode()
            new.writestr(name, data)
    return other


def test_the_claim_states_the_classes_of_one_output(saved: tuple[Path, Path, Path]) -> None:
    answer = check.check(*saved)
    assert answer.startswith("Decision 0 is proven: no input within ε = 0.02 (L∞) of this input, with values of any")
    assert f"classes: {check.ONE_OUTPUT}" in answer


def test_bounds_are_those_of_the_output(saved: tuple[Path, Path, Path], path: Path) -> None:
    """The overlap of class 0 is the largest output."""
    claim = check.read_claim(*saved)
    net = pm.load(path)
    points = X + 0.02 * (2 * torch.rand(2000, 3, generator=torch.Generator().manual_seed(1)) - 1)
    assert float(net(points).max()) <= claim.upper(0) < 0


@pytest.mark.parametrize("wrong", [None, "class 1 where it is below 0", 0])
def test_another_rule_is_rejected(saved: tuple[Path, Path, Path], wrong: Any) -> None:
    def edit(claim: dict[str, Any]) -> None:
        claim.pop("classes") if wrong is None else claim.update(classes=wrong)

    with pytest.raises(check.Rejected, match="does not say what the classes"):
        check.check(changed(saved[0], edit), *saved[1:])


def test_the_other_class_is_not_proven(saved: tuple[Path, Path, Path]) -> None:
    other = changed(saved[0], lambda claim: claim.update(target=1, rivals=[0]))
    with pytest.raises(check.Rejected, match="are not proven"):
        check.check(other, *saved[1:])


def test_a_tie_proves_nothing(path: Path, tmp_path: Path) -> None:
    """The output is exactly 0 at x: no class is ahead."""
    net = nn.Linear(3, 1)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    e = pm.EVA(net, pm.Ball(0.1), progress=False).explain(X)
    assert not bool(e.proven.any())
    with pytest.warns(pm.ProofmapWarning, match="weaker than the explanation"):  # its numbers lie on a grid
        claim = check.read_claim(*e.certificate(progress=False).save(tmp_path / "tie.proof"))
    assert not claim.decision
    assert np.isclose(claim.upper(0), 0, atol=1e-6)


def test_a_network_of_several_classes_states_no_rule(tmp_path: Path) -> None:
    torch.manual_seed(0)
    e = pm.EVA(nn.Linear(3, 2), pm.Ball(0.001), progress=False).explain(X)
    proof, model, given = e.certificate(progress=False).save(tmp_path / "two.proof")
    check.check(proof, model, given)
    with pytest.raises(check.Rejected, match="does not say what the classes"):
        check.check(changed(proof, lambda claim: claim.update(classes=check.ONE_OUTPUT)), model, given)
