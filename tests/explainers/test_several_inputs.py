"""Models of several inputs: one ball for each, groups over all, and a map for each input."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.proof.check import check

IMAGES = torch.rand(2, 1, 3, 3, generator=torch.Generator().manual_seed(1))
ROWS = torch.randn(2, 2, generator=torch.Generator().manual_seed(2))
TOKENS = torch.tensor([[1, 3], [1, 3]])
BALLS = (pm.Ball(0.3, domain=(0.0, 1.0)), pm.Ball(0.2))
CELLS = pm.groups.grid(1, 3)


class Network(nn.Module):
    """A picture through a convolution, a row of a table, and optionally tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.picture = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4))
        self.row = nn.Linear(2, 4)
        self.words = nn.Embedding(5, 4)
        self.last = nn.Linear(8, 3)

    def forward(self, image: Tensor, table: Tensor, tokens: Tensor | None = None) -> Tensor:
        row = self.row(table)
        if tokens is not None:
            row = row + self.words(tokens).sum(1)
        logits: Tensor = self.last(torch.cat([self.picture(image), row], 1).relu())
        return logits


class Wrapped(nn.Module):
    """The same network with one joined input, as a user would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x[:, :9].reshape(-1, 1, 3, 3), x[:, 9:])
        return logits


JOINED = torch.cat([IMAGES.flatten(1), ROWS], 1)
JOINED_BALL = pm.Ball(
    torch.tensor([[0.3] * 9 + [0.2] * 2]),
    domain=(torch.tensor([[0.0] * 9 + [-torch.inf] * 2]), torch.tensor([[1.0] * 9 + [torch.inf] * 2])),
)
JOINED_GROUPS = torch.tensor([0, 1, 2] * 3 + [3, 4])


def overlap_of(points: list[Tensor], tokens: Tensor | None = None) -> Tensor:
    """Return the overlap of the user's module at points (N, *shape)."""
    rest = () if tokens is None else (tokens.expand(len(points[0]), -1),)
    with torch.no_grad():
        logits: Tensor = Network()(*points, *rest)
        return logits


def drawn(balls: tuple[pm.Ball | None, ...], k: int, frozen: int = -1) -> list[Tensor]:
    """Return random points and corners of the product of the balls around sample k; group `frozen` stays."""
    points, first = [], 0
    groupings: tuple[pm.groups.Grouping, ...] = (CELLS, pm.groups.columns())
    for ball, value, grouping in zip(balls, (IMAGES, ROWS), groupings, strict=True):
        x = value[k : k + 1]
        family = (pm.Ball(0.0) if ball is None else ball).at(x)
        delta = torch.cat([family.sample(400, torch.Generator().manual_seed(0))[:, 0], torch.zeros(400, *x.shape[1:])])
        if family.norm == torch.inf:
            coin = torch.rand(400, *x.shape[1:], generator=torch.Generator().manual_seed(3)) < 0.5
            delta[400:] = torch.where(coin, family.lower, family.upper)
        mask = grouping(tuple(x.shape[1:])) + first
        first = int(mask.max()) + 1
        points.append(x + delta.masked_fill(mask == frozen, 0.0))
    return points


def margins(logits: Tensor, target: Tensor) -> Tensor:
    others = logits - logits[:, target : target + 1]
    others[:, target] = -torch.inf
    return others.amax(1)


# --- the same results as for the joined vector ---


def test_bounds_are_those_of_the_joined_vector() -> None:
    groups = (CELLS, pm.groups.columns())
    found = pm.overlap(Network(), (IMAGES, ROWS), BALLS, groups=groups)
    expected = pm.overlap(Wrapped(), JOINED, JOINED_BALL, groups=JOINED_GROUPS)
    assert torch.equal(found.full, expected.full)
    assert torch.equal(found.frozen, expected.frozen)
    assert found.rigorous
    explained = pm.EVA(Network(), BALLS, groups=groups).explain((IMAGES, ROWS))
    assert torch.equal(explained.scores, pm.EVA(Wrapped(), JOINED_BALL, groups=JOINED_GROUPS).explain(JOINED).scores)


