"""Repeat the claims about sufficient sets by other means: attacks, points in onnx's own float64, and HiGHS.

HiGHS solves the mixed-integer program of the ReLU network (Tjeng et al. 2019), one for each rival class:

    maximise f_c' - f_c   with   y >= z, y >= 0, y <= z - l (1 - a), y <= u a, a in {0, 1}   for each unstable ReLU
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

import proofmap as pm
from proofmap.reasons.reason import Reason

from .measure import case_of, columns, sufficient
from .rows import Row

if TYPE_CHECKING:
    from benchmarks.programs import Form, Program, margins_of, program
else:
    from programs import Form, Program, margins_of, program

Array = NDArray[np.float64]

STARTS = 10_000
STEP_SIZES = (1.0, 0.9, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)  # as shares of the way to the best corner
SOLVER_SECONDS = 120.0  # for one program
SOLVER_TOLERANCE = 1e-4  # HiGHS's maxima of margins near 0 miss the true ones by less than this


def second_check(task: Row) -> Row:
    """Explain one image, and repeat the claims; a violated claim leaves a positive number in `wrong`."""
    case, index = case_of(task), int(str(task["index"]))
    x, eps = case.x[index][None], float(str(task["eps"]))
    with _recorded() as roundings:
        found = sufficient(task).explain(x)
    rounding = max(roundings, default=0.0)
    reason = found.reason
    assert reason is not None
    assert found.mask is not None
    graph, target = case.on("cpu"), int(found.predicted[0])
    free, mask = reason.free[0], found.mask.flatten()
    begin = time.process_time()
    attacked = _attack(graph.to(torch.device("cpu"), torch.float64), x.double(), eps, free[mask], target)
    attack_s, begin = time.process_time() - begin, time.process_time()
    points = _points(_outputs(Path(str(task["networks"])) / f"{task['network']}.onnx"), reason, mask, x, eps, target)
    solved = _solve(graph, x, eps, free[mask], target)
    groups = reason.necessary[0].nonzero().flatten().tolist()
    maxima = []
    for group in groups:
        more = free.clone()
        more[group] = True
        maxima.append(_solve(graph, x, eps, more[mask], target, stop_at=0.0))
    wrong = int(attacked >= 0) + points["outside"] + points["below"] + int(solved[1] >= 0)
    wrong += sum(value < -rounding - SOLVER_TOLERANCE for value, _ in maxima)
    return {
        **columns(found, int(case.labels[index])),
        "attack": attacked,
        "attack_cpu_s": attack_s,
        "points": len(reason.points),
        "points_outside": points["outside"],
        "points_below": points["below"],
        "least_point": points["least"],
        "milp_attained": solved[0],
        "milp_bound": solved[1],
        "milp_groups": len(groups),
        "milp_least_maximum": min((value for value, _ in maxima), default=""),
        "milp_below_zero": sum(value < -SOLVER_TOLERANCE for value, _ in maxima),
        "milp_cpu_s": time.process_time() - begin,
        "rounding": rounding,
        "wrong": wrong,
    }


@contextmanager
def _recorded() -> Iterator[list[float]]:
    """Record the rounding errors up to which a point that is below the limit shows a group necessary."""
    module = import_module("proofmap.reasons.sufficient_set")
    found: list[float] = []

    def recording(*args: Any) -> Any:
        value = compute(*args)
        found.append(float(value))
        return value

    compute = module.rounding_of_bounds
    with mock.patch.object(module, "rounding_of_bounds", recording):
        yield found


def _attack(graph: pm.Graph, x: Tensor, eps: float, moves: Tensor, target: int) -> float:
    """Return the largest margin of another class that PGD finds from 10^4 starts.

    Half of the starts are corners of the ball. Two of three starts aim at one rival class, in turns, and the others at
    the largest margin.
    """
    generator = torch.Generator().manual_seed(0)
    low = ((x - eps).clamp(min=0) - x).flatten() * moves
    high = ((x + eps).clamp(max=1) - x).flatten() * moves
    best, each = -np.inf, torch.arange(1000)
    for first in range(0, STARTS, 1000):
        share = torch.rand(1000, len(moves), dtype=torch.float64, generator=generator)
        delta = low + (share.round() if first % 2000 else share) * (high - low)
        for size in (*STEP_SIZES, 0.0):
            delta.requires_grad_()
            outputs = graph((x.flatten() + delta).view(-1, *x.shape[1:])).flatten(1)
            margins = torch.cat([outputs[:, :target], outputs[:, target + 1 :]], 1) - outputs[:, target, None]
            best = max(best, float(margins.detach().max()))
            if size:
                aimed = margins.gather(1, (each % margins.shape[1])[:, None]).squeeze(1)
                (gradient,) = torch.autograd.grad(torch.where(each % 3 == 0, margins.amax(1), aimed).sum(), delta)
                delta = (delta + size * (torch.where(gradient > 0, high, low) - delta)).detach()
    return best


def _outputs(path: Path) -> Callable[[Array], Array]:
    """Return the network of a file in float64, computed by onnx's reference implementation."""
    model = onnx.load(path)
    for constant in model.graph.initializer:
        if constant.data_type == onnx.TensorProto.FLOAT:
            constant.CopyFrom(
                onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(constant).astype(np.float64), constant.name)
            )
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    runner, name = ReferenceEvaluator(model), model.graph.input[0].name

    def run(x: Array) -> Array:
        outputs: Any = (runner.run(None, {name: one[None]}) for one in x)
        return np.array([np.asarray(output[0], dtype=np.float64).ravel() for output in outputs])

    return run


