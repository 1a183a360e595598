"""`pm.overlap`: results, and error messages for bad input."""

import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import IBP, Backward
from proofmap.bounds.backward import BackwardBounder
from proofmap.bounds.differences import twin_bounds
from proofmap.errors import BoundError, InputError, ModelError, ProofmapError, UnsupportedError
from proofmap.graph.ir import Node
from proofmap.verify import family_bounds
from proofmap.verify import searched_overlap as overlaps


@pytest.fixture(scope="module")
def graph() -> pm.Graph:
    return pm.trace(pm.zoo.mnist_mlp(), pm.data.digits()[0][:1])


@pytest.fixture(scope="module")
def x() -> Tensor:
    return pm.data.digits()[0][:3]


BALL = pm.Ball(0.01, domain=(0.0, 1.0))


def test_all_names_exist() -> None:
    for name in pm.__all__:
        assert hasattr(pm, name)
    for name in pm.bounds.__all__:
        assert hasattr(pm.bounds, name)


def test_shapes_and_meaning(graph: pm.Graph, x: Tensor) -> None:
    over = pm.overlap(graph, x, BALL, groups=pm.groups.grid(4))
    assert (over.full.shape, over.frozen.shape) == ((3,), (3, 16))
    assert over.certified is True
    logits = graph(x)
    assert torch.equal(over.target, logits.argmax(1))
    best_other = logits.scatter(1, over.target[:, None], -torch.inf).amax(1)
    torch.testing.assert_close(over.nominal, best_other - logits.amax(1))
    assert bool((over.full >= over.nominal).all())
    assert bool((over.frozen <= over.full[:, None]).all())


def test_without_groups_there_is_only_the_ball(graph: pm.Graph, x: Tensor) -> None:
    assert pm.overlap(graph, x, BALL).frozen.shape == (3, 0)


def test_a_module_and_its_graph_give_the_same(graph: pm.Graph, x: Tensor) -> None:
    assert torch.equal(pm.overlap(graph, x, BALL).full, pm.overlap(pm.zoo.mnist_mlp(), x, BALL).full)


def test_targets(graph: pm.Graph, x: Tensor) -> None:
    one = pm.overlap(graph, x, BALL, target=3)
    assert torch.equal(one.full, pm.overlap(graph, x, BALL, target=torch.tensor([3, 3, 3])).full)
    assert bool((one.full >= one.nominal).all())
    assert bool((one.nominal > 0).all())  # none of these is a 3


def test_objectives_are_forms_of_the_logits(graph: pm.Graph, x: Tensor) -> None:
    """At x itself, each objective is its formula. Over a ball of radius 0, the overlap is the same."""
    logits = graph(x)
    own = logits.amax(1)
    point = pm.Ball(0.0)
    nominal = {
        "margin": logits.topk(2, dim=1).values[:, 1] - own,
        "apart": logits.topk(2, dim=1).values[:, 1] - own,
        "class": -own,
        "mean": (logits.sum(1) - own) / 9 - own,
    }
    for objective, expected in nominal.items():
        over = pm.overlap(graph, x, point, objective=objective, rigorous=False)  # type: ignore[arg-type]
        torch.testing.assert_close(over.nominal, expected)
        torch.testing.assert_close(over.full, expected, rtol=1e-4, atol=1e-4)
        wide = pm.overlap(graph, x, BALL, objective=objective, groups=pm.groups.grid(4))  # type: ignore[arg-type]
        assert bool((wide.full > expected).all())
        assert bool((wide.frozen <= wide.full[:, None]).all())
    # The mean of the margins is at most their maximum.
    assert bool((pm.overlap(graph, x, BALL, objective="mean").full <= pm.overlap(graph, x, BALL).full + 1e-4).all())


def test_forms_have_the_precision_of_the_model() -> None:
    """1/(K-1) in single precision would be off by 3e-8 times the common size of the logits."""
    model = nn.Linear(3, 10).double()
    with torch.no_grad():
        model.bias.add_(1e6)
    x = torch.randn(2, 3, dtype=torch.float64)
    logits = model(x)
    own = logits.amax(1)
    over = pm.overlap(model, x, pm.Ball(0.0), objective="mean", rigorous=False)
    torch.testing.assert_close(over.nominal, (logits.sum(1) - own) / 9 - own, rtol=0, atol=1e-8)
    torch.testing.assert_close(over.full, over.nominal, rtol=0, atol=1e-8)


