"""The interface of Captum: Captum's own methods and metrics call our explainers, with the same results as a loop."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from captum.attr import NoiseTunnel
from captum.metrics import infidelity, sensitivity_max
from torch import Tensor, nn

from proofmap import trace
from proofmap.errors import InputError, ProofmapWarning
from proofmap.explainers import EVA, ClampedInputs, EmpiricalEVA, Explainer, HybridEVA, TargetedEVA
from proofmap.inputs import groups
from proofmap.inputs.ball import Ball
from proofmap.inputs.domain import Domain

SHAPE = (2, 4, 4)
BALL = Ball(0.1)
GRID = groups.grid(2)

Make = Callable[[nn.Module], Explainer]
EXPLAINERS: dict[str, Make] = {
    "eva": lambda model: EVA(model, BALL, groups=GRID, progress=False),
    "targeted": lambda model: TargetedEVA(model, BALL, groups=GRID, progress=False),
    "empirical": lambda model: EmpiricalEVA(model, BALL, groups=GRID, samples=8, progress=False),
    "hybrid": lambda model: HybridEVA(model, BALL, groups=GRID, split="2", samples=8, progress=False),
}
every_explainer = pytest.mark.parametrize("make", EXPLAINERS.values(), ids=EXPLAINERS.keys())


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(32, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)]
    return nn.Sequential(*layers).double().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(3, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def explained(explainer: Explainer, x: Tensor, target: int | Tensor) -> Tensor:
    return explainer.explain(x, target).attributions


@every_explainer
def test_attribute_is_what_explain_says(make: Make, model: nn.Module, x: Tensor) -> None:
    explainer = make(model)
    expected = explained(explainer, x, 2)
    found = explainer.attribute(x, target=2)
    assert isinstance(found, Tensor)
    assert torch.equal(found, expected)
    assert found.shape == x.shape
    assert found.is_contiguous()
    assert not found.requires_grad
    assert expected.abs().max() > 0


@every_explainer
def test_a_tuple_of_one_gives_a_tuple_of_one(make: Make, model: nn.Module, x: Tensor) -> None:
    explainer = make(model)
    found = explainer.attribute((x,), target=2)
    assert isinstance(found, tuple)
    assert len(found) == 1
    assert torch.equal(found[0], explained(explainer, x, 2))


@pytest.mark.parametrize("count", [0, 2])
def test_other_tuples_are_refused(count: int, model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    with pytest.raises(InputError, match="got an empty tuple of inputs" if count == 0 else "balls for 2 inputs"):
        eva.attribute((x,) * count)
    with pytest.raises(InputError, match=f"got {count} feature masks for one input, expected one tensor"):
        eva.attribute(x, feature_mask=(GRID(SHAPE),) * count)


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        (1, [1, 1, 1]),
        (torch.tensor(1), [1, 1, 1]),
        (torch.tensor([1]), [1, 1, 1]),
        (torch.tensor([0, 3, 1]), [0, 3, 1]),
        (torch.tensor([0, 3, 1], dtype=torch.int32), [0, 3, 1]),
        ([0, 3, 1], [0, 3, 1]),
    ],
)
def test_forms_of_a_target(target: int | Tensor | list[int], classes: list[int], model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    found = eva.attribute(x, target=target)
    for k, one in enumerate(classes):
        torch.testing.assert_close(found[k : k + 1], explained(eva, x[k : k + 1], one))


def test_without_a_target_the_predicted_class_is_explained(model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    assert torch.equal(eva.attribute(x), eva.explain(x).attributions)


def test_a_targeted_map_needs_a_target(model: nn.Module, x: Tensor) -> None:
    with pytest.raises(InputError, match="TargetedEVA needs a target"):
        EXPLAINERS["targeted"](model).attribute(x)


@pytest.mark.parametrize(
    "target", [4, -1, [0, 1], [0, 1, True], [0.0, 1.0, 2.0], [(0, 1)] * 3, torch.tensor([0, 1]), torch.zeros(3)]
)
def test_wrong_targets_are_refused(target: Any, model: nn.Module, x: Tensor) -> None:
    with pytest.raises(InputError, match="got target"):
        EXPLAINERS["eva"](model).attribute(x, target=target)


def test_a_feature_mask_takes_the_place_of_the_groups(model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    mask = torch.arange(32).reshape(1, *SHAPE) % 5
    expected = EVA(model, BALL, groups=mask, progress=False).explain(x, 2).attributions
    assert torch.equal(eva.attribute(x, target=2, feature_mask=mask), expected)
    assert torch.equal(eva.attribute((x,), target=2, feature_mask=(mask,))[0], expected)
    assert torch.equal(eva.attribute(x, target=2), explained(eva, x, 2))  # the explainer keeps its own


def test_samples_at_a_time_change_nothing(model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    torch.testing.assert_close(eva.attribute(x, target=2, perturbations_per_eval=1), explained(eva, x, 2))
    with pytest.raises(InputError, match="got perturbations_per_eval=0"):
        eva.attribute(x, perturbations_per_eval=0)


def test_progress_is_shown_only_on_request(model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    assert torch.equal(eva.attribute(x, show_progress=True), eva.attribute(x))


def test_inputs_that_ask_for_gradients_are_welcome(model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    expected = explained(eva, x, 2)
    found = eva.attribute(x.clone().requires_grad_(), target=2)
    assert torch.equal(found, expected)
    assert not found.requires_grad


class Slope(EVA):
    """An explainer that needs gradients."""

    def _measure(self, task: Any) -> Any:
        z = torch.ones((), requires_grad=True)
        (slope,) = torch.autograd.grad(z * z, z)
        assert slope == 2
        return super()._measure(task)


def test_explainers_that_need_gradients_get_them_inside_captum(model: nn.Module, x: Tensor) -> None:
    slope = Slope(model, BALL, groups=GRID, progress=False)
    assert NoiseTunnel(slope).attribute(x, nt_samples=2, stdevs=0.1, target=2).shape == x.shape
    assert sensitivity_max(slope.attribute, x, n_perturb_samples=2, target=2).shape == (3,)


def test_what_captum_asks_an_attribution_method(model: nn.Module) -> None:
    eva = EXPLAINERS["eva"](model)
    assert eva.forward_func is model
    assert not eva.has_convergence_delta()
    assert not eva.multiplies_by_inputs
    names = ["inputs", "target", "feature_mask", "perturbations_per_eval", "show_progress"]
    assert list(inspect.signature(eva.attribute).parameters) == names
    tunnel = NoiseTunnel(eva)
    assert tunnel.forward_func is model
    assert not tunnel.multiplies_by_inputs


def noisy(x: Tensor, count: int, deviation: float) -> Tensor:
    """NoiseTunnel's draw: `count` neighbours of each sample, side by side."""
    many = x.repeat_interleave(count, dim=0)
    return many + torch.normal(0, torch.full(many.shape, deviation))


