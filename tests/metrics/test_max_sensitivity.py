"""Max-sensitivity of explainers whose change is known."""

from math import inf

import torch
from torch import Tensor

import proofmap as pm
from proofmap.explainers import EVA
from proofmap.metrics import MaxSensitivity, Stability
from tests.metrics.models import Linear, drawn, network

MODEL, X = network(40, 3), 0.3 + 0.4 * drawn(3, 40)


def first(x: Tensor, target: Tensor) -> Tensor:
    """Return a map in which only entry 0 differs from 0."""
    return torch.nn.functional.pad(x[:, :1], (0, 39))


def test_the_largest_move_of_one_entry() -> None:
    """|z_0 - x_0| / x_0 is at most 0.2 / x_0; with more points the maximum comes closer to it."""
    value = MaxSensitivity()(MODEL, X, None, first) * X[:, 0]
    assert bool(((value > 0.17) & (value <= 0.2)).all())
    torch.testing.assert_close(MaxSensitivity(0.05)(MODEL, X, None, first) * X[:, 0], value / 4)


def test_scale_and_sign_of_a_map_do_not_count() -> None:
    value = MaxSensitivity()(MODEL, X, None, first)
    torch.testing.assert_close(MaxSensitivity()(MODEL, X, None, lambda x, c: -70 * first(x, c)), value)


def test_the_gradient_of_a_linear_model_stays() -> None:
    """Saliency is |w| everywhere; gradient times input changes by ||w (z - x)|| / ||w x||."""
    model = Linear(drawn(40, seed=3) - 0.5)
    saliency = pm.explainers.as_attributor("saliency", model).attribute
    assert MaxSensitivity()(model, X, 0, saliency).tolist() == [0.0] * 3
    w = model.weight.detach()
    product = pm.explainers.as_attributor("gradient-input", model).attribute
    expected = Stability(0.2, 50, norm=inf, relative=True, domain=(0.0, 1.0))(model, X, 0, lambda z, _: w * z)
    torch.testing.assert_close(MaxSensitivity()(model, X, 0, product), expected)


def test_explainers_with_a_domain() -> None:
    """Points stay in the domain of the explainer, even for samples at 0 and 1."""
    x = drawn(2, 6).round()
    eva = EVA(network(6, 5, 3), pm.Ball(0.05, domain=(0.0, 1.0)), progress=False)
    assert bool((MaxSensitivity(samples=5)(network(6, 5, 3), x, None, eva.attribute) > 0).all())


def test_for_other_values() -> None:
    wide = MaxSensitivity.for_ball(pm.Ball(0.1, domain=(-1.0, 3.0)), (0.0, 1.0))
    assert (wide.radius, wide.domain) == (0.8, (-1.0, 3.0))
    assert MaxSensitivity.for_ball(pm.Ball("auto"), (0.0, 2.0)).radius == 0.4


def test_by_name_points_stay_in_the_domain_of_the_explainer() -> None:
    """Without a ball, the domain is the range from the smallest to the largest value of the samples."""
    x = 0.2 + 0.5 * drawn(2, 6)
    table = pm.compare(network(6, 5, 3), x, ["eva"], "max-sensitivity", progress=False)
    span = (float(x.min()), float(x.max()))
    assert table.columns[0].settings["domain"] == list(span)
    assert table.columns[0].settings["radius"] == 0.2 * (span[1] - span[0])
    assert float(table.values["eva"]["max-sensitivity"].min()) > 0
