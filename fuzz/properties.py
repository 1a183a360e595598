"""Random properties of tiny networks: each answer is compared with HiGHS, which enumerates all activation patterns.

    python -m fuzz.properties --count 10000 --seed 0
    python -m fuzz.properties --count 10000 --share 2/4    # every fourth seed, from the second

A network has two or three inputs and four ReLUs. Its property has one to three cases of one to three rows, close to the
boundary. Each seed is decided three times: as `decide` does it, by splits of inputs alone, and by those of units alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import nn

import proofmap as pm
from proofmap.verify import property as properties
from proofmap.verify import property_search
from proofmap.verify.property import PropertyAnswer, Region, Unsafe, decide

Array = NDArray[np.float64]
HIDDEN, OUTPUTS = 4, 3
WAYS = ("all", "boxes", "units")
_SECONDS = 20.0  # limit of a property
_TOLERANCE = 1e-6  # error of HiGHS, and of a margin
_CLOSE = 1e-3  # closer to the boundary than this, a property may stay unknown


def network(seed: int, inputs: int = 2) -> nn.Sequential:
    """Return a network with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTPUTS))


def deepest(net: nn.Sequential, region: Region, case: Unsafe) -> float:
    """Return the exact maximum over the box of the smallest -(a·y + b): at least 0 if the case can be met.

    Where the pattern of the hidden layer is fixed the network is affine, and this is a linear program in (x, t).
    """
    first, last = net[0], net[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    w, b, v, c = (p.detach().double().numpy() for p in (first.weight, first.bias, last.weight, last.bias))
    best = -np.inf
    for pattern in product([0.0, 1.0], repeat=HIDDEN):
        on = np.array(pattern)
        sign = 1 - 2 * on  # on: -(w x + b) <= 0; off: w x + b <= 0
        outputs, constant = v @ (on[:, None] * w), v @ (on * b) + c
        rows, bias = case.weight.numpy(), case.bias.numpy()
        above = np.concatenate([np.c_[sign[:, None] * w, np.zeros(HIDDEN)], np.c_[rows @ outputs, np.ones(len(rows))]])
        limits = np.concatenate([-sign * b, -(rows @ constant + bias)])
        ends = [*zip(region.lower.tolist(), region.upper.tolist(), strict=True), (None, 1e3)]
        answer = linprog([0.0] * w.shape[1] + [-1.0], A_ub=above, b_ub=limits, bounds=ends)
        if answer.status == 0:
            best = max(best, -float(answer.fun))
    return best


def near_boundary(net: nn.Sequential, seed: int) -> Region:
    """Draw a box, and cases whose rows are met or nearly met by the outputs at one of its points."""
    draw = np.random.default_rng(seed)
    first = net[0]
    assert isinstance(first, nn.Linear)
    inputs = first.in_features
    middle, radius = draw.uniform(-1, 1, inputs), draw.uniform(0.05, 0.8, inputs)
    lower, upper = torch.from_numpy(middle - radius), torch.from_numpy(middle + radius)
    cases = []
    for _ in range(int(draw.integers(1, 4))):
        point = lower + (upper - lower) * torch.from_numpy(draw.uniform(0, 1, inputs))
        with torch.no_grad():
            outputs = net.double()(point[None])[0]
        rows = int(draw.integers(1, 4))
        weight = torch.from_numpy(draw.integers(-2, 3, (rows, OUTPUTS)).astype(float))
        bias = -(weight @ outputs) + torch.from_numpy(draw.uniform(-0.1, 0.4, rows))
        cases.append(Unsafe(weight, bias, torch.zeros(rows, dtype=torch.bool)))
    net.float()
    return Region(lower, upper, tuple(cases))


def answered(net: nn.Sequential, region: Region, way: str, seconds: float = _SECONDS) -> PropertyAnswer:
    """Decide a property; by boxes or units alone, there is no attack before the search."""
    graph = pm.trace(net, region.lower.float()[None])
    with ExitStack() as stack:

        def put(module: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(module, name, value))

        if way != "all":
            put(properties, "attack_cases", lambda *_: None)
        if way == "units":
            put(property_search, "_MAX_MOVING_INPUTS", 0)
        if way == "boxes":
            put(property_search, "_TRIAL_SHARE", 1.0)
            put(property_search, "_TRIAL_SECONDS", 1e9)
        return decide(graph, [region], bounds=pm.bounds.Exact(seconds=seconds))


def wrong(net: nn.Sequential, region: Region, answer: PropertyAnswer, depth: float) -> str | None:
    """Return what is wrong with an answer, given the exact depth of the deepest case; None if nothing is."""
    if answer.verdict == "holds":
        if depth > _TOLERANCE:
            return f"holds, but a case is met by {depth:.3g}"
        return f"margin {answer.margin:.3g} above {-depth:.3g}" if answer.margin > -depth + _TOLERANCE else None
    if answer.verdict == "violated":
        assert answer.point is not None
        inside = bool(((answer.point >= region.lower) & (answer.point <= region.upper)).all())
        with torch.no_grad():
            outputs = net.double()(answer.point[None])[0]
        net.float()
        met = any(bool((case.weight @ outputs + case.bias <= 1e-12).all()) for case in region.unsafe)
        return (
            None if inside and met and depth >= -_TOLERANCE else f"violated at a point that is none, depth {depth:.3g}"
        )
    return None if abs(depth) < _CLOSE else f"unknown, depth {depth:.3g}"


def findings(seed: int, verdicts: Counter[str]) -> Iterator[str]:
    """Yield what is wrong with the answers for one seed."""
    net = network(seed, 2 + seed % 2)
    region = near_boundary(net, seed)
    depth = max(deepest(net, region, case) for case in region.unsafe)
    for way in WAYS:
        answer = answered(net, region, way)
        verdicts[f"{way}: {answer.verdict}"] += 1
        if (what := wrong(net, region, answer, depth)) is not None:
            yield f"seed {seed}, {way}: {what}"


def main() -> None:
    """Try the seeds of the command line; fail if one has a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", default="1/1")
    given = parser.parse_args()
    number, of = map(int, given.share.split("/"))
    verdicts: Counter[str] = Counter()
    found = [
        what
        for seed in range(given.seed + number - 1, given.seed + given.count, of)
        for what in findings(seed, verdicts)
    ]
    print(*found, dict(sorted(verdicts.items())), sep="\n")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