@every_explainer
@pytest.mark.parametrize("kind", ["smoothgrad", "smoothgrad_sq", "vargrad"])
def test_noise_tunnel_is_a_loop(kind: str, make: Make, model: nn.Module, x: Tensor) -> None:
    explainer, target = make(model), torch.tensor([0, 3, 1])
    torch.manual_seed(5)
    found = NoiseTunnel(explainer).attribute(
        x, nt_type=kind, nt_samples=5, nt_samples_batch_size=2, stdevs=0.2, target=target
    )
    torch.manual_seed(5)
    maps = []
    for count in (2, 2, 1):
        part = explained(explainer, noisy(x, count, 0.2), target.repeat_interleave(count))
        maps.append(part.unflatten(0, (3, count)))
    every = torch.cat(maps, dim=1)  # (3, 5, *SHAPE)
    assert (every.std(1) > 0).any()
    expected = {
        "smoothgrad": every.mean(1),
        "smoothgrad_sq": (every**2).mean(1),
        "vargrad": every.var(1, correction=0),
    }[kind]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("target", [2, torch.tensor([0, 3, 1]), [0, 3, 1]])
def test_noise_tunnel_sample_by_sample(target: int | Tensor | list[int], model: nn.Module, x: Tensor) -> None:
    eva = EXPLAINERS["eva"](model)
    mask = (torch.arange(96).reshape(3, *SHAPE) * 7) % 5  # one for each sample
    torch.manual_seed(6)
    (found,) = NoiseTunnel(eva).attribute((x,), nt_samples=3, stdevs=(0.2,), target=target, feature_mask=mask)
    classes = [target] * 3 if isinstance(target, int) else [int(c) for c in target]
    torch.manual_seed(6)
    near = noisy(x, 3, 0.2)
    for k, c in enumerate(classes):
        own = EVA(model, BALL, groups=mask[k : k + 1], progress=False)
        maps = [own.explain(near[3 * k + i : 3 * k + i + 1], c).attributions[0] for i in range(3)]
        torch.testing.assert_close(found[k], sum(maps, torch.zeros(SHAPE, dtype=x.dtype)) / 3)


