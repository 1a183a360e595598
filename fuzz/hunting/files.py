"""Random ONNX files from a seed, each loaded and compared with what onnxruntime makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

from fuzz.hunting.draw import DEAD, Draw, Undrawn
from fuzz.hunting.finding import Found, Tally, misjudged, raw, reason
from fuzz.hunting.onnx_layers import LAYERS
from fuzz.hunting.onnx_norms import NORMS
from fuzz.hunting.onnx_scalars import SCALARS, Make
from fuzz.hunting.onnx_shapes import SHAPES
from fuzz.hunting.onnx_sketch import File, run
from fuzz.hunting.points import values_of
from fuzz.hunting.rounding import at_points, floor_of, units
from proofmap.errors import ModelError, ProofmapError
from proofmap.graph import Graph, bounded, load
from proofmap.graph.onnx.operators.ml_domain import ML_OPERATORS
from proofmap.graph.onnx.operators.operator_table import CONVERTERS
from proofmap.graph.onnx.operators.recurrent import RECURRENT
from tests.graph.onnx.files import Array

MAKERS: dict[str, Make] = {**SCALARS, **LAYERS, **SHAPES, **NORMS}
# What no file here has: values whose samples stand second, another domain, a name that no schema has
_ELSEWHERE = {*RECURRENT, *ML_OPERATORS, "SimplifiedLayerNormalization"}
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24)
_REFUSED = {"Softmax", "LogSoftmax", "Shape", "Size"}  # nearly always: drawn in their turn, not beside others
_SLACK = 16  # onnxruntime's functions are off by more than torch's


def uncovered() -> set[str]:
    """The operators of the reader's table that no file here ever has."""
    return set(CONVERTERS) - set(MAKERS) - _ELSEWHERE


def turns() -> list[str]:
    """The operators that the hunt can make, one for each file in turn: also those that a reader has to refuse."""
    return sorted(MAKERS)


def drawn(seed: int) -> File:
    """The file of a seed; the same one at every call."""
    draw = Draw("file", seed)
    turn = turns()[seed % len(turns())]
    forms = _forms(turn)
    for _ in range(10 * DEAD):
        file = _empty(draw, draw.pick(draw.pick(forms)))
        try:
            for _ in range(draw.whole(0, 2)):
                _step(file)
            with file.attempt():
                MAKERS[turn](file, turn, file.last)
            for _ in range(draw.whole(0, 3)):
                _step(file)
        except Undrawn:
            continue
        return file
    raise Undrawn(f"no file with {turn} was found")


def _forms(op: str) -> list[list[int]]:
    """The opsets that have the operator, those of one form of it together: each form is as likely as the others."""
    forms: dict[int, list[int]] = {}
    for opset in OPSETS:
        if onnx.defs.has(op, max_inclusive_version=opset):
            forms.setdefault(onnx.defs.get_schema(op, max_inclusive_version=opset).since_version, []).append(opset)
    return list(forms.values())


def _empty(draw: Draw, opset: int) -> File:
    kind = draw.whole(0, 3)
    shape = (draw.whole(1, 6),) if kind == 0 else (draw.whole(1, 4), *draw.wholes(kind, 1, 7 - kind))
    batch: int | str = draw.whole(1, 2) if draw.chance(0.5) else "n"
    dtype = np.float64 if draw.chance(0.15) else np.float32
    count = batch if isinstance(batch, int) else 3
    return File(draw, opset, draw.tensor(count, *shape).numpy().astype(dtype), batch)


def _step(file: File) -> None:
    draw = file.draw
    for _ in range(DEAD):
        table: dict[str, Make] = draw.pick([SCALARS, SCALARS, LAYERS, SHAPES, NORMS])
        op = draw.pick(sorted((set(table) & set(CONVERTERS)) - _REFUSED))
        try:
            with file.attempt():
                table[op](file, op, file.last)
            return
        except Undrawn:
            continue


