"""The hunt: network after network, file after file, from one seed on."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import torch

from fuzz.hunting.bounds import precisions_agree, tried
from fuzz.hunting.draw import Draw, Undrawn
from fuzz.hunting.finding import Finding, Found, Tally, misjudged, raw, reason
from fuzz.hunting.hostile import hunted
from fuzz.hunting.networks import Drawn, drawn
from fuzz.hunting.points import values_of
from fuzz.hunting.rounding import at_points, floor_of, units
from fuzz.hunting.searches import searches
from proofmap import Ball
from proofmap.errors import ModelError, ProofmapError
from proofmap.graph import Graph, bounded, trace

# What a reader says of a module that it took wrongly itself: these networks draw no numbers and keep no state.
_OWN_FAULT = ("read it wrongly", "draw random numbers", "look at the batch")


FILES = 4  # of one seed


def hunt(seed: int, tally: Tally, folder: Path, only: str | None = None) -> Iterator[Finding]:
    """Everything that is wrong with the networks and the files of a seed, once; `only` names one kind."""
    parts = {
        "bounds": [bounds(seed, tally)],
        "exact": [searches(seed, tally)],
        "hostile": [hunted(seed, tally)],
        "onnx": [onnx(seed, place, tally, folder) for place in range(FILES)],
    }
    for part in parts[only] if only else [one for several in parts.values() for one in several]:
        seen: set[str] = set()
        for finding in part:
            if finding.sort not in seen:
                seen.add(finding.sort)
                yield finding


def onnx(seed: int, place: int, tally: Tally, folder: Path) -> Iterator[Finding]:
    """Everything that is wrong with how a file is read, and now and then with the bounds of what was read."""
    from fuzz.hunting import files  # the other parts of the hunt need no onnx

    try:
        file = files.drawn(seed * FILES + place)
    except Undrawn:
        tally.refused["no file was found for the operator in turn"] += 1
        return
    described = (f"x {file['x'].shape} {file.dtype}, samples: {file.batch}, opset {file.opset}", *file.described())
    try:
        graph = files.graph_of(file, folder, tally)
    except Found as finding:
        yield Finding(seed, finding.kind, finding.what, described)
        return
    draw = Draw("file's trial", seed, place)
    if graph is not None and graph.classes > 1 and draw.chance(0.1):
        x = torch.from_numpy(file["x"]).to(graph.dtype)
        family = Ball(draw.pick([0.01, 0.1]), draw.pick([1.0, 2.0, inf])).at(x, draw.ids(graph.input.shape, 3))
        tally.networks += 1
        for one in tried(graph, family, draw, tally):
            yield Finding(seed, one.kind, one.what, described)


def bounds(seed: int, tally: Tally) -> Iterator[Finding]:
    """Everything that is wrong with the network of a seed."""
    try:
        network = drawn(seed)
    except Undrawn:
        tally.refused["no network was found for the operation in turn"] += 1
        return
    tally.networks += 1
    tally.operations.update(network.network.operations())
    described = (network.described, *network.network.described())
    for finding in _findings(network, Draw("trial", seed), tally):
        yield Finding(seed, finding.kind, finding.what, described)


def _findings(network: Drawn, draw: Draw, tally: Tally) -> Iterator[Found]:
    try:
        graph = _read(network)
    except Found as finding:
        yield finding
        return
    except ProofmapError as error:
        tally.refused[reason(error)] += 1
        return
    wide = network.family(torch.float64)
    yield from tried(graph, wide, draw, tally)
    if draw.chance(0.4):
        yield from _in_single_precision(graph, network, draw, tally)


def _in_single_precision(graph: Graph, network: Drawn, draw: Draw, tally: Tally) -> Iterator[Found]:
    single = graph.to(torch.device("cpu"), torch.float32)
    try:
        narrow = network.family(torch.float32)
        finite = bool(single(narrow.x).isfinite().all())
    except ProofmapError:  # a ball of subnormal numbers is none in single precision
        return
    if finite:
        yield from tried(single, narrow, draw, tally)
        try:
            precisions_agree(graph, network.family(torch.float64), narrow)
        except Found as finding:
            yield finding
        except ProofmapError:
            return


def _read(network: Drawn) -> Graph:
    """The graph of the network, which computes what the network does, for any number of samples."""
    model, x = network.network, network.x
    try:
        graph = trace(model, x)
    except ModelError as error:
        if any(words in str(error) for words in _OWN_FAULT):
            raise Found("misread", str(error)) from error
        if misjudged(error):
            raise Found("wrong refusal", f"the module runs, but: {error}") from error
        raise
    except ProofmapError:
        raise
    except Exception as error:
        raise raw("trace", error) from error
    for count in (1, len(x), 5):
        points = x.repeat(5, *(1,) * (x.ndim - 1))[:count]
        with torch.no_grad():
            expected = model(points)
        values = values_of(graph, points[None])
        size = at_points(graph, values)
        off = (values[graph.output][0] - expected).abs()
        if bool((off > units(torch.float64) * size + floor_of(torch.float64)).any()):
            raise Found("misread", f"the graph is {float(off.max()):.3g} from the module on a batch of {count}")
    return bounded(graph)
