"""A small share of the hunt, the same at every run, and tests that it finds deliberate errors."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from fuzz.hunting import files, networks
from fuzz.hunting.finding import Finding, Tally
from fuzz.hunting.hunt import hunt
from fuzz.hunting.pieces import largest, straight
from fuzz.hunting.tiny import CURVED, searchable_operations, tiny
from proofmap import Ball
from proofmap.bounds import Exact
from proofmap.graph import trace
from proofmap.graph.builder import pooling, scalar_functions, weighted_layers
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.ir import Node
from proofmap.graph.onnx.operators import operator_table as onnx_ops
from proofmap.graph.sliding_windows import SlidingWindow
from proofmap.graph.torch.operators import operator_table as aten
from proofmap.rules import Interval, Linear
from proofmap.rules.piecewise import ReLU
from proofmap.rules.s_shaped import Tanh
from proofmap.rules.scalar_lines import Lines
from proofmap.verify.overlap import Overlap
from tests.bounds.exact import exact_maximum


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about slow convolutions, numpy about overflow
        yield


def hunted(seeds: Sequence[int], folder: Path, only: str) -> tuple[list[Finding], Tally]:
    tally = Tally()
    return [finding for seed in seeds for finding in hunt(seed, tally, folder, only)], tally


def test_every_operation_of_the_tables_is_drawn() -> None:
    """A new operation needs a way to be drawn, under fuzz/hunting."""
    assert networks.uncovered() == set()
    assert files.uncovered() == set()


def test_each_network_contains_the_next_operation() -> None:
    for seed, op in enumerate(networks.turns()):
        assert op in networks.drawn(seed).network.operations(), op
    for seed, op in enumerate(files.turns()):
        assert op in [node.op_type for node in files.drawn(seed).nodes], op


def test_earlier_findings_stay_fixed(tmp_path: Path) -> None:
    """Seed 75240: a member's values are five times as large as the ball's, and so are its rounding errors."""
    findings, _ = hunted([75240], tmp_path, "exact")
    assert not findings


def test_a_seed_draws_the_same_again() -> None:
    one, two = networks.drawn(40), networks.drawn(40)
    assert one.network.described() == two.network.described()
    assert one.described == two.described
    assert torch.equal(one.x, two.x)
    first, second = files.drawn(40), files.drawn(40)
    assert first.model().SerializeToString() == second.model().SerializeToString()


# --- a share of the hunt ---

NETWORKS = (*range(307, 310), *range(313, 316))  # 312 alone takes almost as long as all of these
TINY = (384, 316, 341, 345, 320, 350)  # with other methods; half balls, ℓ1, ℓ2, a curve; parts with linear programs
FILES = range(300, 304)


@pytest.mark.slow
def test_no_bound_is_violated(tmp_path: Path) -> None:
    found, tally = hunted(NETWORKS, tmp_path, "bounds")
    assert not found, "\n".join(map(str, found))
    assert tally.networks == len(NETWORKS)
    assert min(tally.balls, tally.points, tally.hidden, tally.lines, tally.bounds) > 0
    assert tally.rounding < 0.5  # rounding uses a small part of the tolerance; an error would use more


def test_both_bounds_of_a_search_hold(tmp_path: Path) -> None:
    found, tally = hunted(TINY, tmp_path, "exact")
    assert not found, "\n".join(map(str, found))
    assert tally.networks == len(TINY)
    assert min(tally.balls, tally.points, tally.bounds, tally.closed, tally.searches, tally.programs) > 0
    assert tally.enumerated == tally.equal > 0
    assert tally.split >= 4
    assert tally.parts > tally.splits > 8
    assert tally.rounding < 0.5


def test_every_kind_of_ball_and_neuron_is_searched() -> None:
    drawn = [tiny(seed) for seed in (*range(1, 101), *range(0, 40 * len(CURVED), 40))]
    assert {node.op for one in drawn for node in one.graph.nodes} >= {*searchable_operations(), "conv", "add"}
    balls = [one.ball for one in drawn]
    assert {ball.norm for ball in balls} == {1.0, 2.0, inf}
    assert {ball.half for ball in balls} == {None, "+", "-"}
    assert {(ball.relative, ball.domain is None) for ball in balls} == {(True, False), (False, False), (False, True)}
    assert {one.rival is None for one in drawn} == {True, False}
    assert any(bool((one.target != one.graph(one.x).argmax(1)).any()) for one in drawn)


def test_the_enumerated_truth_equals_that_of_relu_patterns() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    x = torch.rand(1, 3, dtype=torch.float64)
    single = Ball(0.5).at(x)
    dense = [(one.weight.detach().numpy(), one.bias.detach().numpy()) for one in model if isinstance(one, nn.Linear)]
    row = np.array([1.0, -1.0])
    low, high = (end[0].numpy() for end in single.box())
    truth, _ = exact_maximum(dense, row, low, high)
    assert largest(trace(model, x), single, row[None], -inf) == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("norm", [1.0, inf])
def test_the_enumerated_truth_agrees_with_a_fine_grid(norm: float) -> None:
    """All kinds of pieces, for two variables."""
    b = Builder((1, 1, 2), 1)
    torch.manual_seed(1)
    wide = weighted_layers.conv(b, "c", b.input, torch.randn(3, 1, 1, 1), torch.randn(3), SlidingWindow.of((1, 1)))
    x = pooling.max_pool(b, "p", b.add("s", wide, b.add_node("a", "abs", [wide])), SlidingWindow.of((1, 2), (1, 1)))
    x = b.reshape("f", x, (3,))
    other = scalar_functions.leaky_relu(b, "l", b.affine("n", x, torch.randn(3), None), torch.tensor(0.3))
    x = scalar_functions.maximum(b, "m", x, other)
    x = scalar_functions.clamp(b, "k", x, -0.5, 0.8)
    graph = b.finish(
        weighted_layers.linear(b, "o", x, torch.randn(2, 3), torch.randn(2)), torch.device("cpu"), torch.float64
    )
    assert straight(graph)
    single = Ball(0.7, norm).at(torch.full((1, 1, 1, 2), 0.1, dtype=torch.float64))
    truth = largest(graph, single, np.array([[1.0, -1.0]]), -inf)
    line = torch.linspace(-0.7, 0.7, 401, dtype=torch.float64)
    deltas = torch.cartesian_prod(line, line).reshape(-1, 1, 1, 1, 2)
    logits = graph((single.x + deltas[single.contains(deltas, 1e-9)[:, 0]]).flatten(0, 1))
    seen = float((logits[:, 0] - logits[:, 1]).max())
    assert seen <= truth + 1e-9
    assert seen >= truth - 0.02


def test_no_file_is_read_wrongly(tmp_path: Path) -> None:
    found, tally = hunted(FILES, tmp_path, "onnx")
    assert not found, "\n".join(map(str, found))
    assert tally.files > 3 * len(FILES)  # some draws fail


# --- deliberate errors are found ---


def seen(op: str, folder: Path, words: str, first: int = 0) -> bool:
    """Return whether a finding with these words comes from a network or file with the operation in turn.

    first: the first of four turns to try.
    """
    torch_turn = op in networks.turns()
    turns = networks.turns() if torch_turn else files.turns()
    places = [turns.index(op) + len(turns) * k for k in range(first, 4)]
    seeds, only = (places, "bounds") if torch_turn else ([place // 4 for place in places], "onnx")
    found = (finding for seed in seeds for finding in hunt(seed, Tally(), folder, only))
    return any(words in f"{finding.kind}: {finding.what}" for finding in found)


def test_a_line_moved_by_a_thousandth_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ReLU.lines

    def moved(self: ReLU, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        lines = whole(self, node, x, slopes)
        return replace(lines, upper_bias=lines.upper_bias - 1e-3)

    monkeypatch.setattr(ReLU, "lines", moved)
    assert seen("aten.relu.default", tmp_path, "unsound: lines through")


def test_a_slightly_too_small_hidden_interval_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Tanh.interval

    def smaller(self: Tanh, node: Node, *inputs: Interval) -> Interval:
        found = whole(self, node, *inputs)
        return Interval(found.lower, found.upper - 1e-6)

    monkeypatch.setattr(Tanh, "interval", smaller)
    assert seen("aten.tanh.default", tmp_path, "unsound: a hidden value", first=1)


def test_a_lost_sign_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that uses L instead of |L|: the effect of a negative divisor of a pool, in every layer."""
    monkeypatch.setattr(Linear, "magnitude", Linear.apply)
    assert seen("aten.linear.default", tmp_path, "wrong way round")