def test_noise_that_leaves_the_domain_is_refused_with_advice(model: nn.Module, x: Tensor) -> None:
    limited = EVA(model, Ball(0.1, domain=(0.0, 1.0)), groups=GRID, progress=False)
    with pytest.raises(InputError, match="x leaves the domain"):
        NoiseTunnel(limited).attribute(x, nt_samples=4, stdevs=0.5, target=2)
    with pytest.raises(InputError, match=r"for noise, .* wrap the explainer: pm.explainers.ClampedInputs\(explainer\)"):
        sensitivity_max(limited.attribute, x.round(), target=2)
    clamped = ClampedInputs(limited)
    assert NoiseTunnel(clamped).attribute(x, nt_samples=4, stdevs=0.5, target=2).shape == x.shape
    assert sensitivity_max(clamped.attribute, x.round(), target=2).shape == (3,)


@pytest.mark.parametrize("domain", [(0.0, 1.0), (0.25, torch.tensor([0.5, 0.75])), None])
def test_clamped_noise_is_a_loop_over_clamped_inputs(domain: Any, model: nn.Module, x: Tensor) -> None:
    """NoiseTunnel and sensitivity_max get the explanations of the nearest inputs in the domain."""
    inside = x if domain is None else x.clamp(*Ball(0.1, domain=domain).limits(x))
    eva, target = EVA(model, Ball(0.1, domain=domain), groups=GRID, progress=False), torch.tensor([0, 3, 1])

    def clamp(z: Tensor) -> Tensor:
        return z if domain is None else z.clamp(*Ball(0.1, domain=domain).limits(z))

    torch.manual_seed(5)
    found = NoiseTunnel(ClampedInputs(eva)).attribute(inside, nt_samples=2, stdevs=0.5, target=target)
    torch.manual_seed(5)
    near = clamp(noisy(inside, 2, 0.5))
    torch.testing.assert_close(found, explained(eva, near, target.repeat_interleave(2)).unflatten(0, (3, 2)).mean(1))
    torch.manual_seed(7)
    worst = sensitivity_max(
        ClampedInputs(eva).attribute, inside, perturb_radius=0.1, n_perturb_samples=4, target=target
    )
    torch.manual_seed(7)
    noise = torch.empty(12, *SHAPE).uniform_(-0.1, 0.1)
    near = clamp(inside.repeat_interleave(4, dim=0) + noise).unflatten(0, (3, 4))
    torch.testing.assert_close(worst, sensitivity(eva, inside, near, target))


def test_clamped_inputs_are_what_captum_asks_for(model: nn.Module, x: Tensor) -> None:
    eva = EVA(model, Ball(0.1, domain=(0.0, 1.0)), groups=GRID, progress=False)
    clamped = ClampedInputs(eva)
    assert clamped.forward_func is model
    assert not clamped.has_convergence_delta()
    assert not clamped.multiplies_by_inputs
    assert list(inspect.signature(clamped.attribute).parameters) == list(inspect.signature(eva.attribute).parameters)
    assert torch.equal(clamped.attribute(x, target=2), eva.attribute(x, target=2))
    (found,) = clamped.attribute((x + 5.0,), target=[0, 3, 1])
    assert torch.equal(found, eva.attribute(torch.ones_like(x), target=[0, 3, 1]))
    default = EVA(model, groups=GRID, progress=False)  # without a ball, nothing is clamped
    with pytest.warns(ProofmapWarning, match="EVA got no ball"):
        assert isinstance(ClampedInputs(default).attribute(x + 5.0, target=2), Tensor)


