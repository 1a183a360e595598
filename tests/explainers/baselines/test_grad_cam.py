"""Grad-CAM is Captum's, Grad-CAM++ the formula of its paper."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from captum import attr
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.baselines import GradCAM, GradCAMPlusPlus
from proofmap.explainers.factory import build_method
from tests.explainers.baselines.setting import TARGET, drawn, seeded


def enlarged(maps: Tensor, x: Tensor) -> Tensor:
    return F.interpolate(maps, size=x.shape[2:], mode="bilinear", align_corners=False).expand_as(x)


@pytest.mark.parametrize(("layer", "at"), [(None, 3), ("2", 2), ("3", 3), ("0", 0)])
def test_grad_cam_is_captums(layer: str | None, at: int, cnn: nn.Sequential, x: Tensor) -> None:
    target = torch.tensor(TARGET)
    maps = attr.LayerGradCam(cnn, cnn[at]).attribute(x.clone().requires_grad_(), target=target, relu_attributions=True)
    assert float(maps.detach().max()) > 0
    torch.testing.assert_close(GradCAM(cnn, layer=layer).attribute(x, TARGET), enlarged(maps.detach(), x))


class Skips(nn.Module):
    """The last convolution lies beside a path of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.last = nn.Conv2d(3, 3, 3, padding=1)
        self.head = nn.Linear(192, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        logits: Tensor = self.head(torch.relu(y + self.last(y)).flatten(1))
        return logits


def test_grad_cam_where_a_path_leads_past_the_layer(x: Tensor) -> None:
    model = seeded(Skips)
    target = torch.tensor(TARGET)
    last = model[0].last
    maps = attr.LayerGradCam(model, last).attribute(x.clone().requires_grad_(), target=target, relu_attributions=True)
    assert float(maps.detach().max()) > 0
    torch.testing.assert_close(GradCAM(model).attribute(x, TARGET), enlarged(maps.detach(), x))


def plus_plus(tail: nn.Module, maps: Tensor, target: int) -> Tensor:
    """Chattopadhyay et al. 2018, eq. 10 to 20 with Y = exp(S), each derivative by itself: (H, W) from A (K, H, W)."""
    a = maps.clone().requires_grad_()
    (first,) = torch.autograd.grad(tail(a[None])[0, target].exp(), a, create_graph=True)
    second, third = torch.zeros_like(maps), torch.zeros_like(maps)
    for at in product(*map(range, maps.shape)):
        (again,) = torch.autograd.grad(first[at], a, create_graph=True)
        second[at] = again[at].detach()
        third[at] = torch.autograd.grad(again[at], a, retain_graph=True)[0][at]
    heat = torch.zeros_like(maps[0])
    for k in range(len(maps)):
        weight = 0.0
        for i, j in product(*map(range, maps.shape[1:])):
            below = 2 * second[k, i, j] + sum(float(v) for v in maps[k].flatten()) * third[k, i, j]
            alpha = float(second[k, i, j] / below) if below else 0.0
            weight += alpha * max(0.0, float(first[k, i, j].detach()))
        heat += weight * maps[k]
    return heat.clamp(min=0)


def test_grad_cam_plus_plus_is_the_papers_formula() -> None:
    body = seeded(lambda: nn.Conv2d(1, 3, 3, padding=1), nn.ReLU)
    tail = seeded(nn.Flatten, lambda: nn.Linear(48, 6), nn.ReLU, lambda: nn.Linear(6, 3), seed=4)
    x, model = drawn(2, 1, 4, 4), nn.Sequential(body, tail)
    found = GradCAMPlusPlus(model).attribute(x, [2, 0])
    for k, c in enumerate([2, 0]):
        score = model(x[k : k + 1]).detach()[0, c].exp()
        expected = plus_plus(tail, body(x[k : k + 1])[0].detach(), c) / score
        assert float(expected.max()) > 0
        torch.testing.assert_close(found[k, 0], expected)


@pytest.mark.parametrize("name", ["grad-cam", "grad-cam++"])
def test_no_convolution_no_class_activation(name: str) -> None:
    with pytest.raises(InputError, match="without a convolution, expected maps"):
        build_method(name, pm.zoo.mnist_mlp()).attribute(pm.data.digits()[0][:1])


def test_wrong_layers_are_refused(cnn: nn.Sequential, x: Tensor) -> None:
    with pytest.raises(InputError, match="got layer='features', which the network does not have"):
        GradCAM(cnn, layer="features").attribute(x)
    with pytest.raises(InputError, match=r"got the layer '5' with values \(12,\) .* expected maps over the sides"):
        GradCAM(cnn, layer="5").attribute(x)
