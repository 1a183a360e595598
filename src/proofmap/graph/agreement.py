"""Comparison of a graph with the model that it was read from, and the diagnosis of a difference."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.ir import Graph

BatchFunction = Callable[[Tensor], Tensor]

# Allowed difference, relative to the largest logit. Two correct computations of one network differ by about 1e-6 in
# single precision; a reading error is much larger. In double precision the limit is 1e-6, because exporters may store
# constants in single precision, which costs about 1e-7.
LOGIT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}
# relative as well: the allowed difference between two runtimes
_REFERENCE_TOLERANCE = {torch.float32: 1e-2, torch.float64: 1e-6}


class Cause(Enum):
    """The reason for a difference between a graph and its model."""

    RANDOM = "two runs on the same batch differ"
    BATCH = "a sample alone gives something else than in a batch"
    ROUNDING = "in double precision both agree"
    REFERENCE = "two implementations of the model differ"
    READING = "nothing but the reading explains it"


@dataclass(frozen=True)
class Reference:
    """The model that a graph was read from, as a function of batches.

    run: the model in its own precision. double: the model in double precision.
    other: True if `double` is another implementation, which need not agree with `run`.
    """

    run: BatchFunction
    double: BatchFunction
    other: bool = False


def require_agreement(
    graph: Graph, reference: Reference, points: Tensor, whose: str, advice: Mapping[Cause, str]
) -> None:
    """Raise ModelError if the graph differs from its model and `advice` has an entry for the cause.

    whose: the start of the message; {} stands for the relative difference.
    """
    off, cause = _find_disagreement(graph, reference, points)
    if cause is not None and cause in advice:
        most = f"expected {LOGIT_TOLERANCE[points.dtype]:g} at most"
        raise ModelError(f"{whose.format(f'{off:.1e}')}, {most}: {advice[cause]}")


def _find_disagreement(graph: Graph, reference: Reference, points: Tensor) -> tuple[float, Cause | None]:
    """Return the relative difference and its cause (None within the tolerance).

    The logits are compared for all points in one batch, and for the first point alone. Undefined values are skipped.
    """
    values = graph.as_model(graph(points))
    together, alone = reference.run(points), reference.run(points[:1])
    tolerance = LOGIT_TOLERANCE[points.dtype]
    off = max(relative_difference(values, together), relative_difference(values[:1], alone))
    if off <= tolerance:
        return off, None
    if relative_difference(reference.run(points), together) > tolerance:
        return off, Cause.RANDOM
    if relative_difference(together[:1], alone) > tolerance:
        return off, Cause.BATCH
    exact = points.double()
    try:
        double = graph.to(points.device, torch.float64)
        expected = reference.double(exact)
        same, apart = (
            relative_difference(double.as_model(double(exact)), expected),
            relative_difference(together.double(), expected),
        )
    except Exception:  # the model fails in double precision: no evidence
        same, apart = inf, 0.0
    if reference.other and apart > _REFERENCE_TOLERANCE[points.dtype]:
        return off, Cause.REFERENCE
    if points.dtype != torch.float64 and same <= LOGIT_TOLERANCE[torch.float64]:
        return off, Cause.ROUNDING
    return off, Cause.READING


def relative_difference(got: Tensor, expected: Tensor) -> float:
    """Return max |got - expected| / max |expected| over the samples whose expected logits are finite."""
    if got.shape != expected.shape:
        return inf
    defined = torch.isfinite(expected).all(1)
    if not bool(defined.any()):
        return 0.0
    off = (got - expected)[defined].abs().max() / expected[defined].abs().max().clamp(min=1e-6)
    return float(off) if bool(torch.isfinite(off)) else inf
