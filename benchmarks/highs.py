"""HiGHS on the mixed-integer program of a ReLU network (Tjeng et al. 2019), with Backward's bounds as big-M constants.

For an unstable ReLU, l < 0 < u, and a in {0, 1}:   y >= z,   y >= 0,   y <= z - l (1 - a),   y <= u a

There is one program for each rival class. The rival with the highest bound comes first. Each gets an equal share of the
remaining time, and open programs are continued while time is left. (One program with the choice of a rival as integers
was slower.) Rivals that cannot exceed a known point are skipped.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

import highspy
import numpy as np
from scipy import sparse

if TYPE_CHECKING or __package__:
    from benchmarks.programs import Array, Form, Layer, Program
else:
    from programs import Array, Form, Layer, Program  # a script imports from its own folder


def maximise(program: Program, seconds: float, threads: int, gap: float) -> tuple[list[Array], float, float]:
    """Return (points that were found; an upper bound of the largest margin, not below their margins; seconds)."""
    start = time.perf_counter()
    model, upper = _Model(program), program.upper.copy()
    points: list[Array] = []
    best = -inf
    solved: set[int] = set()
    while left := [int(k) for k in np.argsort(-upper) if upper[k] > best + gap and int(k) not in solved]:
        for number, rival in enumerate(left):
            rest = seconds - (time.perf_counter() - start)
            if rest <= 0:
                return points, float(upper.max()), time.perf_counter() - start
            if upper[rival] > best + gap:
                solver = _solver(rest / (len(left) - number), threads, gap)
                solver.passModel(model.towards(program.margins, rival))
                solver.run()
                info, values = solver.getInfo(), np.array(solver.getSolution().col_value)
                solver.resetGlobalScheduler(True)  # all solvers share its threads, whose number is set only once
                solved |= {rival} if solver.getModelStatus() == highspy.HighsModelStatus.kOptimal else set()
                proven = info.mip_dual_bound if any(model.integer) else info.objective_function_value
                upper[rival] = min(upper[rival], proven)
                if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible and len(values):
                    points.append(values[: len(program.low)])
                    best = max(best, info.objective_function_value)
    return points, float(upper.max()), time.perf_counter() - start


def _solver(seconds: float, threads: int, gap: float) -> highspy.Highs:
    solver = highspy.Highs()
    options = {"output_flag": False, "threads": threads, "time_limit": seconds, "mip_abs_gap": gap, "mip_rel_gap": 0.0}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    return solver


class _Model:
    """Columns and rows while they are added."""

    def __init__(self, program: Program) -> None:
        self.low: list[Array] = []
        self.high: list[Array] = []
        self.integer: list[bool] = []
        self.rows: list[sparse.csr_array] = []  # each with the columns that exist when it is added
        self.below: list[Array] = []
        self.above: list[Array] = []
        self.blocks = {program.name: self.columns(program.low, program.high)}
        for layer in program.layers:
            self.layer(layer)

    def columns(self, low: Array, high: Array, integer: bool = False) -> range:
        start = len(self.integer)
        self.low.append(low)
        self.high.append(high)
        self.integer += [integer] * len(low)
        return range(start, start + len(low))

    def add(self, parts: list[tuple[range, Array]], below: Array, above: Array) -> None:
        """Add below <= Σ matrix @ columns <= above."""
        rows = sparse.lil_array((len(below), len(self.integer)))
        for where, matrix in parts:
            rows[:, where.start : where.stop] = matrix
        self.rows.append(rows.tocsr())
        self.below.append(below)
        self.above.append(above)

    def of(self, form: Form, sign: float) -> list[tuple[range, Array]]:
        return [(self.blocks[name], sign * weight) for name, weight in form.weights.items()]

    def layer(self, layer: Layer) -> None:
        """Add the columns z and y, and a if the ReLU is unstable."""
        lower, upper, count = layer.lower, layer.upper, len(layer.lower)
        z = self.columns(lower, upper)
        self.add([(z, np.eye(count)), *self.of(layer.form, -1.0)], layer.form.bias, layer.form.bias)
        y = self.columns(np.maximum(lower, 0.0), np.maximum(upper, 0.0))
        self.blocks[layer.name] = y
        unit, none = np.eye(count), np.zeros(count)
        on = lower >= 0
        self.add([(y, unit[on]), (z, -unit[on])], none[on], none[on])
        open_ = (lower < 0) & (upper > 0)
        rows, free = unit[open_], np.full(int(open_.sum()), inf)
        a = self.columns(np.zeros(len(free)), np.ones(len(free)), integer=True)
        self.add([(y, rows), (z, -rows)], none[open_], free)
        self.add([(y, rows), (z, -rows), (a, -np.diag(lower[open_]))], -free, -lower[open_])
        self.add([(y, rows), (a, -np.diag(upper[open_]))], -free, none[open_])

    def towards(self, margins: Form, rival: int) -> highspy.HighsLp:
        """Return the program that maximises one margin."""
        columns = len(self.integer)
        wide = [sparse.csr_array((r.data, r.indices, r.indptr), shape=(r.shape[0], columns)) for r in self.rows]
        matrix = sparse.vstack(wide, format="csr")
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = columns, matrix.shape[0]
        cost = np.zeros(columns)
        for where, weight in self.of(margins, 1.0):
            cost[where.start : where.stop] = weight[rival]
        lp.col_cost_, lp.offset_, lp.sense_ = cost, margins.bias[rival], highspy.ObjSense.kMaximize
        lp.col_lower_, lp.col_upper_ = np.concatenate(self.low), np.concatenate(self.high)
        lp.row_lower_, lp.row_upper_ = np.concatenate(self.below), np.concatenate(self.above)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if one else kinds.kContinuous for one in self.integer]
        return lp