def test_dictionaries_arrays_and_graphs_give_the_same() -> None:
    model, groups = Network(), (CELLS, None)
    expected = pm.EVA(model, BALLS, groups=groups).explain((IMAGES, ROWS))
    graph = pm.trace(model, (IMAGES, ROWS))
    calls: list[Callable[[], pm.Explanation]] = [
        lambda: pm.EVA(model, BALLS, groups=groups).explain({"image": IMAGES, "table": ROWS}),
        lambda: pm.EVA(model, BALLS, groups=groups).explain((np.asarray(IMAGES, np.float64), ROWS.numpy())),
        lambda: pm.EVA(graph, BALLS, groups=groups).explain((IMAGES, ROWS)),
        lambda: pm.EVA(model, BALLS[::-1], groups=groups[::-1]).explain({"table": ROWS, "image": IMAGES}),
    ]
    for call in calls:
        found = call()
        assert torch.allclose(found.overlap.full, expected.overlap.full, atol=1e-5)
        assert found.input_roles == {"image": "moves", "table": "moves"}
    assert [tuple(part.x.shape) for part in expected.inputs] == [(2, 1, 3, 3), (2, 2)]
    assert torch.equal(expected.inputs[0].x, IMAGES)
    assert torch.equal(torch.cat([part.scores for part in expected.inputs], 1), expected.scores)
    assert torch.equal(expected.inputs[0].attributions[:, 0, 0], expected.scores[:, :3])
    assert torch.equal(expected.inputs[1].attributions, expected.scores[:, 3:])
    assert torch.equal(expected.inputs[1].intervals, expected.intervals[:, 3:])


# --- soundness ---


