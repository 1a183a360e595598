"""Coverage of ONNX: try every model with one operation in onnx's own backend test suite.

    python scripts/onnx_coverage.py                  # writes docs/onnx.md
    python scripts/onnx_coverage.py --only Softmax   # prints the answers for one operation

A question is one such model as a function from one of its float inputs to one of its float outputs; the other inputs
are constants with the suite's values. The suite's models have no batch dimension, so the file of a question adds one: x
(1, *shape) -> Reshape (shape) -> the operation -> Reshape (1, -1). The answers are:

equal     all nodes have a rule; the values equal those of onnxruntime (or of onnx's evaluator, if it has no kernel) at
the
          suite's point and near it, and the suite's expected values; no sampled point lies outside the bounds
disputed  the same, but the suite expects other values than onnxruntime's refused   an error, with its sentence wrong
none of these
"""

from __future__ import annotations

import argparse
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
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
from proofmap.graph.onnx import start_session

Array = npt.NDArray[Any]

PAGE_FILE = Path(__file__).parents[1] / "docs" / "onnx.md"
FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE)
POINT_DISTANCE = 1e-2  # the drawn points' distance from the suite's point, relative to the largest entry
RUNTIME_TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-6}  # relative to the largest entry
SUITE_TOLERANCE = 1e-3  # relative to the largest entry; the suite states some values with few digits
MAX_COEFFICIENTS = 2**26  # a bound whose linear forms need more is not computed here
MAX_BOUNDED_OUTPUTS = 256
UNBOUNDED, LARGE = "no finite bound at the suite's point", "too large to be bounded here"
TRAINING_DOMAIN = "ai.onnx.preview.training"


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
    first: bool  # True for the model's first float input and output


@dataclass(frozen=True)
class Answer:
    """The kind (equal, disputed, refused or wrong), and the sentence or the difference."""

    kind: str
    why: str = ""


@cache
def suite(*modules: str) -> list[Any]:
    """Return the suite's cases with one operation, ordered by name; `modules` restricts them to some of its modules."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose
        for module in modules:
            import_module(f"{node.__name__}.{module}")
        cases: list[Any] = node._NodeTestCases if modules else node.collect_testcases(None)
    return sorted((case for case in cases if len(case.model.graph.node) == 1), key=lambda case: str(case.name))


def operation(case: Any) -> str:
    """Return the name of the operation, with its domain if it is not ONNX's own."""
    node = case.model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def questions(case: Any) -> Iterator[Question]:
    """Yield the questions of a case; none if it is not a function from floats to floats."""
    graph, (inputs, outputs) = case.model.graph, data(case)
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


def data(case: Any) -> tuple[list[Any], list[Any]]:
    """Return the inputs and the outputs, with tensors as arrays."""
    inputs, outputs = (
        [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in side]
        for side in case.data_sets[0]
    )
    return inputs, outputs


def is_float(info: onnx.ValueInfoProto) -> bool:
    """Return whether the value is float32 or float64."""
    return info.type.tensor_type.elem_type in FLOAT_TYPES


def excluded(case: Any) -> str | None:
    """Return the reason why a case has no questions, or None."""
    graph, (inputs, outputs) = case.model.graph, data(case)
    node = graph.node[0]
    if node.domain == TRAINING_DOMAIN or "training" in case.name or "Loss" in node.op_type:
        return "training step"
    if not all(isinstance(value, np.ndarray) or np.isscalar(value) for value in (*inputs, *outputs)):
        return "sequences or optional values"
    if not any(is_float(info) and value.size for info, value in zip(graph.input, inputs, strict=True)):
        return "no float32 or float64 input"
    if not any(is_float(info) and np.size(value) for info, value in zip(graph.output, outputs, strict=True)):
        return "no float32 or float64 output"
    if node.op_type == "Bernoulli":
        return "random"
    return None


