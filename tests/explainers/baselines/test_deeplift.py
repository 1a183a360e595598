"""DeepLIFT is Captum's, and adds up whatever the network is made of."""

import warnings
from collections.abc import Callable

import pytest
import torch
from captum import attr
from torch import Tensor, nn

import proofmap as pm
from proofmap.explainers.baselines import DeepLIFT
from tests.explainers.baselines.setting import TARGET, Reads, Square, drawn, seeded, slope, weight, weights


def change(model: nn.Module, x: Tensor, baseline: float) -> Tensor:
    """f_c(x) - f_c(x0) of each sample."""
    both: Tensor = (model(x) - model(torch.full_like(x, baseline))).detach()
    return both[torch.arange(len(x)), TARGET[: len(x)]]


NETWORKS: dict[str, list[Callable[[], nn.Module]]] = {
    "relu": [nn.Flatten, lambda: nn.Linear(128, 9), nn.ReLU, lambda: nn.Linear(9, 9), nn.ReLU, lambda: nn.Linear(9, 4)],
    "maps": [
        lambda: nn.Conv2d(2, 5, 3, padding=1),
        nn.ReLU,
        lambda: nn.MaxPool2d(2),
        lambda: nn.Conv2d(5, 4, 2),
        nn.Tanh,
        lambda: nn.AvgPool2d(3),
        nn.Flatten,
        lambda: nn.Linear(4, 4),
    ],
    "smooth": [
        nn.Flatten,
        lambda: nn.Linear(128, 9),
        nn.ELU,
        lambda: nn.Linear(9, 9),
        nn.Softplus,
        lambda: nn.Linear(9, 9),
        nn.LeakyReLU,
        lambda: nn.Linear(9, 4),
    ],
}


@pytest.mark.parametrize(("name", "baseline"), [("relu", 0.0), ("relu", 0.6), ("maps", 0.0), ("smooth", 0.6)])
def test_it_is_captums_and_adds_up(name: str, baseline: float, x: Tensor) -> None:
    model = seeded(*NETWORKS[name], seed=5)
    found = DeepLIFT(model, baseline=baseline).attribute(x, TARGET)
    torch.testing.assert_close(found.flatten(1).sum(1), change(model, x, baseline))
    for k in range(3):  # one by one: for several samples, Captum's maxima take the gradient of the first
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Captum says that it sets hooks
            one = x[k : k + 1].clone().requires_grad_()
            expected = attr.DeepLift(model).attribute(one, baselines=baseline, target=TARGET[k])
        torch.testing.assert_close(found[k : k + 1], expected.detach(), rtol=1e-5, atol=1e-7)
    assert not torch.allclose(found, (x - baseline) * slope(model, x, TARGET), rtol=1e-3)


@pytest.mark.parametrize("baseline", [0.0, 0.6])
def test_pools_that_overlap_add_up(baseline: float, x: Tensor) -> None:
    """Captum's do not: an entry that wins in several windows is counted in one."""
    pool = lambda: nn.MaxPool2d(3, stride=1, padding=1)  # noqa: E731
    model = seeded(lambda: nn.Conv2d(2, 5, 3), pool, nn.Sigmoid, nn.Flatten, lambda: nn.Linear(180, 4))
    found = DeepLIFT(model, baseline=baseline).attribute(x, TARGET)
    torch.testing.assert_close(found.flatten(1).sum(1), change(model, x, baseline))


def test_of_a_linear_model_it_is_weights_times_the_way(linear: nn.Sequential, x: Tensor) -> None:
    torch.testing.assert_close(DeepLIFT(linear, baseline=0.3).attribute(x, TARGET), weights(linear, TARGET) * (x - 0.3))


def test_of_an_additive_model_it_is_each_terms_change(x: Tensor) -> None:
    torch.testing.assert_close(DeepLIFT(Square(), baseline=0.3).attribute(x, 0), x.square() - 0.3**2)


def test_what_is_not_read_has_nothing(x: Tensor) -> None:
    found = DeepLIFT(Reads(slice(2, 4), slice(1, 5))).attribute(x, 0)
    assert bool((found[:, :, 2:4, 1:5] == x[:, :, 2:4, 1:5]).all())
    found[:, :, 2:4, 1:5] = 0
    assert not bool(found.any())


class Product(nn.Module):
    """Logits (x_0 · x_1 + x_2, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x[:, :1], x[:, 1:2]
        value = ((a + b).square() - (a - b).square()) / 4 + x[:, 2:3]
        return torch.cat([value, 0 * value], 1)


def test_a_product_is_shared_by_halves() -> None:
    x = drawn(3, 3)
    both = x[:, :1] * x[:, 1:2] / 2
    torch.testing.assert_close(DeepLIFT(Product()).attribute(x, 0), torch.cat([both, both, x[:, 2:]], 1))


class Branches(nn.Module):
    """Paths that meet in a sum and a maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 7), nn.Linear(6, 7), nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.one(x), torch.relu(self.two(x))
        logits: Tensor = self.head(torch.maximum(a, b) + torch.sigmoid(a))
        return logits


@pytest.mark.parametrize("baseline", [0.0, 0.6])
def test_it_adds_up_where_paths_meet(baseline: float) -> None:
    model, x = seeded(Branches, seed=2), drawn(3, 6)
    found = DeepLIFT(model, baseline=baseline).attribute(x, TARGET)
    torch.testing.assert_close(found.sum(1), change(model, x, baseline))


def test_differences_that_cancel_are_passed_on_by_the_derivative() -> None:
    """f = relu(1 + a - b) at a = b = 1/2 is what it is at 0: a has done 1/2, and b has undone it."""
    model = seeded(lambda: nn.Linear(2, 1), nn.ReLU, lambda: nn.Linear(1, 2))
    with torch.no_grad():
        for at, values in ((0, [[1.0, -1.0]]), (2, [[1.0], [0.0]])):
            weight(model, at).copy_(torch.tensor(values))
        nn.init.ones_(model[0].bias)  # type: ignore[arg-type]
    x = torch.full((1, 2), 0.5, dtype=torch.float64)
    assert DeepLIFT(model).attribute(x, 0).tolist() == [[0.5, -0.5]]


def test_it_adds_up_in_single_precision() -> None:
    x = pm.data.digits()[0][:8]
    model = pm.zoo.mnist_mlp().eval()
    logits = (model(x) - model(torch.zeros_like(x))).detach()
    target = model(x).argmax(1, keepdim=True)
    found = DeepLIFT(model).attribute(x)
    torch.testing.assert_close(found.flatten(1).sum(1), logits.gather(1, target)[:, 0], rtol=1e-5, atol=1e-5)


def test_at_the_reference_it_is_zero_and_a_step_away_the_gradient(cnn: nn.Sequential) -> None:
    x = torch.full((1, 2, 8, 8), 0.4, dtype=torch.float64)
    assert not bool(DeepLIFT(cnn, baseline=0.4).attribute(x, 1).any())
    near = x + 1e-9
    found = DeepLIFT(cnn, baseline=0.4).attribute(near, 1)
    torch.testing.assert_close(found / 1e-9, slope(cnn, x, [1]), rtol=1e-3, atol=1e-5)