@pytest.mark.parametrize(
    "bounds",
    [
        pm.bounds.IBP(),
        pm.bounds.Backward(),
        pytest.param(pm.bounds.Alpha(), marks=pytest.mark.slow),
        pytest.param(pm.bounds.Exact(3.0), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "balls",
    [
        BALLS,
        (BALLS[0], None),
        (None, BALLS[1]),
        (pm.Ball(0.5, norm=2, domain=(0.0, 1.0)), None),
        (None, pm.Ball(0.4, norm=1)),
        (pm.Ball(0.4, half="+"), pm.Ball(0.1, half="+")),
        (pm.Ball(0.5, domain=(0.0, 1.0), relative=True), None),
    ],
    ids=str,
)
def test_no_point_of_the_balls_exceeds_a_bound(balls: tuple[pm.Ball | None, ...], bounds: pm.bounds.Method) -> None:
    """Random points and corners, of the user's module, with every group frozen in turn."""
    groups = (CELLS, pm.groups.columns())
    found = pm.overlap(Network(), (IMAGES, ROWS), balls, groups=groups, bounds=bounds)
    for k, frozen in product(range(2), (None, *range(5))):
        reached = margins(overlap_of(drawn(balls, k, -1 if frozen is None else frozen)), found.target[k])
        upper = found.full[k] if frozen is None else found.frozen[k, frozen]
        assert float(reached.max()) <= float(upper) + 1e-6
    for k, ball in enumerate(balls):
        if ball is None:  # freezing a group of a fixed input changes nothing
            own = slice(0, 3) if k == 0 else slice(3, 5)
            assert torch.allclose(found.frozen[:, own], found.full[:, None].expand(-1, own.stop - own.start), atol=1e-5)


def test_an_exact_search_attains_its_bounds_in_the_balls() -> None:
    balls = (BALLS[0], pm.Ball(0.5))
    found = pm.overlap(Network(), (IMAGES, ROWS), balls, bounds=pm.bounds.Exact(10.0))
    assert torch.allclose(found.full, found.full_lower, atol=1e-3)
    assert found.points is not None
    points = found.points[:, 0]
    image, row = points[:, :9].reshape(-1, 1, 3, 3), points[:, 9:]
    for k in range(2):
        reached = margins(overlap_of([image[k : k + 1].float(), row[k : k + 1].float()]), found.target[k])
        assert torch.allclose(reached, found.full_lower[k].float(), atol=1e-4)
        assert bool(balls[0].at(IMAGES).contains(image - IMAGES, 1e-5).all())
        assert bool(balls[1].at(ROWS).contains(row - ROWS, 1e-5).all())


def test_the_proven_radius_of_one_input() -> None:
    found = pm.EVA(Network(), (pm.Ball("auto", domain=(0.0, 1.0)), None)).explain((IMAGES, ROWS))
    assert bool((found.overlap.full <= 0).all())
    assert found.input_roles == {"image": "moves", "table": "fixed"}
    assert int(found.inputs[1].mask.max()) == 0  # a fixed input is one group
    assert bool((found.inputs[1].scores.abs() <= 1e-6).all())


def test_a_table_with_its_domain() -> None:
    """One-hot blocks keep their columns after the picture."""
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    domain = pm.Domain.from_data(torch.cat([rows, rows]))
    balls = (pm.Ball(0.1), pm.Ball(domain.eps(0.1), domain=domain))
    found = pm.overlap(Network(), (IMAGES, rows), balls)
    target = found.target
    for k, row in product(range(2), rows):
        points = drawn((balls[0], None), k)
        reached = margins(overlap_of([points[0], row.expand(len(points[0]), -1)]), target[k])
        assert float(reached.max()) <= float(found.full[k]) + 1e-6


# --- integers ---


def test_integers_stay_fixed() -> None:
    model, balls = Network(), (*BALLS, None)
    found = pm.EVA(model, balls, groups=(CELLS, None, None)).explain((IMAGES, ROWS, TOKENS))
    assert found.input_roles == {"image": "moves", "table": "moves", "tokens": "constant"}
    assert len(found.inputs) == 2
    assert torch.equal(found.predicted, model(IMAGES, ROWS, TOKENS).argmax(1))
    for k in range(2):
        reached = margins(overlap_of(drawn(BALLS, k), TOKENS[:1]), found.target[k])
        assert float(reached.max()) <= float(found.overlap.full[k]) + 1e-6
    assert pm.EVA(model, balls).explain((IMAGES, ROWS, TOKENS + 1)).model_hash != found.model_hash
    with pytest.raises(InputError, match=r"got balls for the input 'tokens' of torch.int64, expected None"):
        pm.overlap(model, (IMAGES, ROWS, TOKENS), (*BALLS, pm.Ball(1.0)))


def test_different_integers_are_explained_one_by_one() -> None:
    explainer, given = pm.EVA(Network(), (*BALLS, None)), (IMAGES, ROWS, torch.tensor([[1, 2], [3, 4]]))
    inputs: Any
    for inputs in (given, dict(zip(("image", "table", "tokens"), given, strict=True))):
        with pytest.raises(InputError, match=r"'tokens' of torch.int64 with different values for 2 samples") as caught:
            explainer.explain(inputs)
        advice = str(caught.value).rpartition("with the inputs ")[2]
        found = [explainer.explain(eval(advice, {"inputs": inputs, "k": k})) for k in range(2)]
        assert [int(one.predicted) for one in found] == Network()(*given).argmax(1).tolist()


def test_a_graph_knows_its_integers() -> None:
    graph = pm.trace(Network(), (IMAGES, ROWS, TOKENS))
    assert torch.allclose(graph(JOINED), Network()(IMAGES, ROWS, TOKENS), atol=1e-6)
    with pytest.raises(InputError, match="other integers for the input 'tokens' than the graph was traced with"):
        pm.overlap(graph, (IMAGES, ROWS, TOKENS + 1), (*BALLS, None))


# --- results ---


def test_captum_gets_a_tuple() -> None:
    explainer = pm.EVA(Network(), (*BALLS, None))
    maps = explainer.attribute((IMAGES, ROWS, TOKENS), 1)
    assert [tuple(each.shape) for each in maps] == [(2, 1, 3, 3), (2, 2), (2, 2)]
    cells = explainer.attribute((IMAGES, ROWS, TOKENS), 1, (CELLS((1, 3, 3)), torch.tensor([0, 0]), None))
    assert torch.equal(cells[1][:, 0], cells[1][:, 1])


@pytest.mark.parametrize(
    "make",
    [
        lambda model: pm.TargetedEVA(model, BALLS),
        lambda model: pm.SmoothEVA(model, BALLS, samples=4),
        lambda model: pm.EmpiricalEVA(model, BALLS, samples=4),
        lambda model: pm.FirstOrder(model, BALLS),
        lambda model: pm.NestedEVA(model, BALLS),
        lambda model: pm.ProbableEVA(model, (None, pm.Ball(0.2, norm=2)), samples=64),
    ],
)
def test_other_methods(make: Callable[[nn.Module], Any]) -> None:
    found = make(Network()).explain((IMAGES, ROWS), 1)
    assert [tuple(part.attributions.shape) for part in found.inputs] == [(2, 1, 3, 3), (2, 2)]


def test_names_in_tables_and_figures() -> None:
    pytest.importorskip("pandas")
    found = pm.EVA(Network(), BALLS, groups=(CELLS, None)).explain((IMAGES, ROWS))
    names = ["image rows 0-2, column 0", "image rows 0-2, column 1", "image rows 0-2, column 2", "table 0", "table 1"]
    assert found.to_frame()["name"].tolist() == names * 2
    assert "image (1, 3, 3) and table (2,)" in repr(found)
    for picture in (found.plot(), found.summary()):
        texts = {text.get_text() for axes in picture.axes for text in axes.get_yticklabels()}
        assert any(text.startswith("image rows 0-2") for text in texts), texts
        assert any(text.startswith("table 0") for text in texts), texts


def test_every_class() -> None:
    found = pm.TargetedEVA(Network(), BALLS, groups=(CELLS, None)).explain_all((IMAGES, ROWS))
    assert len(found) == 6
    assert found.inputs[0].opposite is not None
    assert found.inputs[0].atlas() is not None


def test_files_certificates_and_figures(tmp_path: Path) -> None:
    found = pm.EVA(Network(), BALLS, groups=(CELLS, None), bounds=pm.bounds.Exact(3.0)).explain((IMAGES, ROWS))
    found.save(tmp_path / "two.proofmap")
    again = pm.Explanation.load(tmp_path / "two.proofmap")
    assert again.input_roles == found.input_roles
    for one, other in zip(found.inputs, again.inputs, strict=True):
        assert torch.equal(one.attributions, other.attributions)
        assert one.plot() is not None
    assert [tuple(part.x.shape) for part in found[1].inputs] == [(1, 1, 3, 3), (1, 2)]
    paths = found.certificate(0, leaves=0, progress=False).save(tmp_path / "two.proof")
    assert ("NOT proven" in check(*paths)) == (not found.proven[0])


# --- refusals ---


NO_PAIR = (pm.Ball(0.1, norm=2), pm.Ball(0.1, norm=2))
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "one ball": ((IMAGES, ROWS), pm.Ball(0.1), r"one of the balls for 2 inputs \('image', 'table'\), expected a tuple"),
    "three balls": ((IMAGES, ROWS), (*BALLS, None), "got 3 balls for 2 inputs"),
    "no ball that moves": ((IMAGES, ROWS), (None, None), "expected a pm.Ball for at least one input"),
    "two other norms": ((IMAGES, ROWS), NO_PAIR, r"norms 2, 2, expected norm=float\('inf'\).*product of other"),
    "two halves": ((IMAGES, ROWS), (pm.Ball(0.1, half="+"), BALLS[1]), "balls with different half"),
    "auto and a number": ((IMAGES, ROWS), (pm.Ball("auto"), BALLS[1]), "'auto' for some inputs"),
    "outside": ((IMAGES + 1, ROWS), BALLS, "x leaves the domain"),
    "samples": ((IMAGES[:1], ROWS), BALLS, r"inputs of different numbers of samples"),
    "precisions": ((IMAGES.double(), ROWS), BALLS, "inputs of different precisions"),
    "integers alone": ((TOKENS, TOKENS), BALLS, "expected at least one of floats"),
    "nothing": ((), BALLS, "got an empty tuple of inputs"),
    "two balls for one input": (JOINED, BALLS, "got 2 balls for one input"),
}


@pytest.mark.parametrize(("x", "ball", "message"), REFUSED.values(), ids=REFUSED)
def test_what_fits_not_is_refused(x: Any, ball: Any, message: str) -> None:
    for call in (lambda: pm.overlap(Network(), x, ball), lambda: pm.EVA(Network(), ball).explain(x)):
        with pytest.raises(InputError, match=message):
            call()


def test_a_ball_is_needed() -> None:
    with pytest.raises(InputError, match="EVA got no ball for 2 inputs, expected a tuple"):
        pm.EVA(Network()).explain((IMAGES, ROWS))


def test_one_input_by_keyword() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    found = pm.EVA(model, pm.Ball(0.1)).explain({"input": IMAGES})
    assert torch.equal(found.scores, pm.EVA(model, pm.Ball(0.1)).explain(IMAGES).scores)
    assert found.inputs == (found,)