def wrapped(model: onnx.ModelProto, given: str, wanted: str, values: dict[str, Array]) -> onnx.ModelProto:
    """Return the file of a question."""
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
    """Answer a question."""
    path = folder / "question.onnx"
    path.write_bytes(question.model.SerializeToString())
    try:
        graph = pm.load(path)
        bounded(graph)
    except ProofmapError as error:
        return Answer("wrong" if "wrongly" in str(error) else "refused", sentence(error))
    points = around(question.point)
    got = graph.as_model(graph(torch.from_numpy(points).reshape(len(points), *graph.input.shape))).numpy()
    undefined = not np.isfinite(got[0]).all() and bool(np.isfinite(question.expected).all())
    if undefined and outside(graph, points).why == UNBOUNDED:
        return Answer("refused", f"{UNBOUNDED}: there it divides by 0")
    for point, value in zip(points, got, strict=True):
        off = difference(value, run(question.model, point), RUNTIME_TOLERANCE[question.point.dtype])
        if off is not None:
            return Answer("wrong", f"differs from onnxruntime by {off:g}")
    off = difference(got[0], question.expected.reshape(-1), SUITE_TOLERANCE)
    if off is not None:
        return Answer("disputed", f"onnxruntime, and what is read, differ from the suite by {off:.2g}")
    return outside(graph, points)


def around(point: Array) -> Array:
    """Return the suite's point and three near it: (4, *shape)."""
    noise = np.random.default_rng(0).uniform(-1, 1, (4, *point.shape))
    noise[0] = 0
    finite = np.abs(point[np.isfinite(point)])
    return np.asarray(point + POINT_DISTANCE * (finite.max() if finite.size else 1.0) * noise, dtype=point.dtype)


def run(model: onnx.ModelProto, point: Array) -> Array:
    """Run onnxruntime, or onnx's evaluator, at a point."""
    feeds = {"sample": point.reshape(1, *(point.shape or (1,)))}
    try:
        return np.asarray(start_session(model.SerializeToString(), plain=True).run(None, feeds)[0]).reshape(-1)
    except Exception:  # onnxruntime has no kernel for the operation, or does not know the opset
        from onnx.reference import ReferenceEvaluator

        results: Any = ReferenceEvaluator(model).run(None, feeds)
        return np.asarray(results[0]).reshape(-1)


def difference(got: Array, expected: Array, most: float) -> float | None:
    """Return the difference relative to the largest entry if it exceeds `most`; undefined entries must be equal."""
    if got.shape != expected.shape:
        return np.inf
    defined = np.isfinite(expected)
    if not np.array_equal(got[~defined], expected[~defined], equal_nan=True):
        return np.inf
    if not defined.any():
        return None
    off = float(np.abs(got[defined] - expected[defined]).max()) / max(float(np.abs(expected[defined]).max()), 1e-3)
    return None if off <= most else off


def outside(graph: Graph, points: Array) -> Answer:
    """Answer whether the value at a point lies outside the bounds around the first point."""
    x = torch.from_numpy(points).reshape(len(points), *graph.input.shape)
    if min(graph.classes, MAX_BOUNDED_OUTPUTS) * sum(node.size for node in graph.nodes) > MAX_COEFFICIENTS:
        return Answer("equal", LARGE)
    radius = float((x - x[:1]).abs().max())
    if not radius or not bool(torch.isfinite(x).all()):
        return Answer("equal")
    family = pm.Ball(radius * 1.001).at(x[:1])
    values = graph(x)
    rows = torch.eye(graph.classes, dtype=x.dtype)[:MAX_BOUNDED_OUTPUTS]
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
    """Return the message of an error without the names of nodes."""
    text = re.sub(r" \(node '[^']*'\)", "", str(error).partition(": add one under")[0])
    return re.sub(r"node '[^']*'", "a node", text)


@dataclass(frozen=True)
class Row:
    """The answers to one operation's questions."""

    op: str
    models: int  # the number of models with questions
    answers: tuple[tuple[Question, Answer], ...]

    def count(self, kind: str, *, first: bool) -> int:
        """Count the answers of a kind, for first inputs and outputs only or for all."""
        return sum(answer.kind == kind and (question.first or not first) for question, answer in self.answers)

    @property
    def line(self) -> str:
        """The row of the table."""
        equal, disputed = self.count("equal", first=True), self.count("disputed", first=True)
        every = f"{self.count('equal', first=False)} of {len(self.answers)}"
        why = Counter(a.why for q, a in self.answers if a.kind in ("refused", "wrong", "disputed") and q.first)
        texts = [f"{text} ({n})" for text, n in sorted(why.items(), key=lambda item: (-item[1], item[0]))]
        return f"| {self.op} | {self.models} | {equal} | {disputed} | {every} | {'; '.join(texts).replace('|', '/')} |"


