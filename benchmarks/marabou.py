"""Marabou (Katz et al. 2019; Wu et al. 2024): whether a margin of a ReLU network can exceed a number on a box."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import numpy as np
from maraboupy import MarabouCore

if TYPE_CHECKING:
    from benchmarks.programs import Array, Form, Program
else:
    from programs import Array, Form, Program  # a script finds what lies beside it

Verdict = Literal["sat", "unsat", "open"]


def exceeds(program: Program, threshold: float, seconds: float, threads: int) -> tuple[Verdict, Array | None, float]:
    """(whether some margin reaches the threshold, a point where one does, seconds): one query for each rival.

    Rivals whose bound by `Backward` is below are no question, and each of the others has an equal share of the time.
    """
    start = time.perf_counter()
    rivals = [k for k in np.argsort(-program.upper) if program.upper[k] >= threshold]
    verdict: Verdict = "unsat"
    for k, rival in enumerate(rivals):
        query, x = _query(program, rival, threshold)
        options = MarabouCore.Options()
        options._verbosity, options._numWorkers, options._numBlasThreads = 0, threads, threads
        left = seconds - (time.perf_counter() - start)
        options._timeoutInSeconds = max(1, round(left / (len(rivals) - k)))
        try:
            answer, values, _ = MarabouCore.solve(query, options, "")
        except IndexError:  # it stumbles over queries that its preprocessing solves
            answer = "open"
        if answer == "sat":
            return "sat", np.array([values[i] for i in x]), time.perf_counter() - start
        verdict = verdict if answer == "unsat" else "open"
    return verdict, None, time.perf_counter() - start


def _query(program: Program, rival: int, threshold: float) -> tuple[MarabouCore.InputQuery, range]:
    """x in the box, z and y of every layer, and a margin of at least the threshold; the columns of x."""
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
    """weights @ blocks - columns = -bias."""
    for row, i in enumerate(columns):
        equation = MarabouCore.Equation()
        for name, weight in form.weights.items():
            for j in weight[row].nonzero()[0].tolist():
                equation.addAddend(float(weight[row, j]), blocks[name][j])
        equation.addAddend(-1.0, i)
        equation.setScalar(-float(form.bias[row]))
        query.addEquation(equation)
