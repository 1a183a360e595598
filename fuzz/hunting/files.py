"""Random ONNX files from a seed; each is loaded, and its graph is compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

from fuzz.hunting.draw import DEAD, Draw, Undrawn
from fuzz.hunting.finding import Found, Tally, calls_model_damaged, raw_error, refusal_reason
from fuzz.hunting.onnx_layers import LAYER_MAKERS
from fuzz.hunting.onnx_norms import NORM_MAKERS
from fuzz.hunting.onnx_scalars import SCALAR_MAKERS, Make
from fuzz.hunting.onnx_shapes import SHAPE_MAKERS
from fuzz.hunting.onnx_sketch import File, run
from fuzz.hunting.points import values_of
from fuzz.hunting.rounding import at_points, floor_of, units
from proofmap.errors import ModelError, ProofmapError
from proofmap.graph import Graph, bounded, load
from proofmap.graph.onnx.operators.ml_domain import ML_CONVERTERS
from proofmap.graph.onnx.operators.operator_table import CONVERTERS
from proofmap.graph.onnx.operators.recurrent import RECURRENT_CONVERTERS
from tests.graph.onnx.files import Array

ONNX_MAKERS: dict[str, Make] = {**SCALAR_MAKERS, **LAYER_MAKERS, **SHAPE_MAKERS, **NORM_MAKERS}
# operators for which no file is drawn: samples on the second axis, another domain, a name without a schema, dynamic
# quantisation, and layers of whole numbers
_NOT_DRAWN = {
    *(*RECURRENT_CONVERTERS, *ML_CONVERTERS, "SimplifiedLayerNormalization", "com.microsoft.QGemm"),
    *("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul"),
}
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24)
_MOSTLY_REFUSED = {"Softmax", "LogSoftmax", "Shape", "Size"}  # drawn only in their turn, not as further operators
_RUNTIME_TOLERANCE_FACTOR = 16  # onnxruntime's functions are less exact than torch's


def uncovered() -> set[str]:
    """Return the operators of the reader's table that no file contains."""
    return set(CONVERTERS) - set(ONNX_MAKERS) - _NOT_DRAWN


def turns() -> list[str]:
    """Return the operators that can be drawn; each file has the next one in turn, even one that the reader refuses."""
    return sorted(ONNX_MAKERS)


def drawn(seed: int) -> File:
    """Draw the file of a seed; every call with the same seed draws the same file."""
    draw = Draw("file", seed)
    turn = turns()[seed % len(turns())]
    forms = _forms(turn)
    for _ in range(10 * DEAD):
        file = _empty(draw, draw.pick(draw.pick(forms)))
        try:
            for _ in range(draw.whole(0, 2)):
                _step(file)
            with file.attempt():
                ONNX_MAKERS[turn](file, turn, file.last)
            for _ in range(draw.whole(0, 3)):
                _step(file)
        except Undrawn:
            continue
        return file
    raise Undrawn(f"no file with {turn} was found")


def _forms(op: str) -> list[list[int]]:
    """Return the opsets that have the operator, grouped by the version of its schema: all versions get drawn."""
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
        table: dict[str, Make] = draw.pick([SCALAR_MAKERS, SCALAR_MAKERS, LAYER_MAKERS, SHAPE_MAKERS, NORM_MAKERS])
        op = draw.pick(sorted((set(table) & set(CONVERTERS)) - _MOSTLY_REFUSED))
        try:
            with file.attempt():
                table[op](file, op, file.last)
            return
        except Undrawn:
            continue


def graph_of(file: File, folder: Path, tally: Tally) -> Graph | None:
    """Load the file and compare it with onnxruntime on several batches; return None if it is rightly refused."""
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
        tally.refused[refusal_reason(error)] += 1
        if expected and calls_model_damaged(error):
            raise Found("wrong refusal", f"onnxruntime runs the file, but: {error}".replace(str(path), "it")) from error
        return None
    except Exception as error:
        raise raw_error("load", error) from error
    for count, (x, y) in expected.items():
        _same(graph, model, x, y, count, tally)
    if not expected:
        _still_ours(graph, file)
    try:
        return bounded(graph)
    except ProofmapError as error:
        tally.refused[refusal_reason(error)] += 1
        return None


def _expected(file: File, model: onnx.ModelProto) -> Iterator[tuple[int, tuple[Array, Array]]]:
    """Yield (x, y) of onnxruntime for several batch sizes, or for the size that the file fixes; nothing if it fails."""
    for count in [1, 2, 5] if file.batch == "n" else [len(file["x"])]:
        x = file.draw.tensor(count, *file.shape("x")).numpy().astype(file.dtype)
        x[: len(file["x"])] = file["x"][:count]
        try:
            yield count, (x, run(model, {"x": x})[0])
        except Exception:  # the file takes only some batch sizes, or is damaged
            continue


def _same(graph: Graph, model: onnx.ModelProto, x: Array, y: Array, count: int, tally: Tally) -> None:
    if not np.isfinite(y).all():
        return
    try:
        got = graph.as_model(graph(torch.from_numpy(x))).numpy()
        values = values_of(graph, torch.from_numpy(x)[None])
    except Exception as error:
        raise raw_error(f"the loaded graph, on a batch of {count},", error) from error
    if not all(bool(value.isfinite().all()) for value in values.values()):
        return  # for instance the logarithm of a negative number, which a later function hides
    single = torch.float32  # files store attributes in float32, whatever the precision of their tensors
    size = at_points(graph, values).flatten(1)
    if graph.taken_off is not None:  # a softmax mixes the logits
        size = 1 + size.amax(1, keepdim=True).expand(got.shape)
    slack = (_RUNTIME_TOLERANCE_FACTOR * units(single) * size + floor_of(single)).numpy().reshape(got.shape)
    tally.points += count
    if _agree(got, y, slack) and len(y) == count:
        return
    reference = _reference(model, x)
    if reference is not None and _agree(got, reference, slack):
        tally.refused["(onnxruntime differs from onnx's own evaluator; Proofmap agrees with the evaluator)"] += 1
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
    """Run onnx's own evaluator; return None if it cannot run the file."""
    try:
        with np.errstate(all="ignore"):
            results: Any = ReferenceEvaluator(model).run(None, {"x": x})
    except Exception:  # it lacks operators and has errors of its own
        return None
    return np.asarray(results[0])


def _still_ours(graph: Graph, file: File) -> None:
    """Run a graph from a file that onnxruntime refuses: it may be loaded, but must not fail with a foreign error."""
    try:
        graph(torch.from_numpy(file["x"]))
    except ModelError:
        return
    except Exception as error:
        raise raw_error("a graph loaded from a file that onnxruntime refuses", error) from error
