"""numpy arrays are accepted for samples, classes, masks and attributions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ModelError
from proofmap.explainers.baselines.baseline import Baseline
from proofmap.explainers.factory import BASELINES
from proofmap.graph.input_tensor import as_samples

BALL = pm.Ball(0.1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))


MODEL = network()
ARRAY = np.random.default_rng(0).random((2, 2, 2, 2))  # numpy's default is float64
CLASSES = np.array([1, 2])
MAPS = np.random.default_rng(1).random(ARRAY.shape)
GRADIENTS = [name for name, kind in BASELINES.items() if issubclass(kind, Baseline) and "cam" not in name]


def explained(name: str, x: Any, classes: Any, maps: Any) -> Tensor:
    return pm.explainers.as_attributor(name, MODEL).attribute(x, target=classes)


Call = Callable[[Any, Any, Any], Any]  # (samples, classes, attributions) -> result
CALLS: dict[str, Call] = {
    "overlap": lambda x, c, maps: pm.overlap(MODEL, x, BALL, target=c).full,
    "certified_radius": lambda x, c, maps: pm.certified_radius(MODEL, x, target=c),
    "explain": lambda x, c, maps: pm.EVA(MODEL, BALL).explain(x, c).scores,
    "attribute": lambda x, c, maps: pm.EVA(MODEL, BALL).attribute(x, target=c),
    "a tuple of one": lambda x, c, maps: pm.EVA(MODEL, BALL).attribute((x,), target=c)[0],
    "explain_all": lambda x, c, maps: pm.TargetedEVA(MODEL, BALL).explain_all(x).scores,
    "a function": lambda x, c, maps: pm.explainers.as_attributor(
        lambda z, target: z * target.view(-1, 1, 1, 1)
    ).attribute(x, c),
    "a tensor": lambda x, c, maps: pm.explainers.as_attributor(maps).attribute(x),
    "Deletion": lambda x, c, maps: pm.metrics.Deletion()(MODEL, x, c, maps),
    "a curve": lambda x, c, maps: pm.metrics.Insertion().curve(MODEL, x, c, maps),
    "MuFidelity": lambda x, c, maps: pm.metrics.MuFidelity()(MODEL, x, c, maps),
    "RobustnessSr": lambda x, c, maps: pm.metrics.RobustnessSr()(MODEL, x, c, maps),
    "both sides": lambda x, c, maps: pm.metrics.RobustnessSr().both(MODEL, x, c, maps)[0],
    "Stability": lambda x, c, maps: pm.metrics.Stability(0.1)(MODEL, x, c, lambda z, target: z.numpy() ** 2),
    "Tightness": lambda x, c, maps: pm.metrics.Tightness(BALL, "gap")(
        MODEL, x, c, pm.overlap(MODEL, x, BALL, target=c)
    ),
    "compare": lambda x, c, maps: torch.from_numpy(
        pm.compare(MODEL, x, {"map": maps}, target=c, progress=False).values["map"]["deletion"]
    ),
    **{name: partial(explained, name) for name in GRADIENTS},
}


def tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.copy())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_array_takes_the_precision_of_the_model(call: Call) -> None:
    found = call(ARRAY, CLASSES, MAPS)
    torch.testing.assert_close(found, call(tensor(ARRAY).float(), tensor(CLASSES), tensor(MAPS).float()))


def test_a_mask_may_be_an_array_too() -> None:
    mask = np.array([[0, 0], [1, 1]])
    x = tensor(ARRAY).float()
    expected = pm.EVA(MODEL, BALL, groups=tensor(mask)).explain(x)
    assert torch.equal(pm.EVA(MODEL, BALL, groups=mask).explain(x).scores, expected.scores)
    assert torch.equal(pm.EVA(MODEL, BALL).attribute(x, feature_mask=mask), expected.attributions)
    assert torch.equal(
        pm.overlap(MODEL, x, BALL, groups=mask).frozen, pm.overlap(MODEL, x, BALL, groups=tensor(mask)).frozen
    )
    with pytest.raises(InputError, match=r"the group mask has dtype torch.float64, expected an integer type"):
        pm.overlap(MODEL, x, BALL, groups=mask / 2)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4"])
def test_the_precision_is_the_models(kind: Any) -> None:
    array = ARRAY.astype(kind)
    expected = torch.from_numpy(array.astype(np.float64))
    single, double = as_samples(array, MODEL), as_samples(array, network().double())
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert torch.equal(single, expected.float())
    assert torch.equal(double, expected)
    assert as_samples(array, pm.trace(network().double(), expected)).dtype == torch.float64
    assert as_samples(array, nn.Flatten()).dtype == torch.float32


def test_an_array_of_any_layout_is_copied() -> None:
    turned = ARRAY[::-1]
    turned.flags.writeable = False
    found = as_samples(turned, MODEL)
    found.zero_()
    assert (ARRAY > 0).all()
    assert found.shape == turned.shape


def test_a_tensor_keeps_its_precision() -> None:
    x = torch.zeros(2, 8, dtype=torch.float64)
    assert as_samples(x, MODEL) is x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 8), np.uint8), r"x is an array of uint8, expected floats.*x.astype\('float32'\)"),
        (np.array([["a"]]), "x is an array of <U1, expected floats"),
        ([[0.0] * 8], "x is list, expected a float32 or float64 tensor, or a numpy array of floats"),
        (
            [torch.zeros(2, 8), torch.zeros(2, 8)],
            r"x is a list of 2 parts, expected one tensor.*several inputs as a tuple",
        ),
        (None, "x is NoneType, expected a float32 or float64 tensor"),
    ],
)
def test_inputs_that_are_not_float_arrays_are_refused(x: Any, message: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: pm.overlap(MODEL, x, BALL),
        lambda: pm.certified_radius(MODEL, x),
        lambda: pm.EVA(MODEL, BALL).explain(x),
        lambda: pm.TargetedEVA(MODEL, BALL).explain_all(x),
        lambda: pm.explainers.as_attributor("saliency", MODEL).attribute(x),
        lambda: pm.explainers.as_attributor(lambda z, target: z, MODEL).attribute(x),
        lambda: pm.metrics.Deletion()(MODEL, x, None, torch.zeros(2, 8)),
        lambda: pm.compare(MODEL, x, ["saliency"]),
    ]
    for call in calls:
        with pytest.raises(InputError, match=message):
            call()


def test_a_model_of_one_input_refuses_several_with_advice() -> None:
    pair = (torch.zeros(2, 4), torch.zeros(2, 4))
    calls: list[Callable[[Any], object]] = [
        lambda x: pm.certified_radius(MODEL, x),
        lambda x: pm.explainers.as_attributor("saliency", MODEL).attribute(x),
        lambda x: pm.metrics.Deletion()(MODEL, x, None, torch.zeros(2, 8)),
        lambda x: pm.compare(MODEL, x, ["saliency"]),
        lambda x: pm.explain(MODEL, x),
    ]
    for call in calls:
        with pytest.raises(ModelError, match=r"the model fails on the inputs 'input' \(N, 4\), 'input 1' \(N, 4\)"):
            call(pair)
        with pytest.raises(ModelError, match=r"the model fails on the inputs 'a' \(N, 4\), 'b' \(N, 4\)"):
            call(dict(zip("ab", pair, strict=True)))
    with pytest.raises(InputError, match=r"x is a list of 2 parts, expected one tensor.*several inputs as a tuple"):
        pm.explain(MODEL, list(pair))  # type: ignore[arg-type]
    stored: Any = pm.explainers.as_attributor(torch.zeros(2, 8))
    with pytest.raises(InputError, match=r"x is a tuple of 2 parts.*this call takes one input, so join them"):
        stored.attribute(pair)