def test_one_rival_and_the_max_over_all(graph: pm.Graph, x: Tensor) -> None:
    every = pm.overlap(graph, x, BALL)
    others = [(every.target + k) % 10 for k in range(1, 10)]
    each = torch.stack([pm.overlap(graph, x, BALL, rival=other).full for other in others], dim=1)
    torch.testing.assert_close(each.amax(1), every.full, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="got rival 10, expected a class from 0 to 9"):
        pm.overlap(graph, x, BALL, rival=10)
    own = int(every.target[1])
    with pytest.raises(InputError, match=f"got rival {own}, which is the target of sample 1, expected another class"):
        pm.overlap(graph, x, BALL, rival=own)


def test_one_sample_at_a_time_is_the_same(graph: pm.Graph, x: Tensor) -> None:
    together = pm.overlap(graph, x, BALL, groups=pm.groups.grid(4))
    for k in range(len(x)):
        alone = pm.overlap(graph, x[k : k + 1], BALL, groups=pm.groups.grid(4))
        torch.testing.assert_close(alone.frozen[0], together.frozen[k], rtol=1e-4, atol=1e-4)


def test_without_a_search_x_itself_attains_the_lower_sides(graph: pm.Graph, x: Tensor) -> None:
    over = pm.overlap(graph, x, BALL, groups=pm.groups.grid(4), rigorous=False)
    assert over.points is None
    assert torch.equal(over.full_lower, over.nominal)
    assert torch.equal(over.frozen_lower, over.nominal[:, None].expand(3, 16))
    largest = (over.full.double() - over.nominal.double())[:, None].expand(3, 16)
    assert torch.equal(over.intervals, torch.stack([torch.zeros_like(largest), largest], dim=2))
    assert pm.overlap(graph, x, BALL).intervals.shape == (3, 0, 2)
    outward = pm.overlap(graph, x, BALL, groups=pm.groups.grid(4))  # lower bounds cover all rounding errors, too
    assert bool((outward.full_lower < over.nominal).all())
    assert torch.equal(outward.frozen_lower, outward.full_lower[:, None].expand(3, 16))
    torch.testing.assert_close(outward.full_lower, over.full_lower, rtol=1e-3, atol=0)


def test_radius_zero_rounds_no_lower_side_above_its_upper_side(graph: pm.Graph, x: Tensor) -> None:
    over = pm.overlap(graph, x, pm.Ball(0.0), groups=pm.groups.grid(4))
    assert bool((over.full_lower <= over.full).all())
    assert bool((over.frozen_lower <= over.frozen).all())


def sided(full: float, lower: float, certified: bool = True) -> pm.Overlap:
    """Return an overlap with AO(B) between two numbers, AO(B_0) in [0.25, 0.5] and AO(B_1) in [-1, -0.5]."""
    target, frozen = torch.zeros(1, dtype=torch.int64), torch.tensor([[0.5, -0.5]])
    lowest = torch.tensor([[0.25, -1.0]], dtype=torch.float64)
    reached = torch.tensor([lower], dtype=torch.float64)
    return pm.Overlap(torch.tensor([full]), frozen, torch.tensor([-2.0]), target, certified, reached, lowest)


def test_a_score_lies_between_the_differences_of_both_sides() -> None:
    assert sided(1.0, 0.75).intervals.tolist() == [[[0.25, 0.75], [1.25, 2.0]]]
    assert sided(1.0, 0.25).intervals.tolist() == [[[0.0, 0.75], [0.75, 2.0]]]
    assert sided(1.0, 0.75, certified=False).intervals.tolist() == [[[0.0, torch.inf], [0.0, torch.inf]]]


def test_sides_that_rounding_crosses_are_mended_outward_and_others_contradict() -> None:
    lower = 1.0 + 1e-9
    over = sided(1.0, lower)
    assert over.full.dtype == torch.float32
    assert over.full_lower.tolist() == [lower]
    assert bool((over.full_lower <= over.full).all())
    with pytest.raises(ProofmapError, match=r"reaches an overlap of 1\.01 where 1 was proven to be the most"):
        sided(1.0, 1.01)


def test_a_mask_for_each_sample(graph: pm.Graph, x: Tensor) -> None:
    masks = torch.stack([torch.roll(pm.groups.grid(4)((1, 28, 28)), k, -1) for k in range(3)])
    together = pm.overlap(graph, x, BALL, groups=masks)
    for k in range(3):
        alone = pm.overlap(graph, x[k : k + 1], BALL, groups=masks[k])
        torch.testing.assert_close(alone.frozen[0], together.frozen[k], rtol=1e-4, atol=1e-4)


