"""Networks with few inputs, searched by splitting units only, and by splitting input boxes as well."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING
from unittest import mock

import torch
from torch import Tensor

import proofmap as pm

if TYPE_CHECKING:
    from benchmarks import measuring
    from benchmarks.lines import Line, average, by
else:
    import measuring  # a script imports from its own folder
    from lines import Line, average, by


def inputs(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """Bound AO(B) and five B_u, one variable each, for a network and an input of every index."""
    exact = import_module("proofmap.search.exact")
    for key in keys:
        model, x = _network(key["index"])
        ball, bounds = pm.Ball(key["eps"], domain=(-1.0, 1.0)), pm.bounds.Exact(key["gap"], key["seconds"])
        few = 0 if key["way"] == "units" else exact._MAX_BOX_VARIABLES
        ask = partial(pm.overlap, model, x, ball, groups=torch.arange(5), bounds=bounds)
        with mock.patch.object(exact, "_MAX_BOX_VARIABLES", few), measuring.parts() as parts:
            over, spent = measuring.clocked(ask, "cpu")
        widest = float(torch.maximum(over.full - over.full_lower, (over.frozen - over.frozen_lower).amax(1)))
        sides = {"lower": float(over.full_lower), "upper": float(over.full), "widest": widest}
        yield {**key, **sides, "parts": sum(parts), "spent": spent}


def show(lines: Sequence[Line]) -> list[Line]:
    """Return a row for each radius and kind of search."""
    return [
        {
            **settings,
            "networks": len(some),
            "all closed": average(line["widest"] <= line["gap"] for line in some),
            "widest, median": median(line["widest"] for line in some),
            "parts": average(line["parts"] for line in some),
            "s/network": average(line["spent"] for line in some),
        }
        for settings, some in by(lines, "eps", "seconds", "way")
    ]


@cache
def _network(seed: int) -> tuple[torch.nn.Module, Tensor]:
    """Return a network of the shape of ACAS Xu's that has learned which of five waves is the highest, and an input."""
    sizes, draw = (5, *[50] * 6, 5), torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [part for pair in pairwise(sizes) for part in (torch.nn.Linear(*pair), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers[:-1])
    waves, phases = 2 * torch.randn(5, 5, generator=draw), 6 * torch.rand(5, generator=draw)
    steps = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2000):
        x = 2 * torch.rand(256, 5, generator=draw) - 1
        loss = torch.nn.functional.cross_entropy(model(x), torch.sin(x @ waves + phases).argmax(1))
        steps.zero_grad()
        loss.backward()
        steps.step()
    return model, 2 * torch.rand(1, 5, generator=draw) - 1