def test_a_wrongly_read_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(aten.CONVERTERS, "aten.erf.default", aten.CONVERTERS["aten.tanh.default"])
    assert seen("aten.erf.default", tmp_path, "misread")


def test_a_wrongly_read_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(onnx_ops.CONVERTERS, "Neg", onnx_ops.CONVERTERS["Relu"])
    assert seen("Neg", tmp_path, "misread")


def test_an_unexpected_error_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Lines:
        raise KeyError("slope")

    monkeypatch.setattr(ReLU, "lines", broken)
    assert seen("aten.relu.default", tmp_path, "raw error: a method of bounding raised KeyError: 'slope'")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"full": -1e-3}, "unsound: an input reaches an overlap of"),
        ({"full": 100.0}, "looser than backward bounds"),
        (
            {"full": 1e-4, "full_lower": 1e-4},
            "unsound: exact: the lower side is above the overlap at its point, 0.0001",
        ),
        ({"frozen": 1e-4, "frozen_lower": 1e-4}, "unsound: exact: the lower side is above the overlap at its point,"),
        ({"points": 1e-9}, "unsound: exact: a point of a lower side moves a frozen variable"),
        ({"points": 10.0}, "points of lower sides are outside their balls"),
        ({"full": 2e-3}, "unsound: exact: sides that were closed are apart"),
    ],
)
def test_a_changed_bound_of_a_search_is_found(
    change: dict[str, float], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pm.overlap

    def moved(*args: Any, **settings: Any) -> Overlap:
        over = whole(*args, **settings, rigorous=False)  # rigorous bounds have a margin of their own
        exact = isinstance(settings["bounds"], Exact)
        return replace(over, **{name: getattr(over, name) + by for name, by in change.items()}) if exact else over

    monkeypatch.setattr(pm, "overlap", moved)
    found, _ = hunted(TINY[:2], tmp_path, "exact")
    assert any(words in f"{finding.kind}: {finding.what}" for finding in found)