def test_no_group_but_the_whole_image_leaves_the_nominal_overlap(graph: pm.Graph, x: Tensor) -> None:
    whole = torch.zeros(1, 28, 28, dtype=torch.long)
    over = pm.overlap(graph, x, BALL, groups=whole, sharing="separate", rigorous=False)
    torch.testing.assert_close(over.frozen[:, 0], over.nominal, rtol=1e-4, atol=1e-4)


def test_a_relative_ball_is_the_box_that_it_says(graph: pm.Graph, x: Tensor) -> None:
    found = pm.overlap(graph, x, pm.Ball(0.03, domain=(0.0, 1.0), relative=True), groups=pm.groups.grid(4))
    same = pm.overlap(graph, x, pm.Ball(1.0, domain=(0.97 * x, 0.97 * x + 0.03)), groups=pm.groups.grid(4))
    torch.testing.assert_close(found.full, same.full, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.frozen, same.frozen, rtol=1e-4, atol=1e-4)


BAD: list[tuple[dict[str, object], str]] = [
    ({"target": 10}, "got target 10, expected a class from 0 to 9"),
    ({"target": -1}, "got target -1, expected a class from 0 to 9"),
    (
        {"target": torch.tensor([1, 2])},
        r"got target of type torch.int64 and shape \(2,\), expected a class number, or one for each of 3",
    ),
    ({"target": torch.tensor([1.0, 2.0, 3.0])}, "got target of type torch.float32"),
    ({"sharing": "both"}, "got sharing='both', expected one of 'shared', 'one-pass', 'separate'"),
    ({"objective": "max"}, "got objective='max', expected one of 'margin', 'class', 'mean', 'apart'"),
    ({"bounds": "backward"}, r"got bounds='backward', expected a method such as pm.bounds.Backward\(\)"),
    ({"memory": -1}, "got memory=-1, expected a positive number of bytes"),
    ({"groups": torch.zeros(27, 28, dtype=torch.long)}, "mask"),
    ({"groups": torch.zeros(1, 28, 28)}, "integer"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda v: str(v)[:40])
def test_bad_arguments(graph: pm.Graph, x: Tensor, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pm.overlap(graph, x, BALL, **arguments)  # type: ignore[arg-type]


def test_bad_inputs(graph: pm.Graph, x: Tensor) -> None:
    broken = x.clone()
    broken[1, 0, 3, 4] = float("nan")
    with pytest.raises(InputError, match=r"NaN|finite"):
        pm.overlap(graph, broken, BALL)
    with pytest.raises(InputError, match="domain"):
        pm.overlap(graph, x + 0.5, BALL)
    with pytest.raises(InputError, match="got an input of shape"):
        pm.overlap(graph, x[:, :, :20], BALL)
    with pytest.raises(InputError, match="float"):
        pm.overlap(graph, (x * 255).long(), BALL)
    with pytest.raises(InputError, match=r"pm.load"):
        pm.overlap("net.onnx", x, BALL)  # type: ignore[arg-type]


def test_bad_models(x: Tensor) -> None:
    broken = pm.zoo.mnist_mlp()
    with torch.no_grad():
        next(broken.parameters())[3, 4] = float("inf")
    with pytest.raises(ModelError, match=r"1\.weight.*NaN or infinite"):
        pm.overlap(broken, x, BALL)

    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            flat = x.flatten(1)[:, :10]
            return flat - flat.mean(0, keepdim=True)

    with pytest.raises(ModelError, match=r"mixes the samples"):
        pm.overlap(Mixed(), x, BALL)

    class Strange(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1).cumprod(1)[:, :10] + x.flatten(1).sort(1).values[:, :10]

    with pytest.raises(UnsupportedError, match=r"(?s)cumprod.*sort|sort.*cumprod"):
        pm.overlap(Strange(), x, BALL)
    with pytest.raises(InputError, match=r"output has shape \(N, 2, 392\), which is no list of classes"):
        pm.overlap(nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 392))), x, BALL)


def test_bad_models_are_found_before_bounds_are_computed(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **rest: object) -> Tensor:
        raise AssertionError("bounds were computed")

    monkeypatch.setattr(family_bounds, "solve_plans", never)
    with pytest.raises(InputError):
        pm.overlap(pm.zoo.mnist_mlp(), x, BALL, target=77)
    with pytest.raises(InputError):
        pm.overlap(pm.zoo.mnist_mlp(), x, BALL, sharing="both")  # type: ignore[arg-type]