def test_what_cannot_be_clamped_is_refused(model: nn.Module) -> None:
    with pytest.raises(InputError, match="ClampedInputs got str, expected an explainer"):
        ClampedInputs("eva")  # type: ignore[arg-type]
    domain = Domain.from_data(torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.9]]), one_hot=[[0, 1]])
    table = EVA(nn.Linear(3, 2), Ball(domain.eps(0.1), domain=domain), progress=False)
    with pytest.raises(InputError, match="one-hot blocks, expected numbers only"):
        ClampedInputs(table)


def sensitivity(explainer: Explainer, x: Tensor, near: Tensor, target: Tensor) -> Tensor:
    """max over the neighbours near (N, S, *shape) of ||φ(x') - φ(x)|| / ||φ(x)||, one map at a time."""
    found = []
    for k in range(len(x)):
        own = explained(explainer, x[k : k + 1], target[k : k + 1])
        moved = [explained(explainer, one[None], target[k : k + 1]) for one in near[k]]
        found.append(max(float((other - own).norm() / own.norm()) for other in moved))
    return torch.tensor(found, dtype=x.dtype)


@pytest.mark.parametrize("name", ["eva", "targeted"])  # those that draw nothing: a map is the same alone and in a batch
def test_sensitivity_is_a_loop(name: str, model: nn.Module, x: Tensor) -> None:
    explainer, target = EXPLAINERS[name](model), torch.tensor([0, 3, 1])
    if name == "targeted":  # towards another class: the map towards its own is zero
        target = (model(x).argmax(1) + 1) % 4
    torch.manual_seed(7)
    found = sensitivity_max(explainer.attribute, x, perturb_radius=0.1, n_perturb_samples=4, target=target)
    torch.manual_seed(7)
    noise = torch.empty(12, *SHAPE).uniform_(-0.1, 0.1)  # Captum's default, in float32
    near = (x.repeat_interleave(4, dim=0) + noise).unflatten(0, (3, 4))
    torch.testing.assert_close(found, sensitivity(explainer, x, near, target))
    assert (found > 0).all()


@pytest.mark.parametrize("target", [2, [0, 3, 1]])
def test_sensitivity_within_a_domain(target: int | list[int], model: nn.Module, x: Tensor) -> None:
    eva = EVA(model, Ball(0.1, domain=(0.0, 1.0)), groups=GRID, progress=False)

    def clamped(inputs: Tensor) -> Tensor:
        return (inputs + 0.2 * torch.randn(inputs.shape, dtype=inputs.dtype)).clamp(0, 1)

    torch.manual_seed(8)
    found = sensitivity_max(eva.attribute, x, clamped, n_perturb_samples=3, target=target)
    torch.manual_seed(8)
    near = clamped(x.repeat_interleave(3, dim=0)).unflatten(0, (3, 3))
    torch.testing.assert_close(found, sensitivity(eva, x, near, torch.tensor(target).expand(3)))


@pytest.mark.parametrize("traced", [False, True])
def test_infidelity_is_a_loop(traced: bool, model: nn.Module, x: Tensor) -> None:
    eva = EVA(trace(model, x) if traced else model, BALL, groups=GRID, progress=False)
    target = torch.tensor([0, 3, 1])
    maps = eva.attribute(x, target=target)

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        step = 0.1 * torch.randn(inputs.shape, dtype=inputs.dtype)
        return step, inputs - step

    torch.manual_seed(9)
    found = infidelity(eva.forward_func, perturb, x, maps, target=target, n_perturb_samples=4)
    torch.manual_seed(9)
    steps, moved = (part.unflatten(0, (3, 4)) for part in perturb(x.repeat_interleave(4, dim=0)))
    for k, c in enumerate(target):
        off = [
            float((step * maps[k]).sum() - (model(x[k : k + 1]) - model(to[None])).detach()[0, c])
            for step, to in zip(steps[k], moved[k], strict=True)
        ]
        assert float(found[k]) == pytest.approx(sum(value**2 for value in off) / 4)
