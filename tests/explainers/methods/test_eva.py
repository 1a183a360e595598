"""The definitions against brute force, and what the calls say to bad input. tests/test_theory.py has the theorems."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import IBP, Backward, Cases, solve
from proofmap.errors import InputError, ModelError
from proofmap.explainers import EVA, EmpiricalEVA, Explainer, HybridEVA, TargetedEVA
from proofmap.explainers.explainer import Measured, Task
from proofmap.graph.rewrite.graph_cut import cut
from tests.bounds.setting import BUDGET
from tests.bounds.test_exact import tiny
from tests.explainers.making import draw
from tests.models import MODELS, graph_of

BALL = pm.Ball(0.01, domain=(0.0, 1.0))


@pytest.fixture(scope="module")
def graph() -> pm.Graph:
    return pm.trace(pm.zoo.mnist_mlp(), pm.data.digits()[0][:1])


@pytest.fixture(scope="module")
def x() -> Tensor:
    return pm.data.digits()[0][:3]


def explainers(model: nn.Module | pm.Graph) -> list[Explainer]:
    cells = pm.groups.grid(4)
    return [
        EVA(model, BALL, groups=cells),
        EVA(model, BALL, groups=cells, objective="mean", bounds=IBP()),
        EmpiricalEVA(model, BALL, groups=cells, samples=10),
        HybridEVA(model, BALL, groups=cells, split="2", samples=10),
    ]


def test_scores_are_the_drop_of_the_overlap(graph: pm.Graph, x: Tensor) -> None:
    over = pm.overlap(graph, x, BALL, groups=pm.groups.grid(4))
    found = EVA(graph, BALL, groups=pm.groups.grid(4)).explain(x)
    torch.testing.assert_close(found.scores, over.full[:, None] - over.frozen)
    torch.testing.assert_close(found.overlap.full, over.full)
    assert torch.equal(found.target, over.target)
    assert found.guarantee == "certified"
    assert bool((found.scores >= 0).all())
    cell = pm.groups.grid(4)((1, 28, 28))
    for u in (0, 5, 15):
        assert torch.equal(found.attributions[cell.expand(3, 1, 28, 28) == u].reshape(3, -1)[:, 0], found.scores[:, u])


def test_an_explanation_of_many_is_that_of_each(graph: pm.Graph, x: Tensor) -> None:
    for explainer in explainers(graph)[:2]:
        together = explainer.explain(x)
        torch.testing.assert_close(replace(explainer, batch=1).explain(x).scores, together.scores, rtol=1e-3, atol=1e-4)


def test_a_variable_that_is_not_read_scores_zero() -> None:
    model = tiny(0)
    with torch.no_grad():
        next(model.parameters())[:, 2] = 0.0
    found = EVA(model, pm.Ball(0.3), groups=torch.arange(4)).explain(torch.rand(5, 4, dtype=torch.float64))
    assert bool((found.scores[:, 2].abs() < 1e-12).all())
    assert bool((found.scores[:, [0, 1, 3]] > 1e-3).any())


def test_scores_of_a_linear_model_do_not_move() -> None:
    """Without a domain the overlap of a linear model rises by the same everywhere: the scores are constant."""
    torch.manual_seed(0)
    explainer = EVA(nn.Linear(6, 2).double(), pm.Ball(0.05), groups=torch.arange(6))
    x = torch.rand(1, 6, dtype=torch.float64)
    here = explainer.explain(x, 0).scores
    torch.testing.assert_close(explainer.explain(x + 0.3, 0).scores, here)


def test_what_samples_see_is_below_what_is_proven(graph: pm.Graph, x: Tensor) -> None:
    for eps in (0.01, 0.05):
        ball = pm.Ball(eps, domain=(0.0, 1.0))
        proven = EVA(graph, ball, groups=pm.groups.grid(4)).explain(x).overlap
        seen = EmpiricalEVA(graph, ball, groups=pm.groups.grid(4), samples=50).explain(x)
        assert bool((seen.overlap.full <= proven.full).all())
        assert bool((seen.overlap.frozen <= proven.frozen).all())
        assert bool((seen.overlap.full >= seen.overlap.nominal).all())
        assert seen.guarantee == "sampled"
        assert not seen.overlap.certified


@pytest.mark.parametrize("name", ["deep conv", "deep residual", "deep mobile", "deep sigmoid"])
def test_samples_are_below_the_proof_on_other_networks(name: str) -> None:
    case = MODELS[name]
    graph = graph_of(case, torch.float64)
    x = case.inputs(2, torch.float64, seed=5)
    for norm, eps in ((float("inf"), 0.05), (2.0, 0.3), (1.0, 0.5)):
        ball = pm.Ball(eps, norm, (case.low, case.high))
        proven = EVA(graph, ball).explain(x).overlap
        seen = EmpiricalEVA(graph, ball, samples=20).explain(x).overlap
        assert bool((seen.full <= proven.full + 1e-9).all())
        assert bool((seen.frozen <= proven.frozen + 1e-9).all())


def test_seeds_repeat_and_differ(graph: pm.Graph, x: Tensor) -> None:
    def scores(seed: int) -> Tensor:
        return EmpiricalEVA(graph, BALL, groups=pm.groups.grid(4), samples=10, seed=seed).explain(x).scores

    assert torch.equal(scores(1), scores(1))
    assert not torch.equal(scores(1), scores(2))


def test_the_same_noise_serves_every_member(graph: pm.Graph, x: Tensor) -> None:
    """A group that nothing reads scores exactly zero, which independent noise would not give."""
    model = pm.zoo.mnist_mlp()
    with torch.no_grad():
        next(model.parameters())[:, :28] = 0.0  # the first row of pixels
    mask = torch.zeros(1, 28, 28, dtype=torch.long)
    mask[:, 1:] = 1
    assert EmpiricalEVA(model, BALL, groups=mask, samples=10).explain(x).scores[:, 0].abs().max() == 0


def test_a_split_at_the_input_is_plain_eva_on_the_sampled_box(graph: pm.Graph, x: Tensor) -> None:
    found = HybridEVA(graph, BALL, groups=pm.groups.grid(4), split="input", samples=5, seed=3).explain(x)
    delta = draw(BALL.at(x), 5, 3)
    low, high = delta.amin(0).clamp(max=0), delta.amax(0).clamp(min=0)
    boxes = pm.Family(x, low, high, float("inf"), torch.full((3,), 0.01), *mask_of(x))
    unit = torch.eye(10)
    target = graph(x).argmax(1)
    rows = torch.stack([torch.stack([unit[c] - unit[t] for c in range(10) if c != int(t)]) for t in target])
    value = solve(graph, Cases(boxes), rows, Backward(), "separate", BUDGET).amax(2)
    torch.testing.assert_close(found.overlap.full, value[:, 0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.overlap.frozen, value[:, 1:], rtol=1e-3, atol=1e-3)
    assert found.guarantee == "none"


def mask_of(x: Tensor) -> tuple[Tensor, int]:
    return pm.groups.grid(4)((1, 28, 28)).expand_as(x), 16


def test_with_more_samples_the_hybrid_overlap_only_grows() -> None:
    """Boxes of more samples hold those of fewer, and interval arithmetic keeps the order."""
    case = MODELS["deep conv"]
    graph = graph_of(case, torch.float64)
    x = case.inputs(1, torch.float64, seed=6)
    split = next(node.name for node in graph.nodes if node.op == "relu")
    before = torch.full((1,), -torch.inf, dtype=torch.float64)
    for samples in (1, 2, 4, 8, 16, 64):
        ball = pm.Ball(0.1, domain=(case.low, case.high))
        found = HybridEVA(graph, ball, split=split, samples=samples, bounds=IBP()).explain(x).overlap.full
        assert bool((found >= before - 1e-12).all())
        before = found
    assert bool(
        (before > EmpiricalEVA(graph, pm.Ball(0.1, domain=(case.low, case.high))).explain(x).overlap.full).all()
    )


def test_a_graph_is_cut_in_two(graph: pm.Graph, x: Tensor) -> None:
    for node in graph.nodes[:-1]:
        head, tail = cut(graph, node.name)
        torch.testing.assert_close(tail(head(x)), graph(x))
    residual = graph_of(MODELS["deep residual"])
    join = next(node for node in residual.nodes if node.op == "add")
    with pytest.raises(ModelError, match=r"cannot be split at .* past it"):
        cut(residual, join.inputs[0])
    with pytest.raises(ModelError, match=r"no node or module 'features\.99'"):
        cut(graph, "features.99")


def test_targeted_signs_where_the_answer_is_known() -> None:
    """f_1 - f_0 = x_0 - x_1 + 0·x_2 - 5: to become class 1, add to x_0, remove from x_1, leave x_2."""
    model = nn.Linear(3, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 0.0]]))
        model.bias.copy_(torch.tensor([0.0, -5.0]))
    x = torch.full((1, 3), 0.5, dtype=torch.float64)
    found = TargetedEVA(model, pm.Ball(0.1), groups=torch.arange(3)).explain(x, target=1)
    torch.testing.assert_close(found.scores, torch.tensor([[0.1, -0.2, 0.0]], dtype=torch.float64))
    assert found.signed
    assert found.opposite is not None
    # at the edge of the domain nothing can be added
    edge = TargetedEVA(model, pm.Ball(0.1, domain=(0.0, 0.5)), groups=torch.arange(3)).explain(x, target=1)
    torch.testing.assert_close(edge.scores, torch.tensor([[0.0, -0.2, 0.0]], dtype=torch.float64))


def test_every_class_of_every_sample(graph: pm.Graph, x: Tensor) -> None:
    explainer = TargetedEVA(graph, BALL, groups=pm.groups.grid(4))
    every = explainer.explain_all(x)
    assert len(every) == 30
    torch.testing.assert_close(every.scores[17], explainer.explain(x[1:2], target=7).scores[0], rtol=1e-3, atol=1e-4)
    own = int(every.predicted[10])
    assert bool((every.scores[10 + own] == 0).all())
    assert every.opposite is not None
    assert float(every.overlap.full[10 + own]) <= 0 >= float(every.opposite.full[10 + own])
    assert not bool(every.proven[10 + own])  # no class gets ahead of itself, and it is that class all the same
    others = torch.arange(30) != 10 * torch.arange(3).repeat_interleave(10) + every.predicted
    bounded = (every.overlap.full < 0) & (every.opposite.full < 0)
    assert bool(bounded[others].any())
    assert torch.equal(every.proven, bounded & others)


@pytest.mark.parametrize(
    ("objective", "counts"), [("margin", True), ("apart", True), ("class", False), ("mean", False)]
)
def test_only_bounds_that_decide_are_proofs(graph: pm.Graph, x: Tensor, objective: str, counts: bool) -> None:
    found = EVA(graph, pm.Ball(0.001), groups=pm.groups.grid(2), objective=objective).explain(x)  # type: ignore[arg-type]
    assert bool((found.overlap.full < 0).all())
    assert found.proven.tolist() == [counts] * 3
    assert not bool(replace(found, guarantee="sampled").proven.any())


def test_a_radius_is_proven_by_the_bounds_in_use(graph: pm.Graph, x: Tensor) -> None:
    """Looser bounds reach less far: a radius of tighter ones would be an open question to them."""
    loose, tight = (
        EVA(graph, pm.Ball("auto", domain=(0.0, 1.0)), groups=pm.groups.grid(2), bounds=bounds).explain(x)
        for bounds in (IBP(), Backward())
    )
    assert bool(loose.proven.all())
    assert bool(tight.proven.all())
    assert bool((torch.tensor(loose.settings["eps"]) < torch.tensor(tight.settings["eps"])).all())


def test_a_radius_for_each_sample(graph: pm.Graph, x: Tensor) -> None:
    ball = pm.Ball("auto", domain=(0.0, 1.0))
    found = EVA(graph, ball, groups=pm.groups.grid(4)).explain(x)
    radius = pm.certified_radius(graph, x, domain=(0.0, 1.0))
    torch.testing.assert_close(torch.tensor(found.settings["eps"]), radius)
    assert bool((found.overlap.full < 0).all())
    assert bool((found.overlap.full > -0.5).all())  # the largest such radius, or nearly
    with pytest.raises(InputError, match="eps='auto', which explainers choose"):
        ball.at(x)


def test_groups_of_every_kind(graph: pm.Graph, x: Tensor) -> None:
    assert EVA(graph, BALL).explain(x[:1]).scores.shape == (1, 784)
    masks = torch.stack([torch.roll(pm.groups.grid(4)((1, 28, 28)), k, -1) for k in range(3)])
    masks[0].clamp_(max=3)  # a sample without the other groups
    each = EVA(graph, BALL, groups=masks, batch=1).explain(x)
    together = EVA(graph, BALL, groups=masks).explain(x)
    assert each.scores.shape == together.scores.shape == (3, 16)
    torch.testing.assert_close(each.scores, together.scores, rtol=1e-3, atol=1e-4)
    assert bool((each.scores[0, 4:] == 0).all())
    table = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    assert EVA(table, pm.Ball(0.1), groups=pm.groups.columns()).explain(torch.rand(4, 5)).attributions.shape == (4, 5)


def test_pieces_of_a_batch_keep_their_balls() -> None:
    """Radii and domains for each variable, channel or sample, where sizes coincide with the samples of a piece."""
    torch.manual_seed(0)
    flat = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    rows = torch.rand(6, 4, dtype=torch.float64)
    image = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2 * 2, 3)).double()
    pictures = torch.rand(3, 3, 4, 4, dtype=torch.float64)
    variables = torch.linspace(0.01, 0.2, 4, dtype=torch.float64)
    pixels = torch.linspace(0.01, 0.2, 48, dtype=torch.float64).reshape(3, 4, 4)
    limit = torch.ones(3, dtype=torch.float64)
    cases: list[tuple[nn.Module, Tensor, pm.Ball]] = [
        (flat, rows, pm.Ball(variables)),
        (flat, rows, pm.Ball(torch.linspace(0.01, 0.2, 6, dtype=torch.float64))),
        (flat, rows, pm.Ball(0.1, domain=(rows - 0.02, rows + 0.05))),
        (image, pictures, pm.Ball(pixels)),
        (image, pictures, pm.Ball(0.1, domain=(0 * limit, limit))),
        (image, pictures, pm.Ball(0.1, domain=(pictures - 0.02, pictures + pixels))),
    ]
    for model, x, ball in cases:
        whole = pm.overlap(model, x, ball, rigorous=False).full
        for batch in (1, 2, 3, 4, 6):
            groups = torch.zeros(x.shape[1:], dtype=torch.long)
            found = EVA(model, ball, groups=groups, batch=batch, rigorous=False).explain(x)
            torch.testing.assert_close(found.overlap.full, whole)


def test_channels_together_or_apart() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2 * 2, 3))
    x = torch.rand(2, 3, 4, 4)
    assert EVA(model, pm.Ball(0.1), groups=pm.groups.pixels()).explain(x).scores.shape == (2, 16)
    assert EVA(model, pm.Ball(0.1), groups=torch.arange(48).reshape(3, 4, 4)).explain(x).scores.shape == (2, 48)


def test_a_changed_model_is_traced_again(x: Tensor) -> None:
    model = pm.zoo.mnist_mlp()
    explainer = EVA(model, BALL, groups=pm.groups.grid(4))
    before = explainer.explain(x)
    assert explainer.explain(x).model_hash == before.model_hash
    with torch.no_grad():
        next(model.parameters()).mul_(0.9)
    after = explainer.explain(x)
    assert after.model_hash != before.model_hash
    assert not torch.equal(after.scores, before.scores)


def test_what_is_recorded(graph: pm.Graph, x: Tensor) -> None:
    found = HybridEVA(graph, BALL, groups=pm.groups.grid(4), split="2", samples=7, seed=5).explain(x)
    assert (found.method, found.seed, found.settings["samples"]) == ("HybridEVA", 5, 7)
    assert (found.settings["split"], found.settings["eps"]) == ("2", 0.01)
    assert found.settings["norm"] == "inf"
    assert found.seconds > 0
    assert found.versions["torch"] == torch.__version__


def test_bad_input_comes_before_work(graph: pm.Graph, x: Tensor) -> None:
    with pytest.raises(InputError, match=r"expected a pm\.Ball"):
        EVA(graph, 0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"expected a torch\.nn\.Module"):
        EVA("net.onnx", BALL)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="TargetedEVA needs a target"):
        TargetedEVA(graph, BALL).explain(x)
    with pytest.raises(InputError, match="expected a whole ball"):
        TargetedEVA(graph, pm.Ball(0.1, half="+"))
    with pytest.raises(InputError, match="expected a class from 0 to 9"):
        EVA(graph, BALL).explain(x, target=10)
    with pytest.raises(InputError, match="got samples=0"):
        EmpiricalEVA(graph, BALL, samples=0)
    with pytest.raises(InputError, match="got batch=0"):
        EVA(graph, BALL, batch=0)
    with pytest.raises(ModelError, match="no node or module"):
        HybridEVA(graph, BALL, split="nowhere").explain(x)


def test_an_interruption_leaves_the_explainer_as_it_was(graph: pm.Graph, x: Tensor) -> None:
    class Interrupted(EVA):
        calls = 0

        def _measure(self, task: Task) -> Measured:
            Interrupted.calls += 1
            if Interrupted.calls == 2:
                raise KeyboardInterrupt
            return super()._measure(task)

    explainer = Interrupted(graph, BALL, groups=pm.groups.grid(4), batch=1)
    expected = EVA(graph, BALL, groups=pm.groups.grid(4), batch=1).explain(x)
    with pytest.raises(KeyboardInterrupt):
        explainer.explain(x)
    assert torch.equal(explainer.explain(x).scores, expected.scores)


def test_progress_is_silent_when_asked_and_for_what_is_quick(
    graph: pm.Graph, x: Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    EVA(graph, BALL, groups=pm.groups.grid(4), progress=False).explain(x)
    EVA(graph, BALL, groups=pm.groups.grid(4)).explain(x[:1])
    assert capsys.readouterr().err == ""
