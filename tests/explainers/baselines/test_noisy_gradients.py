"""SmoothGrad and VarGrad: closed forms, and Captum with the same draws."""

import pytest
import torch
from captum import attr
from torch import Tensor, nn

import proofmap as pm
from proofmap.explainers.baselines import SmoothGrad, VarGrad
from proofmap.explainers.factory import build_method
from tests.explainers.baselines.setting import TARGET, Square, weights


def test_noise_does_nothing_to_a_linear_model(linear: nn.Sequential, x: Tensor) -> None:
    torch.testing.assert_close(SmoothGrad(linear).attribute(x, TARGET), weights(linear, TARGET).abs())
    assert float(VarGrad(linear).attribute(x, TARGET).max()) < 1e-15


@pytest.mark.parametrize(("kind", "name"), [(SmoothGrad, "smoothgrad"), (VarGrad, "vargrad")])
def test_noise_is_captums_tunnel_with_the_same_draws(
    kind: type[SmoothGrad], name: str, cnn: nn.Sequential, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = kind(cnn, samples=6)
    noise = ours._noise(x)
    monkeypatch.setattr(
        attr.NoiseTunnel, "_add_noise_to_input", staticmethod(lambda x, *_: (x[:, None] + noise).flatten(0, 1))
    )
    tunnel = attr.NoiseTunnel(attr.Saliency(cnn))
    expected = tunnel.attribute(x, nt_type=name, nt_samples=6, target=torch.tensor(TARGET), abs=False)
    torch.testing.assert_close(ours.attribute(x, TARGET), expected.abs())  # magnitudes of the mean
    assert float(expected.abs().max()) > 0


def test_sigma_is_a_fifth_of_the_range(x: Tensor) -> None:
    found = VarGrad(Square(), samples=2000).attribute(x, 0)
    torch.testing.assert_close(found, torch.full_like(x, 4 * 0.2**2), rtol=0.2, atol=0)
    wide = VarGrad(Square(), samples=2000, domain=(torch.tensor([-1.0, 0.0]), 1.0)).attribute(x, 0)
    torch.testing.assert_close(wide, found * torch.tensor([4.0, 1.0]).view(2, 1, 1))
    by_name = build_method("vargrad", Square(), pm.Ball(0.1, domain=(-1.0, 1.0)), settings={"samples": 2000})
    torch.testing.assert_close(by_name.attribute(x, 0), found * 4)


def test_the_mean_of_noise_is_near_the_gradient(x: Tensor) -> None:
    torch.testing.assert_close(SmoothGrad(Square(), samples=5000).attribute(x, 0), 2 * x.abs(), rtol=0, atol=0.04)
