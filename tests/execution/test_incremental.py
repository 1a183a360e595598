"""The change when one group returns to x: compared with a run of the whole graph."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import proofmap as pm
from proofmap.execution.cone import changed_boxes, cone_windows, group_boxes, size_classes
from proofmap.execution.incremental import Schedule, base_elements, base_of
from proofmap.graph import Graph, trace
from proofmap.runtime import compiled_kernels
from tests.models import MODELS, Apply, Case, Constants, Inverted, Join, Residual, graph_of


@dataclass(frozen=True)
class Map:
    """A network over maps large enough for windows; most have no classifier, so that their output is a map too."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (2, 15, 13)


def conv(*args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(*args, **kwargs)


def row(*makes: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*(make() for make in makes))


def cat(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], 1)


def vgg() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 5, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 6 * 5, 7), nn.Tanh(), nn.Linear(7, 3)),
    )


MAPS: dict[str, Map] = {
    "vgg": Map(vgg, (2, 24, 20)),
    "residual with stride": Map(row(lambda: Residual(2, 4, 2), lambda: Residual(4, 4, 1)), (2, 21, 22)),
    "mobile with uneven padding": Map(
        row(lambda: nn.ZeroPad2d((0, 1, 0, 1)), conv(2, 3, 3, stride=2), nn.ReLU6, lambda: Inverted(3, 6)), (2, 22, 19)
    ),
    "branches": Map(lambda: Join(cat, row(conv(2, 3, 3, padding=1), nn.Tanh)(), nn.Conv2d(2, 2, 1))),
    "branches of a pool": Map(lambda: Join(cat, nn.MaxPool2d(3, 1, 1), nn.Conv2d(2, 2, 5, padding=2))),
    "larger of two": Map(lambda: Join(torch.maximum, nn.Conv2d(2, 2, 3, padding=1), nn.AvgPool2d(3, 1, 1))),
    "sum of unequal windows": Map(lambda: Join(torch.add, nn.Conv2d(2, 2, 5, padding=2), nn.Identity())),
    "concat along the map": Map(lambda: Join(lambda a, b: torch.cat([a, b], 2), nn.Conv2d(2, 2, 1), nn.Identity())),
    "mean": Map(lambda: nn.AvgPool2d(3, 2, 1)),
    "mean of what is there": Map(lambda: nn.AvgPool2d((3, 2), 2, 1, ceil_mode=True, count_include_pad=False)),
    "mean with ceil": Map(lambda: nn.AvgPool2d((2, 4), (2, 3), (1, 1), ceil_mode=True)),
    "mean with divisor": Map(lambda: nn.AvgPool2d(2, 2, 1, ceil_mode=True, divisor_override=3)),
    "max with ceil": Map(row(lambda: Apply(lambda x: x - 5), lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True))),
    "max with dilation": Map(row(lambda: Apply(lambda x: x - 5), lambda: nn.MaxPool2d(2, 1, 1, dilation=2))),
    "one channel": Map(row(conv(1, 4, 3, stride=(1, 2), padding=1), nn.ReLU), (1, 9, 7)),
    "dilation": Map(conv(2, 3, 3, padding=2, dilation=2)),
    "groups": Map(conv(4, 6, (3, 2), padding=(1, 0), groups=2), (4, 12, 13)),
    "gaps between windows": Map(row(conv(2, 3, 1, stride=3), nn.ReLU)),
    "stride": Map(row(conv(2, 3, 4, stride=3, padding=2), nn.ReLU)),
    "padding and cropping": Map(
        row(lambda: nn.ConstantPad2d((1, 0, 2, 0), 0.5), lambda: nn.ZeroPad2d((-2, 1, -1, -2)), conv(2, 2, 3))
    ),
    "reflection": Map(conv(2, 3, 3, padding=1, padding_mode="reflect")),
    "constants for each position": Map(lambda: Constants(lambda x, a, b: (x * a - b).relu(), (15, 13), (2, 15, 1))),
    "masked": Map(row(lambda: Apply(lambda x: x.masked_fill(torch.eye(15, 13, dtype=torch.bool), 0.5)), conv(2, 3, 3))),
    "slopes for each channel": Map(row(conv(2, 3, 2), lambda: nn.PReLU(3), conv(3, 2, 2))),
    "signal": Map(row(lambda: nn.Conv1d(2, 3, 3, 2, 1), nn.ReLU, lambda: nn.AvgPool1d(3, 2, 1, True)), (2, 31)),
    "volume": Map(row(lambda: nn.Conv3d(1, 2, 3, padding=1), lambda: nn.MaxPool3d(2)), (1, 8, 9, 10)),
    "the input itself": Map(nn.Identity),
}


