"""Anything that explains, in one place: Captum's objects, functions, tensors, and what is refused."""

from math import inf
from typing import Any

import numpy as np
import pytest
import torch
from captum import attr
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import EVA, Attributor, as_attributor
from proofmap.explainers.baselines import RISE, GradientInput
from tests.explainers.baselines.setting import BALL, SHAPE, drawn, seeded, slope


@pytest.mark.parametrize("kind", [attr.Saliency, attr.InputXGradient, attr.IntegratedGradients, attr.FeatureAblation])
def test_captums_objects(kind: Any, x: Tensor) -> None:
    model = seeded(nn.Flatten, lambda: nn.Linear(128, 6), nn.ReLU, lambda: nn.Linear(6, 4))
    thing = kind(model)
    method = as_attributor(thing)
    assert isinstance(method, Attributor)
    expected = thing.attribute(x.clone().requires_grad_(), target=model(x).argmax(1)).detach()
    found = method.attribute(x)
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad
    assert not x.requires_grad
    torch.testing.assert_close(method.attribute(x, 2), thing.attribute(x.clone().requires_grad_(), target=2).detach())


def test_our_explainers_are_taken_as_they_are(cnn: nn.Sequential) -> None:
    for method in (EVA(cnn, BALL), RISE(cnn)):
        assert as_attributor(method) is method


def test_captum_around_ours(graph: pm.Graph, x: Tensor) -> None:
    tunnel = attr.NoiseTunnel(EVA(graph, pm.Ball(0.1), groups=pm.groups.grid(2), progress=False))
    assert as_attributor(tunnel, graph).attribute(x).shape == x.shape


def test_functions(cnn: nn.Sequential, x: Tensor) -> None:
    def product_with_slope(x: Tensor, target: Tensor) -> Tensor:
        assert target.dtype == torch.int64
        assert target.shape == (3,)
        return x * slope(cnn, x, target.tolist())

    method = as_attributor(product_with_slope, cnn)
    torch.testing.assert_close(method.attribute(x, 1), GradientInput(cnn).attribute(x, 1))
    torch.testing.assert_close(method.attribute(x), GradientInput(cnn).attribute(x))
    pixels = as_attributor(lambda x, target: x.amax(1).numpy()).attribute(x, 0)
    assert torch.equal(pixels, x.amax(1, keepdim=True).expand_as(x))
    with pytest.raises(InputError, match="product_with_slope got no target and no model to predict one"):
        as_attributor(product_with_slope).attribute(x)


def test_tensors(x: Tensor) -> None:
    maps = drawn(3, *SHAPE, seed=9)
    assert torch.equal(as_attributor(maps).attribute(x, 1), maps)
    assert torch.equal(as_attributor(maps.numpy()).attribute(x), maps)
    assert as_attributor(maps.float()).attribute(x).dtype == x.dtype
    for pixels in (maps[:, 0], maps[:, :1]):
        assert torch.equal(as_attributor(pixels).attribute(x), maps[:, :1].expand_as(x))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (torch.zeros(2, *SHAPE), r"gave attributions of shape \(2, 2, 8, 8\), expected x's shape \(3, 2, 8, 8\), or"),
        (torch.zeros(3, 1, 3, 3), r"gave attributions of shape \(3, 1, 3, 3\), .* enlarge a layer's maps"),
        (torch.full((3, *SHAPE), torch.nan), "complex, NaN or infinite entries, expected finite"),
        (np.full((3, *SHAPE), inf), "complex, NaN or infinite entries"),
        (torch.zeros(3, *SHAPE, dtype=torch.complex64), "complex"),
        ([1.0, 2.0], "gave a list, expected a tensor of x's shape"),
    ],
)
def test_what_does_not_fit_is_refused(found: Any, message: str, x: Tensor) -> None:
    with pytest.raises(InputError, match=message):
        as_attributor(lambda x, target: found).attribute(x, 0)
    if not isinstance(found, list):
        with pytest.raises(InputError, match=message):
            as_attributor(found).attribute(x, 0)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (3, "got a method of type int, expected a name such as"),
        (nn.Linear(2, 2), "got a model, Linear, expected a name such as"),
        (EVA, "got a class, EVA, expected a name such as"),
        ("saliency", "got the method 'saliency' without a model"),
    ],
)
def test_what_explains_nothing_is_refused(method: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_attributor(method)


def test_settings_go_with_a_name(x: Tensor) -> None:
    with pytest.raises(InputError, match=r"got settings \['steps'\] for a Tensor, expected them with a name"):
        as_attributor(x, settings={"steps": 3})


@pytest.mark.parametrize(
    "method", [lambda z: z, lambda: None, lambda z, target, more: z, lambda z, *, target: z, lambda **all: all]
)
def test_a_wrong_signature_is_named_at_once(method: Any) -> None:
    with pytest.raises(InputError, match=r"the function <lambda> takes \(.*\), expected \(x, target\) -> attributions"):
        as_attributor(method)


def test_the_advice_for_an_object_that_needs_more_works(cnn: nn.Sequential, x: Tensor) -> None:
    thing = attr.Occlusion(cnn)
    with pytest.raises(InputError) as caught:
        as_attributor(thing, cnn)
    assert str(caught.value) == (
        "got Occlusion, and cannot call Occlusion.attribute(x, target=...): missing a required argument: "
        "'sliding_window_shapes'; give a function, lambda x, target: occlusion.attribute(x, target=target, "
        "sliding_window_shapes=...)"
    )
    given = as_attributor(lambda x, target: thing.attribute(x, target=target, sliding_window_shapes=(2, 3, 3)), cnn)
    expected = thing.attribute(x, target=1, sliding_window_shapes=(2, 3, 3)).to(x)
    torch.testing.assert_close(given.attribute(x, 1), expected)


def test_what_takes_anything_or_cannot_be_asked_is_taken(x: Tensor) -> None:
    for method in (lambda *both: both[0], lambda z, target=None: z, np.minimum, lambda z, target, scale=1: z):
        as_attributor(method)
