"""How much of ONNX is read: every model of one operation in onnx's own backend test suite, tried.

    python scripts/onnx_coverage.py                  # writes docs/onnx.md
    python scripts/onnx_coverage.py --only Softmax   # prints what becomes of one operation's models

A question is one such model as a function of one of its float inputs, the others constants as the suite has them, and
of one of its float outputs. The suite's models know no samples: a question is asked as a file whose input is one sample
more than the suite's, x (1, *shape) -> Reshape (shape) -> the operation -> Reshape (1, -1). What becomes of it:

equal     read with a rule for all of it; equal to onnxruntime (where that has no kernel, to onnx's evaluator) at the
          suite's own point and near it, and to what the suite expects; no sampled point outside of the bounds there
disputed  the same, but the suite expects something else than onnxruntime gives
refused   by which sentence
wrong     none of these
"""

from __future__ import annotations

import argparse
import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

import proofmap as pm
from proofmap.bounds import Cases, named, solve
from proofmap.errors import BoundError, ProofmapError
from proofmap.graph import Graph, bounded
from proofmap.graph.onnx import started

Array = npt.NDArray[Any]

DOCUMENT = Path(__file__).parents[1] / "docs" / "onnx.md"
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
NEAR = 1e-2  # of the largest entry: how far from the suite's point others are drawn
EQUAL = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-6}  # of the largest entry
SUITE = 1e-3  # the same, of what the suite expects, which it states with few digits in places
MOST = 2**26  # coefficients of a bound: a larger model is not bounded here
ROWS = 256  # outputs of a model that are bounded
UNBOUNDED, LARGE = "no finite bound at the suite's point", "too large to be bounded here"
LEARNING = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Question:
    """One model of the suite as a function of one input and output."""

    name: str
    op: str
    model: onnx.ModelProto
    given: str
    wanted: str
    point: Array
    expected: Array
    first: bool  # whether it is about the model's first float input and output


@dataclass(frozen=True)
class Answer:
    """equal, refused or wrong; and the sentence, or what differs."""

    kind: str
    why: str = ""


@cache
def suite() -> list[Any]:
    """The suite's cases with one operation, in the order of their names."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose
        cases: list[Any] = collect_testcases(None)
    return sorted((case for case in cases if len(case.model.graph.node) == 1), key=lambda case: str(case.name))


def operation(case: Any) -> str:
    """Its name, with the domain where that is not ONNX's first."""
    node = case.model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def questions(case: Any) -> Iterator[Question]:
    """All that a case asks; none where it is no function from floats to floats."""
    graph, (inputs, outputs) = case.model.graph, case.data_sets[0]
    if excluded(case) is not None:
        return
    values = dict(zip((i.name for i in graph.input), inputs, strict=True))
    results = dict(zip((o.name for o in graph.output), outputs, strict=True))
    given = [i.name for i in graph.input if is_float(i) and values[i.name].size]
    wanted = [o.name for o in graph.output if is_float(o) and results[o.name].size]
    for k, x in enumerate(given):
        for m, y in enumerate(wanted):
            name = case.name if len(given) == len(wanted) == 1 else f"{case.name} {x} -> {y}"
            model = wrapped(case.model, x, y, values)
            yield Question(name, operation(case), model, x, y, values[x], results[y], k == m == 0)


def is_float(info: onnx.ValueInfoProto) -> bool:
    """Whether it is of float32 or float64."""
    return info.type.tensor_type.elem_type in FLOATS


def excluded(case: Any) -> str | None:
    """Why a case asks nothing."""
    graph, (inputs, outputs) = case.model.graph, case.data_sets[0]
    node = graph.node[0]
    if node.domain == LEARNING or "training" in case.name or "Loss" in node.op_type:
        return "a step of training"
    if not all(isinstance(value, np.ndarray) or np.isscalar(value) for value in (*inputs, *outputs)):
        return "of sequences or optional values"
    if not any(is_float(info) and value.size for info, value in zip(graph.input, inputs, strict=True)):
        return "no float32 or float64 goes in"
    if not any(is_float(info) and np.size(value) for info, value in zip(graph.output, outputs, strict=True)):
        return "no float32 or float64 comes out"
    if node.op_type == "Bernoulli":
        return "random"
    return None


def wrapped(model: onnx.ModelProto, given: str, wanted: str, values: dict[str, Array]) -> onnx.ModelProto:
    """The question's file."""
    graph = model.graph
    kind = next(i.type.tensor_type.elem_type for i in graph.input if i.name == given)
    result = next(o.type.tensor_type.elem_type for o in graph.output if o.name == wanted)
    shape = values[given].shape
    constants = [numpy_helper.from_array(np.asarray(v), name) for name, v in values.items() if name != given]
    constants += [
        numpy_helper.from_array(np.array(s, np.int64), n) for n, s in (("shape in", shape), ("flat", [1, -1]))
    ]
    nodes = [
        helper.make_node("Reshape", ["sample", "shape in"], [given], name="in"),
        *graph.node,
        helper.make_node("Reshape", [wanted, "flat"], ["answer"], name="out"),
    ]
    ends = [
        helper.make_tensor_value_info("sample", kind, [1, *(shape or (1,))]),
        helper.make_tensor_value_info("answer", result, None),
    ]
    whole = helper.make_graph(nodes, "question", ends[:1], ends[1:], constants)
    opsets = list(model.opset_import)
    if all(entry.domain not in ("", "ai.onnx") for entry in opsets):
        opsets.append(helper.make_opsetid("", 21))
    return helper.make_model(whole, opset_imports=opsets, ir_version=model.ir_version)


