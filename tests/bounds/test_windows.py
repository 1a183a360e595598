"""Window forms equal dense forms and only store them more compactly."""

from math import inf, prod

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.bounds import Backward
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.backward import BackwardPass
from proofmap.graph import Graph
from proofmap.graph.ir import Node
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.window_forms import WindowForms, WindowPlaces, places_of_entries
from proofmap.rules import RULES, Form, Interval, Linear, Nonlinear
from tests.bounds.maps import BODIES, SHAPE, graph_of, points
from tests.bounds.setting import both_sides, by, mask_for
from tests.models import MODELS, Case
from tests.models import graph_of as small_graph

# Operations after which windows stay windows.
KEPT = {"conv", "avg_pool", "max_pool", "maximum", "larger", "slice", "affine", "keep", "add", "concat", "pad"}


def windows_of(node: Node, cases: int, seed: int, sites: bool) -> WindowForms:
    """Draw random windows of the node's value. Some rows share a position, and some windows extend beyond the map."""
    g = torch.Generator().manual_seed(seed)
    rows = 7
    extent = tuple(int(n) for n in torch.randint(2, 5, (len(node.shape) - 1,), generator=g))
    owner = torch.randint(0, cases, (rows,), generator=g)
    position = torch.stack([torch.randint(0, n, (rows,), generator=g) for n in extent], 1)
    site = torch.randint(0, rows, (rows + 4,), generator=g) if sites else None
    places = WindowPlaces(owner, position, extent, site)
    size = [int(n) for n in torch.randint(1, 4, (len(extent),), generator=g)]
    stride = tuple(int(n) for n in torch.randint(1, 3, (len(extent),), generator=g))
    offset = tuple(int(n) for n in torch.randint(-2, 3, (len(extent),), generator=g))
    values = torch.randn(rows if site is None else len(site), node.shape[0], *size, dtype=torch.float64, generator=g)
    whole = WindowForms(values, places, stride, offset, node.shape)
    return whole.moved(values, node.shape, (0,) * len(extent), (1,) * len(extent))


def owners(form: WindowForms) -> Tensor:
    return form.places.to_rows(form.places.owner)