def _points(
    outputs: Callable[[Array], Array], reason: Reason, mask: Tensor, x: Tensor, eps: float, target: int
) -> dict[str, Any]:
    """Count stored points outside their balls, and points whose margin is below the limit by more than stated."""
    if not len(reason.points):
        return {"outside": 0, "below": 0, "least": ""}
    points = reason.points.double().numpy()
    ends = x.double().numpy()
    low, high = np.maximum(ends - eps, 0), np.minimum(ends + eps, 1)
    inside = np.asarray(((points >= low) & (points <= high)).reshape(len(points), -1).all(1))
    moved = (points != ends).reshape(len(points), -1)
    for k, group in enumerate(reason.point_of[:, 1].tolist()):
        allowed = (reason.free[0][mask] | (mask == group)).numpy()
        inside[k] &= not (moved[k] & ~allowed).any()
    values = outputs(points)
    margin = np.delete(values, target, 1).max(1) - values[:, target]
    stated = reason.values.numpy()
    below = np.abs(margin - stated) > 1e-9 * (1 + np.abs(stated))
    return {"outside": int((~inside).sum()), "below": int(below.sum()), "least": float(margin.min())}


def _solve(
    graph: pm.Graph, x: Tensor, eps: float, moves: Tensor, target: int, stop_at: float | None = None
) -> tuple[float, float]:
    """Return (the largest margin that was attained, an upper bound of all margins) by HiGHS.

    Args:
        stop_at: Rivals need not be solved after a margin of this size.
    """
    shape = x.shape
    x = x.double()
    low, high = (x - eps).clamp(min=0) - x, (x + eps).clamp(max=1) - x
    family = pm.Family(
        x, low * moves.view(shape), high * moves.view(shape), torch.inf, torch.tensor([eps], dtype=torch.float64)
    )
    classes = graph[graph.output].size
    model = program(graph, family, margins_of(target, classes))
    best, upper = -np.inf, -np.inf
    for rival in np.argsort(-model.upper):
        attained, bound = _maximise(model, int(rival))
        best, upper = max(best, attained), max(upper, bound)
        if stop_at is not None and best >= stop_at:
            break
    return best, upper


def _maximise(model: Program, rival: int) -> tuple[float, float]:
    """Solve the program of one rival."""
    columns: dict[str, NDArray[np.int64]] = {}
    lower, upper, integer = [model.low], [model.high], [np.zeros(len(model.low))]
    columns[model.name] = np.arange(len(model.low))
    count = len(model.low)
    triples: list[tuple[Array, Array, Array]] = []
    sides: list[tuple[float, float]] = []

    def row(parts: list[tuple[NDArray[np.int64], Array]], low: float, high: float) -> None:
        where, values = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        keep = values != 0
        triples.append((np.full(keep.sum(), len(sides)), where[keep], values[keep]))
        sides.append((low, high))

    def form(of: Form, k: int, sign: float) -> list[tuple[NDArray[np.int64], Array]]:
        return [(columns[name], sign * weight[k]) for name, weight in of.weights.items()]

    for layer in model.layers:
        size = len(layer.lower)
        y, a = np.arange(count, count + size), np.arange(count + size, count + 2 * size)
        low, high = layer.lower, layer.upper
        for k in range(size):
            z, bias = form(layer.form, k, -1.0), layer.form.bias[k]
            if low[k] >= 0:
                row([(y[k : k + 1], np.ones(1)), *z], bias, bias)
            elif high[k] > 0:
                row([(y[k : k + 1], np.ones(1)), *z], bias, np.inf)
                row([(np.array([y[k], a[k]]), np.array([1.0, -low[k]])), *z], -np.inf, bias - low[k])
                row([(np.array([y[k], a[k]]), np.array([1.0, -high[k]]))], -np.inf, 0.0)
        lower += [np.maximum(low, 0.0), np.zeros(size)]
        upper += [np.maximum(high, 0.0), np.ones(size)]
        integer += [np.zeros(size), np.ones(size)]
        columns[layer.name] = y
        count += 2 * size
    cost = np.zeros(count)
    for where, values in form(model.margins, rival, 1.0):
        cost[where] = values
    matrix = (
        sparse.csr_array(
            (
                np.concatenate([t[2] for t in triples]),
                (np.concatenate([t[0] for t in triples]), np.concatenate([t[1] for t in triples])),
            ),
            shape=(len(sides), count),
        )
        if sides
        else sparse.csr_array((1, count))
    )
    ends = np.array(sides or [(-np.inf, np.inf)])
    answer = milp(
        -cost,
        constraints=LinearConstraint(matrix, ends[:, 0], ends[:, 1]),
        integrality=np.concatenate(integer),
        bounds=Bounds(np.concatenate(lower), np.concatenate(upper)),
        options={"time_limit": SOLVER_SECONDS, "mip_rel_gap": 0.0},
    )
    bias = float(model.margins.bias[rival])
    bound = -answer.mip_dual_bound + bias if answer.mip_dual_bound is not None else np.inf
    return (-answer.fun + bias if answer.x is not None else -np.inf), bound
