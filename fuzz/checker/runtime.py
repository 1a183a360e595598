"""Values of an ONNX file as onnxruntime computes them: with its usual rewriting of the graph, and without any."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import onnxruntime

from fuzz.hunting.draw import Draw
from tests.graph.onnx.files import Array

onnxruntime.set_default_logger_severity(4)
LEVELS = {
    "optimised": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "as written": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


class Unrun(Exception):  # noqa: N818 (not a fault of the fuzzer)
    """onnxruntime does not load the file, or does not run it on this input."""


def session(data: bytes, level: str) -> onnxruntime.InferenceSession:
    """A session with one thread. `level` is a key of LEVELS."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it tries again
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common root
        raise Unrun(f"it is not loaded: {_words(error)}") from error


def values(run: onnxruntime.InferenceSession, points: Array) -> list[Array]:
    """The first output, flat and in float64, at each of some inputs without a batch axis.

    An input gets a batch axis of one, or the sides that the file declares if they hold as many numbers.
    """
    needed = [one for one in run.get_inputs() if not _optional(run, one.name)]
    if len(needed) != 1:
        raise Unrun(f"it has {len(needed)} inputs")
    found: list[Array] = []
    for shape in _shapes(needed[0].shape, points.shape[1:]):
        try:
            found = [np.asarray(run.run(None, {needed[0].name: x.reshape(shape)})[0]) for x in points]
            break
        except Exception as error:
            failed = error
    else:
        raise Unrun(f"it is not run on {points.shape[1:]}: {_words(failed)}") from failed
    if any(one.dtype != np.float32 for one in found):
        raise Unrun(f"its output is of {found[0].dtype}")
    return [one.ravel().astype(np.float64) for one in found]


def _optional(run: onnxruntime.InferenceSession, name: str) -> bool:
    return name in {one.name for one in run.get_overridable_initializers()}


def _shapes(declared: list[int | str | None], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    fixed = tuple(side if isinstance(side, int) else 1 for side in declared)
    fits = np.prod(fixed, dtype=int) == np.prod(shape, dtype=int)
    return list(dict.fromkeys([(1, *shape), *([fixed] if fits else [])]))


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def points(seed: int, shape: tuple[int, ...], count: int = 3) -> Array:
    """Inputs without a batch axis."""
    draw = Draw("points", seed)
    drawn = np.stack([draw.tensor(*shape).numpy() for _ in range(count)])
    return drawn.astype(np.float32)