@pytest.mark.parametrize(
    "sites", [pytest.param(False, marks=pytest.mark.whole), pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("body", BODIES)
def test_every_operation_pulls_windows_as_it_pulls_dense_forms(body: str, sites: bool) -> None:
    """Compare at every node that maps feature maps to a feature map."""
    graph = with_pairwise_maxima(graph_of(body), points(1))
    for node in graph.nodes[1:]:
        shapes = tuple(graph[i].shape for i in node.inputs)
        if all(len(shape) == 3 for shape in (node.shape, *shapes)):
            for seed in range(4):
                pulls_alike(node, shapes, windows_of(node, 2, seed, sites))


def pulls_alike(node: Node, shapes: tuple[tuple[int, ...], ...], form: WindowForms) -> None:
    rule = RULES[node.op]
    parts: tuple[Form | None, ...]
    expected: tuple[Tensor | None, ...]
    if isinstance(rule, Linear):
        parts, bias = rule.pull(node, shapes, form)
        expected, offset = rule.pull(node, shapes, form.dense())
    else:
        assert isinstance(rule, Nonlinear)
        middle = [torch.randn(2, *shape, dtype=torch.float64) for shape in shapes]
        relaxation = rule.relax(node, *(Interval(m - 0.4, m + 0.5) for m in middle))
        parts, bias = relaxation.pull(form, owners(form))
        expected, offset = relaxation.pull(form.dense(), owners(form))
    assert (bias is None) == (offset is None), node
    if bias is not None and offset is not None:
        torch.testing.assert_close(bias, offset)
    for part, dense in zip(parts, expected, strict=True):
        if dense is None:  # the form of a difference whose two values are inputs of the node, too
            assert (node.op, part) == ("larger", None)
            continue
        if node.op in KEPT and not (node.op == "pad" and node.attributes["mode"] != "constant"):
            assert isinstance(part, WindowForms), node
        torch.testing.assert_close(part.dense() if isinstance(part, WindowForms) else part, dense)


def test_the_sum_of_windows_is_the_sum_of_forms() -> None:
    node = graph_of("conv").nodes[0]
    for seed in range(20):
        a = windows_of(node, 1, seed, True)
        shift = torch.randint(-2, 3, (2,), generator=torch.Generator().manual_seed(seed)).tolist()
        other = torch.randn(len(a), 2, 3, 1, dtype=torch.float64)
        alike = WindowForms(other, a.places, a.stride, a.offset, a.shape).moved(other, a.shape, tuple(shift), (1, 1))
        faster = WindowForms(other, a.places, a.stride, a.offset, a.shape).moved(other, a.shape, (0, 0), (2, 1))
        whole = torch.randn(len(a), *SHAPE, dtype=torch.float64)
        assert isinstance(a + alike, WindowForms)
        for b in (alike, faster, whole):
            for total in (a + b, b + a):
                expected = a.dense() + (b.dense() if isinstance(b, WindowForms) else b)
                torch.testing.assert_close(total.dense() if isinstance(total, WindowForms) else total, expected)


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
@pytest.mark.parametrize("kind", ["for all", "for each sample", "for all channels"])
@pytest.mark.parametrize("domain", [None, (-1.0, 1.0)])
def test_the_largest_value_on_every_member_is_that_of_the_dense_form(
    norm: float, kind: str, domain: tuple[float, float] | None
) -> None:
    x = points(2)
    masks = [mask_for(SHAPE, 9, seed) for seed in range(2)]
    mask = torch.stack(masks) if kind == "for each sample" else masks[0]
    if kind == "for all channels":
        mask = mask_for((1, *SHAPE[1:]), 9).expand(SHAPE)
    family = pm.Ball(0.3 if norm == inf else 0.9, norm, domain).at(x, mask)
    node = graph_of("conv").nodes[0]
    for seed in range(5):
        form = windows_of(node, 2, seed, True)
        expected = family.maximise(form.dense(), owners(form))
        found, seen = family.maximise_windows(form)
        torch.testing.assert_close(found[:, 0], expected[:, 0])
        for row in range(len(form)):
            groups = [g for g in seen[row].tolist() if g >= 0]
            assert len(groups) == len(set(groups))
            for column, group in enumerate(seen[row].tolist()):
                if group >= 0:
                    torch.testing.assert_close(found[row, 1 + column], expected[row, 1 + group])
            others = [1 + g for g in range(9) if g not in groups]
            torch.testing.assert_close(expected[row, others], found[row, :1].expand(len(others)))
        alone, none = family.maximise_windows(form, full_only=True)
        assert none.shape[1] == 0
        torch.testing.assert_close(alone, expected[:, :1])


def test_places_are_read_no_more_often_than_there_are() -> None:
    position = torch.tensor([[0, 1], [2, 0], [0, 1], [1, 1], [0, 1], [2, 1], [2, 1]])
    owner = torch.tensor([0, 1, 1, 0, 1, 0, 1])
    site = torch.tensor([6, 0, 3, 3, 1])
    for cases, most in ((1, 6), (2, 7)):  # one mask reads all six positions, two masks read the seven places
        for places in (WindowPlaces(owner, position, (3, 2), site), WindowPlaces(owner, position, (3, 2))):
            few, at = places.fewest(cases)
            assert len(few.owner) == most
            torch.testing.assert_close(few.position[at], places.to_rows(position))
            if cases > 1:
                torch.testing.assert_close(few.owner[at], places.to_rows(owner))


def test_an_entry_is_found_at_its_place() -> None:
    shape = (3, 4, 5)
    entry = torch.arange(60)
    places, channel = places_of_entries(torch.ones(60, dtype=torch.int64), entry, shape)
    unit = WindowForms.unit(places, channel, shape, torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(unit.dense().flatten(1), torch.eye(60, dtype=torch.float64))


DENSE = by(BackwardPass(windows=False))


@pytest.mark.parametrize("norm", [2.0, inf])
@pytest.mark.parametrize("name", BODIES)
def test_bounds_by_windows_are_bounds_by_dense_forms(name: str, norm: float) -> None:
    graph = graph_of(name)
    family = pm.Ball(0.05 if norm == inf else 0.3, norm, (-1.0, 1.0)).at(points(2), mask_for(SHAPE, 16))
    found = both_sides(graph, family, Backward(), "shared")
    for ours, dense in zip(found, both_sides(graph, family, DENSE, "shared"), strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", [c for c in MODELS.values() if len(c.shape) > 1], ids=lambda case: case.name)
def test_the_small_maps_agree_too(case: Case) -> None:
    """In single precision, up to 1e-4."""
    graph = small_graph(case)
    family = pm.Ball(0.03, inf, (case.low, case.high)).at(case.inputs(2), mask_for(case.shape, 3))
    found = both_sides(graph, family, Backward(), "shared")
    for ours, dense in zip(found, both_sides(graph, family, DENSE, "shared"), strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-4, atol=1e-4 * (1 + float(dense.abs().max())))


def test_a_form_stays_a_window_until_it_has_grown_to_the_map() -> None:
    graph = graph_of("conv")
    widths: dict[tuple[int, ...], int] = {}

    def width(graph: Graph, start: str) -> int:
        node = graph[start]
        places, channel = places_of_entries(torch.tensor([0]), torch.tensor([node.size // 2]), node.shape)
        unit = WindowForms.unit(places, channel, node.shape, points(1))
        relaxations = {}
        for n in graph.nodes[1:]:
            rule = RULES[n.op]
            if isinstance(rule, Nonlinear):
                one = torch.ones(1, *graph[n.inputs[0]].shape, dtype=torch.float64)
                relaxations[n.name] = rule.relax(n, Interval(-one, one))
        forms, _ = backsubstitute(graph, start, unit, torch.zeros(1, dtype=torch.int64), relaxations)
        form = forms[graph.input.name]
        assert isinstance(form, WindowForms)
        return prod(form.size)

    for node in graph.nodes:
        if node.op == "conv":
            widths[node.shape] = width(graph, node.name)
    assert list(widths.values()) == [9, 25, 49]
