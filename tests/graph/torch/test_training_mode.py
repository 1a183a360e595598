"""A model in training mode is refused if evaluation mode would be another function."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import ModelError
from proofmap.explainers.baselines import Saliency
from tests.models import Apply

BALL = pm.Ball(0.1)
X = torch.rand(2, 4)


class Own(nn.Module):
    """Functional dropout."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.dropout(x, self.p, self.training))
        return logits


class Normed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.bn = inner
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.bn(x))
        return logits


CHANGING = {
    "dropout": (nn.Sequential(nn.Linear(4, 3), nn.Dropout()), r"Dropout \('1'\)"),
    "alpha dropout": (nn.Sequential(nn.Linear(4, 3), nn.AlphaDropout(0.1)), r"AlphaDropout \('1'\)"),
    "batch norm": (Normed(nn.BatchNorm1d(4)), r"BatchNorm1d \('bn'\)"),
    "rrelu": (nn.Sequential(nn.RReLU(), nn.Linear(4, 3)), r"RReLU \('0'\)"),
    "both": (nn.Sequential(nn.Dropout(), nn.Linear(4, 3), nn.BatchNorm1d(3)), r"Dropout \('0'\), BatchNorm1d \('2'\)"),
    "function": (Own(0.5), "code that computes something else in evaluation mode"),
}


@pytest.mark.parametrize(("model", "message"), CHANGING.values(), ids=CHANGING)
def test_a_model_in_training_is_refused(model: nn.Module, message: str) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    with pytest.raises(ModelError, match=rf"^got a model in training mode.*{message}.*: call model\.eval\(\) first"):
        pm.trace(model.train(), X)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    model.eval()  # the advice of the error
    assert pm.trace(model, X).classes == 3


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(4, 3),
        nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)),
        Apply(torch.relu),
        Own(0.0),
        Normed(nn.Sequential(nn.BatchNorm1d(4)).eval()),
    ],
)
def test_training_modes_without_effect_are_accepted(model: nn.Module) -> None:
    for module in model.modules():
        if not isinstance(module, nn.BatchNorm1d):
            module.training = True
    assert pm.trace(model, X).classes >= 3


def test_a_return_to_training_mode_is_noticed() -> None:
    """The mode may change between two calls."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout()).eval()
    eva, saliency = pm.EVA(model, BALL, progress=False), Saliency(model)
    eva.explain(X)
    saliency.attribute(X)
    model.train()
    for call in (lambda: eva.explain(X), lambda: saliency.attribute(X), lambda: pm.overlap(model, X, BALL)):
        with pytest.raises(ModelError, match="training mode"):
            call()
    with pytest.raises(ModelError, match="training mode"):
        pm.metrics.Deletion()(model, X, None, X)
