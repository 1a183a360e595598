"""The hunt: random networks and ONNX files from consecutive seeds, each checked for wrong bounds and wrong readings."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import torch

from fuzz.hunting.bounds import precisions_agree, tried
from fuzz.hunting.draw import Draw, Undrawn
from fuzz.hunting.finding import Finding, Found, Tally, calls_model_damaged, raw_error, refusal_reason
from fuzz.hunting.hostile import hunted
from fuzz.hunting.networks import Drawn, drawn
from fuzz.hunting.points import values_of
from fuzz.hunting.rounding import at_points, floor_of, units
from fuzz.hunting.searches import searches
from fuzz.hunting.sets import sets
from proofmap import Ball
from proofmap.errors import ModelError, ProofmapError
from proofmap.graph import Graph, bounded, trace

# Phrases in the error of a reader that has read a module wrongly: these networks draw no numbers and keep no state.
_READING_ERROR_PHRASES = ("read it wrongly", "draw random numbers", "look at the batch")

FILES_PER_SEED = 4


def hunt(seed: int, tally: Tally, folder: Path, only: str | None = None) -> Iterator[Finding]:
    """Yield the findings about the networks and the files of a seed, each once. `only` names one of the five parts."""
    parts = {
        "bounds": [bounds(seed, tally)],
        "exact": [searches(seed, tally)],
        "hostile": [hunted(seed, tally)],
        "sets": [sets(seed, tally)],
        "onnx": [onnx(seed, place, tally, folder) for place in range(FILES_PER_SEED)],
    }
    for part in parts[only] if only else [one for several in parts.values() for one in several]:
        seen: set[str] = set()
        for finding in part:
            if finding.sort not in seen:
                seen.add(finding.sort)
                yield finding


def onnx(seed: int, place: int, tally: Tally, folder: Path) -> Iterator[Finding]:
    """Yield the findings about how a file is read and, for one file of ten, about the bounds of its graph."""
    from fuzz.hunting import files  # the other parts need no onnx

    try:
        file = files.drawn(seed * FILES_PER_SEED + place)
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
    """Yield the findings about the network of a seed."""
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
        tally.refused[refusal_reason(error)] += 1
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
    except ProofmapError:  # float32 cannot represent a ball of subnormal numbers
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
    """Return the graph of the network after comparing both on several numbers of samples."""
    model, x = network.network, network.x
    try:
        graph = trace(model, x)
    except ModelError as error:
        if any(words in str(error) for words in _READING_ERROR_PHRASES):
            raise Found("misread", str(error)) from error
        if calls_model_damaged(error):
            raise Found("wrong refusal", f"the module runs, but: {error}") from error
        raise
    except ProofmapError:
        raise
    except Exception as error:
        raise raw_error("trace", error) from error
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