def graph_of(file: File, folder: Path, tally: Tally) -> Graph | None:
    """The graph that is loaded, compared with onnxruntime on several batches; None where it is rightly refused."""
    model = file.model()
    tally.files += 1
    tally.operations.update(node.op_type for node in file.nodes)
    expected = dict(_expected(file, model))
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        graph = load(path)
    except ProofmapError as error:
        if "read the file wrongly" in str(error):
            raise Found("misread", str(error)) from error
        tally.refused[reason(error)] += 1
        if expected and misjudged(error):
            raise Found("wrong refusal", f"onnxruntime runs the file, but: {error}".replace(str(path), "it")) from error
        return None
    except Exception as error:
        raise raw("load", error) from error
    for count, (x, y) in expected.items():
        _same(graph, model, x, y, count, tally)
    if not expected:
        _still_ours(graph, file)
    try:
        return bounded(graph)
    except ProofmapError as error:
        tally.refused[reason(error)] += 1
        return None


def _expected(file: File, model: onnx.ModelProto) -> Iterator[tuple[int, tuple[Array, Array]]]:
    """(x, y) for several numbers of samples, or for the one that the file fixes; none where onnxruntime refuses it."""
    for count in [1, 2, 5] if file.batch == "n" else [len(file["x"])]:
        x = file.draw.tensor(count, *file.shape("x")).numpy().astype(file.dtype)
        x[: len(file["x"])] = file["x"][:count]
        try:
            yield count, (x, run(model, {"x": x})[0])
        except Exception:  # a file for some batches only, or a damaged one
            continue


def _same(graph: Graph, model: onnx.ModelProto, x: Array, y: Array, count: int, tally: Tally) -> None:
    if not np.isfinite(y).all():
        return
    try:
        got = graph.as_model(graph(torch.from_numpy(x))).numpy()
        values = values_of(graph, torch.from_numpy(x)[None])
    except Exception as error:
        raise raw(f"the loaded graph, on a batch of {count},", error) from error
    if not all(bool(value.isfinite().all()) for value in values.values()):
        return  # the logarithm of a negative number, behind a function that hides it
    single = torch.float32  # in which files keep their attributes, whatever they compute in
    size = at_points(graph, values).flatten(1)
    if graph.taken_off is not None:  # a softmax mixes the logits
        size = 1 + size.amax(1, keepdim=True).expand(got.shape)
    slack = (_SLACK * units(single) * size + floor_of(single)).numpy().reshape(got.shape)
    tally.points += count
    if _agree(got, y, slack) and len(y) == count:
        return
    reference = _reference(model, x)
    if reference is not None and _agree(got, reference, slack):
        tally.refused["(onnxruntime does not do what onnx says; Proofmap does)"] += 1
        return
    told = (
        "has no answer"
        if reference is None
        else "agrees with onnxruntime"
        if _agree(reference, y, slack)
        else "neither"
    )
    off = np.abs(got.astype(np.float64) - y.reshape(got.shape)).max() if y.size == got.size else np.inf
    raise Found(
        "misread",
        f"on a batch of {count} onnxruntime gives {y.shape}, the loaded graph {got.shape}, {off:.3g} apart; onnx's own "
        f"reference: {told}",
    )


def _agree(got: Array, expected: Array, slack: Array) -> bool:
    if got.size != expected.size:
        return False
    return bool((np.abs(got.astype(np.float64) - expected.reshape(got.shape)) <= slack.reshape(got.shape)).all())


def _reference(model: onnx.ModelProto, x: Array) -> Array | None:
    """What onnx's own implementation says, where it has one."""
    try:
        with np.errstate(all="ignore"):
            results: Any = ReferenceEvaluator(model).run(None, {"x": x})
    except Exception:  # it lacks operators, and has mistakes of its own
        return None
    return np.asarray(results[0])


def _still_ours(graph: Graph, file: File) -> None:
    """A file that onnxruntime refuses may be loaded, but not break afterwards."""
    try:
        graph(torch.from_numpy(file["x"]))
    except ModelError:
        return
    except Exception as error:
        raise raw("a graph loaded from a file that onnxruntime refuses", error) from error