def test_bounds_that_overflow_are_no_bounds() -> None:
    class Towers(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(8):
                x = x.square()
            return x

    with pytest.raises(BoundError, match=r"left the range of torch.float32.*smaller eps"):
        pm.overlap(Towers(), torch.tensor([[1.0, 1.1]]), pm.Ball(2.0))


def test_the_model_is_left_as_it_was(x: Tensor) -> None:
    model = pm.zoo.mnist_mlp().train()
    model[2].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    pm.overlap(model, x, BALL)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_tighter_methods_order_on_real_digits(graph: pm.Graph, x: Tensor) -> None:
    backward = pm.overlap(graph, x, BALL, bounds=Backward()).full
    assert bool((backward < pm.overlap(graph, x, BALL, bounds=IBP()).full).all())


def test_an_overlap_prints_short() -> None:
    """The text shows a few numbers, rounded so that they stay true, for any number of groups."""
    full = torch.tensor([-1.0049, 0.2501, -0.004])
    target = torch.zeros(3, dtype=torch.int64)
    found = pm.Overlap(full, torch.zeros(3, 144), torch.zeros(3), target, certified=True, rigorous=True)
    words = "Overlap(3 samples, 144 groups, certified: AO(B) <= -1.00 to 0.26, below 0 for 2 of 3)"
    assert repr(found) == words
    assert repr(replace(found, rigorous=False)) == f"{words[:-1]}; floating-point rounding is not covered)"
    alone = pm.Overlap(full[:1], torch.zeros(1, 0), full[:1], target[:1], certified=True, rigorous=True)
    assert repr(alone) == "Overlap(1 sample, no groups, certified: AO(B) <= -1.00, below 0)"
    above = pm.Overlap(full[1:2], torch.zeros(1, 1), full[:1], target[:1], certified=True, rigorous=True)
    assert repr(above) == "Overlap(1 sample, 1 group, certified: AO(B) <= 0.26, not below 0)"
    sampled = replace(found, certified=False)
    assert repr(sampled) == "Overlap(3 samples, 144 groups, not certified: AO(B) about -1.00 to 0.25)"
    assert len(repr(pm.overlap(nn.Linear(3, 2), torch.zeros(2, 3), BALL, groups=pm.groups.columns()))) < 100


def test_an_attack_takes_of_the_time_of_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []
    attacked, closed = vars(overlaps)["attack_lower_bounds"], vars(overlaps)["exact_bounds"]

    def reach(*arguments: Any) -> Any:
        asked.append((arguments[4] - time.monotonic(), 0.0))
        time.sleep(0.2)
        return attacked(*arguments)

    def close(*arguments: Any, **how: Any) -> Any:
        asked.append((0.0, arguments[5].seconds))
        return closed(*arguments, **how)

    monkeypatch.setattr(overlaps, "attack_lower_bounds", reach)
    monkeypatch.setattr(overlaps, "exact_bounds", close)
    model, x = torch.nn.Linear(3, 2), torch.rand(2, 3)
    pm.overlap(model, x, pm.Ball(0.1), bounds=pm.bounds.Exact(seconds=8))
    assert asked[0][0] <= 4  # a quarter of the time of two samples
    assert asked[1][1] <= 7.9
    asked.clear()
    pm.overlap(model, x, pm.Ball(0.1), bounds=pm.bounds.Exact(seconds=0.01))
    assert 0 < asked[1][1] < 0.01


def test_a_search_bounds_the_hidden_layers_of_the_balls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The units of the search and the direct bounds of scores use the intervals of the first bounds."""
    tightened: list[str] = []
    invprop_forms: list[Tensor] = []
    usual, invprop = BackwardBounder.tighten_inputs, vars(twin_bounds)["invprop"]

    def tighten(self: BackwardBounder, node: Node) -> None:
        if self.state.cases.cut is None and not self.state.cases.known:
            tightened.append(node.name)
        usual(self, node)

    def constrained(graph: pm.Graph, family: pm.Family, forms: Tensor, *more: Any) -> Any:
        invprop_forms.append(forms)
        return invprop(graph, family, forms, *more)

    monkeypatch.setattr(BackwardBounder, "tighten_inputs", tighten)
    monkeypatch.setattr(twin_bounds, "invprop", constrained)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)).double()
    x = torch.rand(1, 16, dtype=torch.float64)  # too many variables for boxes of inputs
    how = pm.bounds.Exact(memory=1, seconds=2)  # no room for leaves, so the scores are bounded directly
    groups = torch.arange(16) // 4
    assert pm.overlap(model, x, pm.Ball(0.3), groups=groups, bounds=how, rigorous=False).drops is not None
    assert len(invprop_forms) == 1
    assert len(tightened) == len(set(tightened)) == 2