def ask(question: Question, folder: Path) -> Answer:
    """What becomes of a question."""
    path = folder / "question.onnx"
    path.write_bytes(question.model.SerializeToString())
    try:
        graph = pm.load(path)
        bounded(graph)
    except ProofmapError as error:
        return Answer("wrong" if "wrongly" in str(error) else "refused", sentence(error))
    points = around(question.point)
    got = graph.as_model(graph(torch.from_numpy(points).reshape(len(points), *graph.input.shape))).numpy()
    for point, value in zip(points, got, strict=True):
        off = difference(value, run(question.model, point), EQUAL[question.point.dtype])
        if off is not None:
            return Answer("wrong", f"differs from onnxruntime by {off:g}")
    off = difference(got[0], question.expected.reshape(-1), SUITE)
    if off is not None:
        return Answer("disputed", f"onnxruntime, and what is read, differ from the suite by {off:.2g}")
    return outside(graph, points)


def around(point: Array) -> Array:
    """The suite's point, and three near it: (4, *shape)."""
    noise = np.random.default_rng(0).uniform(-1, 1, (4, *point.shape))
    noise[0] = 0
    finite = np.abs(point[np.isfinite(point)])
    return np.asarray(point + NEAR * (finite.max() if finite.size else 1.0) * noise, dtype=point.dtype)


def run(model: onnx.ModelProto, point: Array) -> Array:
    """What onnxruntime makes of a point, or onnx's evaluator."""
    feeds = {"sample": point.reshape(1, *(point.shape or (1,)))}
    try:
        return np.asarray(started(model.SerializeToString(), plain=True).run(None, feeds)[0]).reshape(-1)
    except Exception:  # of onnxruntime's: it has no kernel for the operation, or does not know its opset
        from onnx.reference import ReferenceEvaluator

        results: Any = ReferenceEvaluator(model).run(None, feeds)
        return np.asarray(results[0]).reshape(-1)


def difference(got: Array, expected: Array, most: float) -> float | None:
    """By how much of the largest entry they differ, where that is too much; undefined entries have to be so in both."""
    if got.shape != expected.shape:
        return np.inf
    defined = np.isfinite(expected)
    if not np.array_equal(got[~defined], expected[~defined], equal_nan=True):
        return np.inf
    if not defined.any():
        return None
    off = float(np.abs(got - expected)[defined].max()) / max(float(np.abs(expected[defined]).max()), 1e-3)
    return None if off <= most else off


def outside(graph: Graph, points: Array) -> Answer:
    """Whether a value at one of the points is outside of the bounds around the first."""
    x = torch.from_numpy(points).reshape(len(points), *graph.input.shape)
    if min(graph.classes, ROWS) * sum(node.size for node in graph.nodes) > MOST:
        return Answer("equal", LARGE)
    radius = float((x - x[:1]).abs().max())
    if not radius or not bool(torch.isfinite(x).all()):
        return Answer("equal")
    family = pm.Ball(radius * 1.001).at(x[:1])
    values = graph(x)
    rows = torch.eye(graph.classes, dtype=x.dtype)[:ROWS]
    for name in ("ibp", "backward"):
        try:
            upper = solve(graph, Cases(family), torch.cat([rows, -rows])[None], named(name), "shared", 2**30)
        except BoundError:
            return Answer("equal", UNBOUNDED)
        sides = torch.cat([values @ rows.T, -values @ rows.T], 1)
        room = 1e-4 * float(sides.abs().max().clamp(min=1e-3))
        if bool((sides > upper[0] + room).any()):
            return Answer("wrong", f"a sampled point leaves the bounds of {name}")
    return Answer("equal")


def sentence(error: Exception) -> str:
    """An error without the names of one model's nodes."""
    text = re.sub(r" \(node '[^']*'\)", "", str(error).partition(": add one under")[0])
    return re.sub(r"node '[^']*'", "a node", text)


def main() -> None:
    """Ask everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="an operation, whose answers are printed")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as name:
        for case in suite():
            if only in (None, operation(case)):
                for question in questions(case):
                    answer = ask(question, Path(name))
                    if only or answer.kind == "wrong":
                        print(f"{question.name}: {answer.kind} {answer.why}", flush=True)


if __name__ == "__main__":
    main()
