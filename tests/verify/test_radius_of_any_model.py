"""Radii and curves run the user's module as it is traced: objects, one number a sample, low precision, a later mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.explainers.attribution.adapt import as_attributor

pytestmark = pytest.mark.slow

ROWS = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


@dataclass
class Output:
    """An output object."""

    logits: Tensor
    hidden: Tensor


class Returning(nn.Module):
    """A small network; a function makes its output from the logits."""

    def __init__(self, made: Callable[[Tensor], Any], classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, classes))
        self.made = made

    def forward(self, x: Tensor) -> Any:
        return self.made(self.layers(x))


def plain(z: Tensor) -> Tensor:
    return z


class ByKeyword(nn.Module):
    """A small network; its input has no position."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Returning(plain)

    def forward(self, *, features: Tensor) -> Any:
        return self.network(features)


MODELS: dict[str, tuple[nn.Module, float]] = {
    "object": (Returning(lambda z: Output(z, z.relu())), 1e-6),
    "dictionary": (Returning(lambda z: {"logits": z, "loss": None}), 1e-6),
    "tuple": (Returning(lambda z: (z, None)), 1e-6),
    "half": (Returning(plain).half(), 1e-3),
    "bfloat16": (Returning(plain).bfloat16(), 1e-2),
    "double": (Returning(plain).double(), 1e-6),
}
NUMBER = Returning(lambda z: z[:, 0], 1)


@pytest.mark.filterwarnings("ignore:the model has")
@pytest.mark.parametrize(("model", "off"), MODELS.values(), ids=MODELS)
def test_radii(model: nn.Module, off: float) -> None:
    """The radii are those of the plain module, up to the rounding of its weights."""
    expected = pm.radius(Returning(plain), ROWS, steps=4, progress=False)
    found = pm.radius(model.eval(), ROWS, steps=4, progress=False)
    assert torch.allclose(found.proven, expected.proven, rtol=10 * off)
    assert torch.allclose(found.refuted, expected.refuted, rtol=10 * off)
    assert bool((found.proven <= found.refuted).all())
    curve = pm.curve(model, ROWS, [0.01], steps=2, progress=False)
    assert bool((curve.lower <= curve.upper).all())


def test_a_number_for_each_sample() -> None:
    """Logits (0, z): the adversary changes the sign of z."""
    found = pm.radius(NUMBER.eval(), ROWS, steps=4, progress=False)
    met = found.refuted.isfinite()
    assert bool(met.any())
    assert bool((NUMBER(found.points)[met].sign() == -NUMBER(ROWS)[met].sign()).all())


def test_classes_of_a_captum_method() -> None:
    """Without a target, the class is that of the traced logits."""
    from captum.attr import Saliency

    model = MODELS["object"][0]
    method = as_attributor(Saliency(lambda x: model(x).logits), model)
    assert torch.allclose(method.attribute(ROWS), as_attributor("saliency", model).attribute(ROWS), atol=1e-6)


# The advice of each error, as code that works.
FAILING: dict[str, tuple[nn.Module, str, Callable[[nn.Module], Any]]] = {
    "keyword": (
        ByKeyword(),
        r"give the inputs by keyword, as in \{'features': features\}$",
        lambda model: pm.radius(model, {"features": ROWS}, steps=1, progress=False),
    ),
    "two inputs": (
        nn.Bilinear(4, 4, 3),
        r"it takes 2 inputs, give them as a tuple, \(input1, input2\)$",
        lambda model: pm.radius(model, (ROWS, ROWS), steps=1, progress=False),
    ),
    "another shape": (
        nn.Linear(5, 3),
        r"on a batch of shape \(N, 4\) \(RuntimeError: .*\): check that it takes one tensor of that shape",
        lambda model: pm.radius(nn.Sequential(nn.ZeroPad1d((0, 1)), model), ROWS, steps=1, progress=False),
    ),
}


@pytest.mark.parametrize(("model", "message", "advice"), FAILING.values(), ids=FAILING)
def test_a_call_that_fails_names_another(model: nn.Module, message: str, advice: Callable[[nn.Module], Any]) -> None:
    with pytest.raises(pm.ModelError, match=message):
        pm.radius(model, ROWS, progress=False)
    assert len(advice(model)) == 2


def test_one_input_by_keyword_is_compared() -> None:
    found = pm.compare(ByKeyword(), {"features": ROWS}, ["saliency", "eva"], ball=pm.Ball(0.01), progress=False)
    assert set(found.values) == {"saliency", "eva"}


class Table(nn.Module):
    """Looks numbers up in a table: most points around x have no row."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.EmbeddingBag(20, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.table(x.long()))
        return logits


def test_a_table_of_numbers_is_refused_in_one_sentence() -> None:
    with pytest.raises(pm.ProofmapError, match=r"no rule for|cannot take"):
        pm.overlap(Table(), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), pm.Ball(0.01))


def test_metrics_by_name_take_the_range_of_the_ball() -> None:
    """Values outside [0, 1] are no reason for an error, and noise is drawn from their range."""
    names = ["deletion", "robustness-sr", "adversarial-deletion"]
    for ball in (pm.Ball(0.1), pm.Ball(0.1, domain=(ROWS.amin(0) - 1, ROWS.amax(0) + 1))):
        found = pm.compare(Returning(plain), ROWS, "saliency", names, ball=ball, progress=False)
        assert set(found.values["saliency"]) == set(names)
