"""Marabou (Katz et al. 2019; Wu et al. 2024): can a margin of a ReLU network exceed a number on a box?

Version 2.0.0 rules out points that exist, even for two linear equations: `python benchmarks/marabou.py` shows this.
"""

from __future__ import annotations

import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from maraboupy import MarabouCore

if TYPE_CHECKING or __package__:
    from benchmarks.programs import Array, Form, Program
else:
    from programs import Array, Form, Program  # a script imports from its own folder

Verdict = Literal["sat", "unsat", "open"]


def exceeds(program: Program, threshold: float, seconds: float, threads: int) -> tuple[Verdict, Array | None, float]:
    """Return (whether a margin reaches the threshold, a point that reaches it, seconds), with a query for each rival.

    Rivals whose bound by `Backward` is below the threshold are skipped. The others have equal shares of the time.
    Marabou rarely looks at its clock, so a query that exceeds its share is stopped.
    """
    start = time.perf_counter()
    rivals = [k for k in np.argsort(-program.upper) if program.upper[k] >= threshold]
    verdict: Verdict = "unsat"
    for k, rival in enumerate(rivals):
        query, x = _query(program, rival, threshold)
        left = seconds - (time.perf_counter() - start)
        answer, values = _within(left / (len(rivals) - k), query, threads)
        if answer == "sat":
            return "sat", np.array([values[i] for i in x]), time.perf_counter() - start
        verdict = verdict if answer == "unsat" else "open"
    return verdict, None, time.perf_counter() - start


def answer(network: Path, question: Path, seconds: float) -> tuple[Verdict, Array | None]:
    """Let Marabou read and answer an ONNX file and a VNN-LIB file; return a point as well if the answer is sat."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing TensorFlow
        from maraboupy import Marabou
    read = Marabou.read_onnx(str(network))
    query = read.getInputQuery()
    MarabouCore.loadProperty(query, str(question))
    verdict, values = _within(seconds, query, 1)
    found = np.array([values[int(i)] for i in read.inputVars[0].flatten()]) if verdict == "sat" else None
    return verdict, found


def _within(seconds: float, query: MarabouCore.InputQuery, threads: int) -> tuple[Verdict, dict[int, float]]:
    """Return (the answer, the values of the variables if it is sat), or "open" after this many seconds."""
    context = get_context("fork")  # a query cannot be pickled
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_solve, args=(query, threads, theirs))
    child.start()
    try:
        return ours.recv() if ours.poll(max(0.1, seconds)) else ("open", {})
    finally:
        child.kill()
        child.join()


def _solve(query: MarabouCore.InputQuery, threads: int, to: Any) -> None:
    options = MarabouCore.Options()
    options._verbosity, options._numWorkers, options._numBlasThreads = 0, threads, threads
    try:
        answer, values, _ = MarabouCore.solve(query, options, "")
    except IndexError:  # it fails on queries that its preprocessing solves
        answer, values = "open", {}
    to.send((answer, dict(values)))


def _query(program: Program, rival: int, threshold: float) -> tuple[MarabouCore.InputQuery, range]:
    """Return a query: x in the box, z and y of every layer, and a margin above the threshold; and the columns of x."""
    query = MarabouCore.InputQuery()
    sizes = [len(layer.lower) for layer in program.layers]
    query.setNumberOfVariables(len(program.low) + 2 * sum(sizes) + 1)
    blocks = {program.name: range(len(program.low))}
    _bound(query, blocks[program.name], program.low, program.high)
    for number, i in enumerate(blocks[program.name]):
        query.markInputVariable(i, number)
    start = len(program.low)
    for layer, size in zip(program.layers, sizes, strict=True):
        z, y = range(start, start + size), range(start + size, start + 2 * size)
        start = y.stop
        _bound(query, z, layer.lower, layer.upper)
        _bound(query, y, np.maximum(layer.lower, 0.0), np.maximum(layer.upper, 0.0))
        _equate(query, z, layer.form, blocks)
        for before, after in zip(z, y, strict=True):
            MarabouCore.addReluConstraint(query, before, after)
        blocks[layer.name] = y
    margin = range(start, start + 1)
    row = slice(rival, rival + 1)
    form = program.margins
    _equate(query, margin, type(form)({k: w[row] for k, w in form.weights.items()}, form.bias[row]), blocks)
    _bound(query, margin, np.array([threshold]), program.upper[row])
    query.markOutputVariable(start, 0)
    return query, blocks[program.name]


def _bound(query: MarabouCore.InputQuery, columns: range, low: Array, high: Array) -> None:
    for i, below, above in zip(columns, low.tolist(), high.tolist(), strict=True):
        query.setLowerBound(i, below)
        query.setUpperBound(i, above)


def _equate(query: MarabouCore.InputQuery, columns: range, form: Form, blocks: dict[str, range]) -> None:
    """Add weights @ blocks - columns = -bias."""
    for row, i in enumerate(columns):
        used = [(name, j) for name, weight in form.weights.items() for j in weight[row].nonzero()[0].tolist()]
        terms = [(float(form.weights[name][row, j]), blocks[name][j]) for name, j in used]
        _add(query, [*terms, (-1.0, i)], -float(form.bias[row]))


def _add(query: MarabouCore.InputQuery, terms: list[tuple[float, int]], value: float) -> None:
    """Add Σ factor · variable = value."""
    equation = MarabouCore.Equation()
    for factor, variable in terms:
        equation.addAddend(factor, variable)
    equation.setScalar(value)
    query.addEquation(equation)


def _shown() -> str:
    """Return whether -0.85 z - 6.1632 x - 4.9536 with z = 0.77 - 0.01 x can reach -11.456 on 0.95 <= x <= 1."""
    query = MarabouCore.InputQuery()
    query.setNumberOfVariables(3)
    query.setLowerBound(0, 0.95)
    query.setUpperBound(0, 1.0)
    _add(query, [(-0.01, 0), (-1.0, 1)], -0.77)
    _add(query, [(-0.85, 1), (-6.1632, 0), (-1.0, 2)], 4.9536)
    query.setLowerBound(2, -11.456)
    return _within(10.0, query, 1)[0]


if __name__ == "__main__":
    value = -0.85 * (0.77 - 0.01 * 0.95) - 6.1632 * 0.95 - 4.9536
    print(f"at x = 0.95 it is {value:.5f}, at least -11.456; Marabou says {_shown()}")