@cache
def made(name: str) -> Graph:
    network = MAPS[name]
    case = Case(name, lambda: nn.Sequential(network.make(), nn.Flatten()), network.shape)
    graph = trace(case.build(torch.float64), case.inputs(1, torch.float64))
    last = graph[graph.output]
    return Graph(graph.nodes[:-1], last.inputs[0]) if last.op == "reshape" else graph


def cells(shape: tuple[int, ...]) -> Tensor:
    """Blocks of three positions a side, over all channels."""
    index = torch.zeros(shape[1:], dtype=torch.int64)
    for axis, n in enumerate(shape[1:]):
        index = index * n + (torch.arange(n) // 3).view(-1, *[1] * (len(shape) - axis - 2))
    return index.expand(shape)


def patches(shape: tuple[int, ...]) -> Tensor:
    """Irregular and of all sizes: the nearest of some points."""
    generator = torch.Generator().manual_seed(1)
    places = torch.stack(torch.meshgrid(*map(torch.arange, shape[1:]), indexing="ij"), -1).double()
    seeds = torch.rand(9, len(shape) - 1, generator=generator, dtype=torch.float64) ** 2 * torch.tensor(shape[1:])
    return (places[..., None, :] - seeds).square().sum(-1).argmin(-1).expand(shape)


def corner(shape: tuple[int, ...]) -> Tensor:
    """One position at the end, and everything else."""
    mask = torch.zeros(shape, dtype=torch.int64)
    mask.flatten(1)[:, -1] = 1
    return mask


def entries(shape: tuple[int, ...]) -> Tensor:
    """Every number for itself, in an order that has nothing to do with their places."""
    return torch.randperm(torch.Size(shape).numel(), generator=torch.Generator().manual_seed(2)).reshape(shape)


MASKS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {
    "cells": cells,
    "patches": patches,
    "corner": corner,
    "pixels": pm.groups.pixels(),
    "entries": entries,
}


def numbered(mask: Tensor) -> tuple[Tensor, int]:
    ids, mask = torch.unique(mask, return_inverse=True)
    return mask, len(ids)


def compare(graph: Graph, mask: Tensor, x: Tensor, close: float = 1e-9) -> float:
    """Every class of groups with a schedule of its own, and one for all. Returns the largest change they make."""
    largest = 0.0
    mask, groups = numbered(mask)
    points = x + 0.3 * torch.rand(2, *x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(4))
    changed = changed_boxes(graph, mask, groups)
    for ids in [torch.arange(groups), *size_classes(graph, changed)]:
        schedule = Schedule.of(graph, mask, changed, ids, x.dtype)
        base, output = base_of(graph, points.flatten(0, 1), schedule.needs)
        torch.testing.assert_close(output, graph(points.flatten(0, 1)), rtol=0, atol=close / 1000)
        change = schedule(base, points, x)
        values = output.reshape(*points.shape[:2], 1, *output.shape[1:]) + change
        largest = max(largest, float(change.abs().max()))
        restored = mask == ids.view(-1, *[1] * mask.ndim)  # (G, *shape)
        put_back = torch.where(restored, x[:, None], points[:, :, None])  # (2, n, G, *shape)
        torch.testing.assert_close(values, graph(put_back.flatten(0, 2)).view_as(values), rtol=0, atol=close)
    return largest


@pytest.mark.slow
@pytest.mark.parametrize("grouping", MASKS)
@pytest.mark.parametrize("name", MAPS)
def test_incremental_is_plain(name: str, grouping: str) -> None:
    graph = made(name)
    x = torch.rand(2, *graph.input.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert compare(graph, MASKS[grouping](graph.input.shape), x) > 1e-4  # no network that has died


@pytest.mark.parametrize("name", MAPS)
def test_incremental_is_plain_in_single_precision(name: str) -> None:
    """Other code of torch's runs there."""
    graph = made(name).to(torch.device("cpu"), torch.float32)
    x = torch.rand(2, *graph.input.shape, generator=torch.Generator().manual_seed(0))
    for grouping in ("cells", "pixels"):
        compare(graph, MASKS[grouping](graph.input.shape), x, 1e-4)


@pytest.mark.parametrize("name", [name for name, case in MODELS.items() if len(case.shape) > 1])
def test_incremental_is_plain_on_every_operation(name: str) -> None:
    case = MODELS[name]
    compare(graph_of(case, torch.float64), pm.groups.pixels()(case.shape), case.inputs(2, torch.float64))


@pytest.mark.parametrize("name", ["vgg", "mobile with uneven padding", "stride"])
def test_ends_in_one_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that a GPU compiles gives the same values without compilation."""
    monkeypatch.setattr(compiled_kernels, "pays", lambda values: True)
    monkeypatch.setattr(compiled_kernels, "compiled", lambda function, trial: function)
    graph = made(name)
    x = torch.rand(2, *graph.input.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert compare(graph, cells(graph.input.shape), x) > 1e-4


def test_vectors_are_computed_whole() -> None:
    case = MODELS["deep relu"]
    graph = graph_of(case, torch.float64)
    mask = torch.arange(12) // 2
    compare(graph, mask, case.inputs(2, torch.float64))
    assert set(cone_windows(graph, changed_boxes(graph, mask, 6), torch.arange(6))) == {graph.input.name}


def test_groups_without_variables_change_nothing() -> None:
    graph = made("vgg")
    mask, _ = numbered(cells(graph.input.shape))
    x = torch.rand(1, *graph.input.shape, dtype=torch.float64)
    points = x[None] + 0.1
    schedule = Schedule.of(graph, mask, changed_boxes(graph, mask, 100), torch.tensor([98, 99]), x.dtype)
    base, _ = base_of(graph, points[0], schedule.needs)
    assert schedule(base, points, x).count_nonzero() == 0


@pytest.mark.parametrize("grouping", ["cells", "patches"])
@pytest.mark.parametrize("name", ["vgg", "residual with stride", "mobile with uneven padding", "branches", "dilation"])
def test_boxes_hold_what_changes_and_no_more(name: str, grouping: str) -> None:
    """After the first convolution, with random weights, all that a group can reach does change."""
    graph = made(name)
    mask, groups = numbered(MASKS[grouping](graph.input.shape))
    x = torch.rand(1, *graph.input.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    changed = changed_boxes(graph, mask, groups)
    first = next(node for node in graph.nodes if node.op == "conv")
    part = Graph(graph.nodes[: graph.nodes.index(first) + 1], first.name)
    for u in range(groups):
        moved = (part(torch.where(mask == u, x + 1, x)) - part(x))[0].abs().amax(0) > 1e-12
        where = moved.nonzero()
        ends = [end[u] for end in changed[first.name]]
        assert torch.equal(where.amin(0), ends[0])
        assert torch.equal(where.amax(0), ends[1])


def test_boxes_of_groups() -> None:
    low, high = group_boxes(torch.tensor([[[0, 0, 1], [2, 0, 1]], [[0, 0, 1], [2, 0, 4]]]), 5)
    assert low.tolist() == [[0, 0], [0, 2], [1, 0], [0, 0], [1, 2]]
    assert high.tolist() == [[1, 1], [1, 2], [1, 0], [0, 0], [1, 2]]


def test_windows_lie_inside_and_hold_their_boxes() -> None:
    for network in MAPS:
        graph = made(network)
        for make in MASKS.values():
            mask, groups = numbered(make(graph.input.shape))
            changed = changed_boxes(graph, mask, groups)
            classes = size_classes(graph, changed)
            assert torch.equal(torch.cat(classes).sort().values, torch.arange(groups))
            for ids in classes:
                for name, window in cone_windows(graph, changed, ids).items():
                    low, high = (end[ids] for end in changed[name])
                    size, side = torch.tensor(window.size), torch.tensor(graph[name].shape[1:])
                    assert bool((window.corner >= 0).all())
                    assert bool((window.corner + size <= side).all())
                    assert bool((window.corner <= low).all())
                    assert bool((window.corner + size > high).all())


def test_fewer_operations_than_plain() -> None:
    """On a small VGG, counted: a cell of 3 x 3 changes little of the first layers."""
    graph = made("vgg")
    mask, groups = numbered(cells(graph.input.shape))
    x = torch.rand(1, *graph.input.shape, dtype=torch.float64)
    points = x[None] + 0.1
    schedule = Schedule.of(graph, mask, changed_boxes(graph, mask, groups), torch.arange(groups), x.dtype)
    with FlopCounterMode(display=False) as whole:
        base, _ = base_of(graph, points[0], schedule.needs)
    with FlopCounterMode(display=False) as part:
        schedule(base, points, x)
    assert 0 < 3 * part.get_total_flops() < groups * whole.get_total_flops()


def test_what_is_kept_is_counted() -> None:
    """No tensor of a run is larger than what a schedule says that it occupies."""
    graph = made("vgg")
    mask, groups = numbered(cells(graph.input.shape))
    schedule = Schedule.of(graph, mask, changed_boxes(graph, mask, groups), torch.arange(groups), torch.float64)
    base, _ = base_of(graph, torch.zeros(1, *graph.input.shape, dtype=torch.float64), schedule.needs)
    assert sum(rows.numel() for rows in base.values()) <= base_elements(graph, schedule.needs)
    assert graph.input.shape[0] * 9 < schedule.elements < sum(node.size for node in graph.nodes)
