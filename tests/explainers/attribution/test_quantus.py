"""Quantus' call: arrays in, arrays out; with Quantus itself where it is installed (`scripts/quantus_env.py`)."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proofmap import trace, zoo
from proofmap.data import digits
from proofmap.errors import InputError
from proofmap.explainers import EVA, ClampedInputs, EmpiricalEVA, TargetedEVA, as_attributor
from proofmap.explainers.attribution.quantus import explain_func
from proofmap.inputs import groups
from proofmap.inputs.ball import Ball

SHAPE = (2, 4, 4)
BALL = Ball(0.1, domain=(0.0, 1.0))
GRID = groups.grid(2)
TARGETS = np.array([0, 3, 1])


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 12), nn.ReLU(), nn.Linear(12, 4)).eval()


@pytest.fixture
def inputs() -> NDArray[Any]:
    return np.random.default_rng(1).random((3, *SHAPE), dtype=np.float32)


def expected(model: nn.Module, inputs: NDArray[Any], grouping: groups.Groups = GRID) -> NDArray[Any]:
    eva = EVA(model, BALL, groups=grouping, progress=False)
    return eva.explain(torch.tensor(inputs), torch.tensor(TARGETS)).attributions.numpy()


def test_arrays_in_and_arrays_out(model: nn.Module, inputs: NDArray[Any]) -> None:
    explain = explain_func(EVA(model, BALL, groups=GRID, progress=False))
    found = explain(model=model, inputs=inputs, targets=TARGETS)
    assert isinstance(found, np.ndarray)
    assert found.shape == inputs.shape
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected(model, inputs))
    np.testing.assert_array_equal(explain(model, inputs, TARGETS), found)


@pytest.mark.parametrize("explainer", [EmpiricalEVA, TargetedEVA])
def test_all_explainers_do(explainer: type[EmpiricalEVA | TargetedEVA], model: nn.Module, inputs: NDArray[Any]) -> None:
    made = explainer(model, BALL, groups=GRID, progress=False)
    x, target = torch.from_numpy(inputs), torch.from_numpy(TARGETS)
    found = explain_func(made)(model, inputs, TARGETS)
    np.testing.assert_array_equal(found, made.explain(x, target).attributions.numpy())


def test_the_model_that_is_passed_is_explained(model: nn.Module, inputs: NDArray[Any]) -> None:
    eva = EVA(model, BALL, groups=GRID, progress=False)
    explain = explain_func(eva)
    other = copy.deepcopy(model)
    twin = nn.Sequential(*model.children(), Negated())  # the same weights, another function
    before = explain(model, inputs, TARGETS)
    nn.init.normal_(other[1].weight)  # type: ignore[index]
    np.testing.assert_array_equal(explain(other, inputs, TARGETS), expected(other, inputs))
    nn.init.normal_(other[1].weight)  # type: ignore[index]  # in place, as a randomisation test does
    np.testing.assert_array_equal(explain(other, inputs, TARGETS), expected(other, inputs))
    np.testing.assert_array_equal(explain(twin, inputs, TARGETS), expected(twin, inputs))
    assert not np.allclose(explain(twin, inputs, TARGETS), before)
    np.testing.assert_array_equal(explain(model, inputs, TARGETS), before)
    assert eva.model is model  # nothing was done to the explainer


class Negated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -x


def test_a_graph_is_a_model_too(model: nn.Module, inputs: NDArray[Any]) -> None:
    graph = trace(model, torch.from_numpy(inputs))
    explain = explain_func(EVA(graph, BALL, groups=GRID, progress=False))
    np.testing.assert_allclose(explain(graph, inputs, TARGETS), expected(model, inputs), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(explain(model, inputs, TARGETS), expected(model, inputs))
    with pytest.raises(InputError, match="got a model of type str"):
        explain("model", inputs, TARGETS)


def test_inputs_take_the_precision_of_the_model(model: nn.Module, inputs: NDArray[Any]) -> None:
    explain = explain_func(EVA(model, BALL, groups=GRID, progress=False))
    np.testing.assert_array_equal(explain(model, inputs.astype(np.float64), TARGETS), expected(model, inputs))
    whole = inputs.round().astype(np.uint8)
    np.testing.assert_array_equal(explain(model, whole, TARGETS), expected(model, whole.astype(np.float32)))
    assert explain(copy.deepcopy(model).double(), inputs, TARGETS).dtype == np.float64


def test_odd_arrays_are_welcome(model: nn.Module, inputs: NDArray[Any]) -> None:
    explain = explain_func(EVA(model, BALL, groups=GRID, progress=False))
    backwards = inputs[:, :, ::-1]
    np.testing.assert_array_equal(explain(model, backwards, TARGETS), expected(model, backwards.copy()))
    inputs.setflags(write=False)
    np.testing.assert_array_equal(explain(model, inputs, TARGETS), expected(model, inputs))


@pytest.mark.parametrize("targets", [TARGETS.astype(np.int32), TARGETS.astype(np.float64), TARGETS[:, None], [0, 3, 1]])
def test_targets_are_whole_numbers_in_any_form(targets: Any, model: nn.Module, inputs: NDArray[Any]) -> None:
    explain = explain_func(EVA(model, BALL, groups=GRID, progress=False))
    np.testing.assert_array_equal(explain(model, inputs, targets), expected(model, inputs))


@pytest.mark.parametrize("targets", [[0.5, 1, 2], ["a", "b", "c"], [0, 1], [0, 1, 4], [True, False, True], None])
def test_other_targets_are_refused(targets: Any, model: nn.Module, inputs: NDArray[Any]) -> None:
    explain = explain_func(EVA(model, BALL, groups=GRID, progress=False))
    with pytest.raises(InputError, match="got target"):
        explain(model, inputs, targets)


def test_what_attribute_takes_is_passed_on_and_nothing_is_ignored(model: nn.Module, inputs: NDArray[Any]) -> None:
    explain = explain_func(EVA(model, BALL, groups=GRID, progress=False))
    mask = np.arange(32).reshape(1, *SHAPE) % 5
    found = explain(model, inputs, TARGETS, device="cpu", feature_mask=mask, perturbations_per_eval=64)
    np.testing.assert_array_equal(found, expected(model, inputs, torch.from_numpy(mask)))
    with pytest.raises(TypeError, match="method"):
        explain(model, inputs, TARGETS, method="Saliency")


def test_noise_that_leaves_the_domain_is_refused(model: nn.Module, inputs: NDArray[Any]) -> None:
    with pytest.raises(InputError, match="x leaves the domain"):
        explain_func(EVA(model, BALL, progress=False))(model, inputs + 0.5, TARGETS)
    assert explain_func(EVA(model, Ball(0.1), progress=False))(model, inputs + 0.5, TARGETS).shape == inputs.shape
    clamped = explain_func(ClampedInputs(EVA(model, BALL, groups=GRID, progress=False)))
    near = (inputs + 0.5).clip(0, 1)
    np.testing.assert_array_equal(clamped(model, inputs + 0.5, TARGETS), expected(model, near))
    other = copy.deepcopy(model)
    nn.init.normal_(other[1].weight)  # type: ignore[index]
    np.testing.assert_array_equal(clamped(other, inputs + 0.5, TARGETS), expected(other, near))


def test_baselines_explain_the_model_that_is_passed(model: nn.Module, inputs: NDArray[Any]) -> None:
    explain = explain_func(as_attributor("saliency", model))
    other = copy.deepcopy(model)
    nn.init.normal_(other[1].weight)  # type: ignore[index]
    for one in (model, other, model):
        x = torch.from_numpy(inputs).requires_grad_()
        one(x).gather(1, torch.from_numpy(TARGETS)[:, None]).sum().backward()
        assert x.grad is not None
        largest = x.grad.abs().amax(1, keepdim=True).expand_as(x).numpy()  # over the channels
        np.testing.assert_allclose(explain(one, inputs, TARGETS), largest, rtol=1e-5, atol=1e-7)
    with pytest.raises(TypeError, match="feature_mask"):
        explain(model, inputs, TARGETS, feature_mask=np.zeros((1, *SHAPE), dtype=np.int64))


def test_what_cannot_explain_other_models_is_refused_at_once(model: nn.Module) -> None:
    from captum.attr import Saliency

    def function(x: Tensor, target: Tensor) -> Tensor:
        return x

    given: list[Any] = ["eva", function, Saliency(model), torch.zeros(3, *SHAPE), as_attributor(function, model)]
    for one in given:
        with pytest.raises(InputError, match=r"explain_func got .*, expected an explainer such as"):
            explain_func(one)


def batch() -> tuple[nn.Module, NDArray[Any], NDArray[Any]]:
    images, labels = digits()
    return zoo.mnist_mlp(), images[:3].numpy(), labels[:3].numpy()


@pytest.mark.filterwarnings("ignore")  # Quantus' own, and those of what it imports
def test_quantus_flips_the_pixels_that_the_map_ranks_first() -> None:
    quantus = pytest.importorskip("quantus")
    model, x, y = batch()
    explain = explain_func(EVA(model, Ball(0.01, domain=(0.0, 1.0)), progress=False))
    metric = quantus.PixelFlipping(
        features_in_step=196, perturb_baseline="black", disable_warnings=True, display_progressbar=False
    )
    found = metric(model=model, x_batch=x, y_batch=y, explain_func=explain, channel_first=True, softmax=True)
    order = np.argsort(-explain(model, x, y).reshape(3, -1), axis=1)
    flipped = x.reshape(3, -1).copy()
    for step, chosen in enumerate(np.split(order, 4, axis=1)):
        np.put_along_axis(flipped, chosen, 0.0, axis=1)
        with torch.no_grad():
            odds = model(torch.from_numpy(flipped.reshape(x.shape))).softmax(1).numpy()
        np.testing.assert_allclose(np.asarray(found)[:, step], odds[np.arange(3), y], rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_quantus_moves_inputs_and_randomises_models() -> None:
    quantus = pytest.importorskip("quantus")
    model, x, y = batch()
    explain = explain_func(EVA(model, Ball(0.01), groups=groups.grid(7), progress=False))
    seen: list[bool] = []

    def spy(model: nn.Module, inputs: NDArray[Any], targets: NDArray[Any], **kwargs: Any) -> NDArray[Any]:
        weights = zip(model.parameters(), zoo.mnist_mlp().parameters(), strict=True)
        seen.append(all(torch.equal(a, b) for a, b in weights))
        return explain(model, inputs, targets, **kwargs)

    common: dict[str, Any] = {"disable_warnings": True, "display_progressbar": False}
    call: dict[str, Any] = {"x_batch": x, "y_batch": y, "explain_func": spy, "channel_first": True}
    moved = quantus.MaxSensitivity(nr_samples=3, lower_bound=0.02, **common)(model=model, **call)
    assert len(moved) == 3
    assert np.isfinite(moved).all()
    assert (np.asarray(moved) > 0).all()
    assert all(seen)
    similar = quantus.MPRT(return_average_correlation=True, **common)(model=model, **call)
    assert len(similar) == 3
    assert not all(seen)  # other weights were explained
    assert (np.asarray(similar) < 0.999).all()  # and their maps differ