def rows(only: Collection[str] = (), modules: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the answers for all operations, or for some, ordered by name. modules: see `suite`."""
    cases: dict[str, list[Any]] = {}
    for case in suite(*modules):
        if (not only or operation(case) in only) and excluded(case) is None:
            cases.setdefault(operation(case), []).append(case)
    with tempfile.TemporaryDirectory() as folder:
        for op in sorted(cases):
            asked = (question for case in cases[op] for question in questions(case))
            yield Row(op, len(cases[op]), tuple((question, ask(question, Path(folder))) for question in asked))


def known(op: str, opset: int = 21) -> bool:
    """Return whether the opset has the operation."""
    try:
        onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return False
    return True


def document(found: Sequence[Row]) -> str:
    """Return the page."""
    left = Counter(why for case in suite() if (why := excluded(case)) is not None)
    old = [row for row in found if known(row.op)]
    some = [row for row in old if row.count("equal", first=True)]
    shares = "\n".join(
        f"| {what} | {len(those)} | {sum(row.models for row in those)} | {share(those)} |"
        for what, those in (
            ("all", found),
            ("operations of opset 21", old),
            ("operations of opset 21 with at least one model read", some),
        )
    )
    every = [answer for row in found for _, answer in row.answers]
    equal = [answer for answer in every if answer.kind == "equal"]
    return PAGE_TEXT.format(
        onnx=onnx.__version__,
        runtime=version("onnxruntime"),
        suite=len(suite()),
        excluded="\n".join(f"| {why} | {n} |" for why, n in sorted(left.items())),
        shares=shares,
        every=f"{len(equal)} of {len(every)}",
        unbounded=sum(answer.why == UNBOUNDED for answer in equal),
        large=sum(answer.why == LARGE for answer in equal),
        wrong=sum(answer.kind == "wrong" for answer in every),
        rows="\n".join(row.line for row in found),
    )


def share(those: Sequence[Row]) -> str:
    """Return the number and the share of first questions with the answer "equal"."""
    models, equal = sum(row.models for row in those), sum(row.count("equal", first=True) for row in those)
    return f"{equal} ({100 * equal / models:.0f} %)"


PAGE_TEXT = """# The operations of ONNX

`python scripts/onnx_coverage.py` wrote this page, with onnx {onnx} and onnxruntime {runtime}. It tries every model with
one operation in onnx's own backend test suite. Tests compare this page with the results.

Each model is read as a function of one of its float inputs; the other inputs are constants with the values of the
suite. The first question is about the first float input and the first float output. The others are about every pair of
a float input and a float output. The suite's models have no batch dimension, so the script adds one:
x (1, \\*shape) -> Reshape -> the operation -> Reshape (1, -1).

A model counts as *read and equal* if four conditions hold. The points are the suite's own point and three near it.

1. Every node has a rule.
2. The values equal those of onnxruntime at the points, to 1e-4 of the largest entry, in float64 to 1e-6. If onnxruntime
   has no kernel, onnx's evaluator is used.
3. At the suite's own point, the values equal the expected values of the suite, to 1e-3.
4. No point lies outside the `ibp` and `backward` bounds around the first point.

*Disputed* models agree with onnxruntime, but the suite expects something else. All other models are refused; the last
column contains the sentences. No model may be wrong.

Models of static quantisation are read too: `QuantizeLinear`, `DequantizeLinear`, `QLinearConv`, `QLinearMatMul` and
onnxruntime's `QGemm`, with constant scales ([two versions of a model](guides/versions.md#static-quantisation)). Most of
the suite's models for them are not questions here, because their inputs or outputs are whole numbers.

## Shares

Of {suite} models, these are not functions of floats and are left out:

| reason | models |
| --- | ---: |
{excluded}

The other models, by their first float input:

| operations | number | models | read and equal |
| --- | ---: | ---: | ---: |
{shares}

Of all pairs of a float input and a float output, including weights and states, {every} are read and equal.
A convolution is a function of its image, and no rule is intended for its weights.
{unbounded} of these pairs have no finite bound at the suite's point
(a logarithm at 0, a division by a value that may be 0).
{large} are too large for this script to bound. Wrong: {wrong}.

## By operation

| operation | models | read and equal | disputed | all pairs | other results (first input only) |
| --- | ---: | ---: | ---: | ---: | --- |
{rows}
"""


def main() -> None:
    """Write the page, or print the answers for one operation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="an operation, whose answers are printed")
    only = parser.parse_args().only
    found = list(rows([only] if only else []))
    if only:
        for question, answer in found[0].answers if found else ():
            print(f"{question.name}: {answer.kind} {answer.why}")
    else:
        PAGE_FILE.write_text(document(found), encoding="utf-8")


if __name__ == "__main__":
    main()
