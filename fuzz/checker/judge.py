"""The checker beside onnxruntime: what it accepts has to run, with values inside the checker's float32 intervals.

For a share of the files, the overlap over a small ball is derived too: no point of the ball may exceed it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fuzz.checker import runtime
from fuzz.checker.draws import File
from fuzz.checker.trial import Finding, Trial
from proofmap.proof import check as checker
from tests.graph.onnx.files import Array
from tests.proof.making import proof_of, question_of

BALL: dict[str, Any] = {"norm": "inf", "eps": "0", "domain": None, "relative": False, "half": None}
WRONG = ("differs", "does not run")
_IN_BALLS = 2  # of so many files, one is bounded over a ball
_EPS = 2.0**-5
_LEAST = 2.0**-120  # probabilities below are compared by size alone


def judged(file: File) -> Trial:
    """The outcome of one file, and the finding if it is read wrongly."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        outcome, why = _outcome(file)
    if outcome not in WRONG:
        return Trial({"files": 1, outcome: 1}, why)
    about = (f"changed: {', '.join(file.changes) or 'nothing'}", f"input {list(file.shape)}", *file.described)
    return Trial({"files": 1, outcome: 1}, why, Finding(file.seed, outcome, why, about, {"net.onnx": file.data}))


def _outcome(file: File) -> tuple[str, str]:
    try:
        network = checker.read_network(file.data, file.shape)
    except checker.Rejected as error:
        return "refused", str(error)
    points = runtime.points(file.seed, file.shape)
    try:
        ends: tuple[Array, Array] | None = intervals(network, points)
    except checker.Rejected:  # rounding leaves the range of float32: no claim is possible, but the file has to run
        ends = None
    try:
        for level in runtime.LEVELS:
            found = runtime.values(runtime.session(file.data, level), points)
            for k, value in enumerate(found):
                why = ends and misses(value, ends[0][:, k], ends[1][:, k], network.decision_margin)
                if why:
                    return "differs", f"{level}, at point {k}: {why}"
            if ends and file.seed % _IN_BALLS == 0 and network.decision_margin == 0:
                why = exceeds(network, runtime.session(file.data, level), points[0], file.seed)
                if why:
                    return "differs", f"{level}, over a ball: {why}"
    except runtime.Unrun as error:
        return "does not run", str(error)
    return ("agreed" if ends else "undecided"), ""


def intervals(network: checker.Network, points: Array) -> tuple[Array, Array]:
    """Ends (logits, P) of what float32 may compute at points (P, *shape)."""
    question = checker.Question(points[0], BALL, None, 0, checker.Decision(0, [1]))
    prover = checker.Prover(network, question, points)
    return prover.lower[-1], prover.upper[-1]


def exceeds(network: checker.Network, session: Any, x: Array, seed: int) -> str:
    """Why the overlap that the checker derives over a ball is none: a corner of the ball exceeds it."""
    random = np.random.default_rng(seed)
    corners = x + random.choice(np.array([-_EPS, 0, _EPS], np.float32), (6, *x.shape))
    corners = corners[np.abs(corners.astype(np.float64) - x).reshape(6, -1).max(1) <= _EPS]
    logits = runtime.values(session, np.concatenate([x[None], corners]))
    target = int(logits[0].argmax())
    if not 2 <= logits[0].size <= 50:
        return ""
    question = question_of(x, target, logits[0].size, {**BALL, "eps": str(_EPS)})
    try:
        most = float(checker.Prover(network, question).derive(proof_of(network, question))[0, 0])
    except checker.Rejected:
        return ""
    reached = max(np.delete(value, target).max() - value[target] for value in logits)
    return f"the overlap {reached!r} is reached, {most!r} is derived" if not reached <= most else ""


def misses(value: Array, lower: Array, upper: Array, margin: float) -> str:
    """Why a value is not what the checker says. With a margin it is that of a Softmax, and the ends are of logits."""
    if value.size != lower.size:
        return f"{value.size} numbers, the checker has {lower.size}"
    if not np.isfinite(value).all():
        return f"onnxruntime computes {value[~np.isfinite(value)][0]}, the checker a number"
    if not (lower <= upper).all():
        return "the checker's ends are no interval"
    if margin == 0:
        off = np.maximum(lower - value, value - upper)
        at = int(off.argmax())
        if off[at] > 0:
            return f"entry {at} is {value[at]!r}, the checker says {lower[at]!r} to {upper[at]!r}"
        return ""
    return _misses_softmax(value, lower, upper, margin)


def _misses_softmax(value: Array, lower: Array, upper: Array, margin: float) -> str:
    if (value < 0).any() or (value > 1).any():
        return "these are no probabilities"
    best = int(lower.argmax())
    tied = (upper < lower[best] - margin) & (value >= value[best])
    if tied.any():
        return f"class {best} should be ahead of class {int(tied.argmax())}, and is not"
    large = value >= _LEAST
    if (lower[~large] > upper.max() - 80).any() or not large[best]:
        return "a probability vanishes"
    logs = np.log(value[large])
    apart = logs[:, None] - logs
    above = apart - (upper[large][:, None] - lower[large]) - margin
    if (above > 0).any():
        return f"logarithms of probabilities are {above.max():.3g} further apart than the logits"
    return ""
