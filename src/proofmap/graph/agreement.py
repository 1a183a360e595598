"""Whether a graph and the model that it was read from agree, and what is at fault where they do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.ir import Graph

Run = Callable[[Tensor], Tensor]

# Of the largest logit. Two ways to compute one network differ by some 1e-6 in single precision; a wrong reading is far
# off. In double precision the single precision of constants that exporters write down shows, at 1e-7.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}
_ROUNDED = {torch.float32: 1e-2, torch.float64: 1e-6}  # of the largest logit, too: what rounding may do to a file


class Cause(Enum):
    """Why a graph and its model differ."""

    RANDOM = "two runs on the same batch differ"
    BATCH = "a sample alone gives something else than in a batch"
    ROUNDING = "in double precision both agree"
    REFERENCE = "two implementations of the model differ"
    READING = "nothing but the reading explains it"


@dataclass(frozen=True)
class Reference:
    """What a graph was read from: a function of batches, and the same in double precision.

    other: `double` is another implementation, which need not agree with `run`.
    """

    run: Run
    double: Run
    other: bool = False


def require_agreement(
    graph: Graph, reference: Reference, points: Tensor, whose: str, advice: Mapping[Cause, str]
) -> None:
    """Refuse a graph that differs from its model; a cause that there is no advice for is no fault.

    whose: logits, with {} for how far they are apart.
    """
    off, cause = _disagreement(graph, reference, points)
    if cause is not None and cause in advice:
        most = f"expected {TOLERANCE[points.dtype]:g} at most"
        raise ModelError(f"{whose.format(f'{off:.1e}')}, {most}: {advice[cause]}")


def _disagreement(graph: Graph, reference: Reference, points: Tensor) -> tuple[float, Cause | None]:
    """By how much of the largest logit they differ, and why: at all points together, and at the first alone. Undefined
    values are left out.
    """
    values = graph.as_model(graph(points))
    together, alone = reference.run(points), reference.run(points[:1])
    tolerance = TOLERANCE[points.dtype]
    off = max(difference(values, together), difference(values[:1], alone))
    if off <= tolerance:
        return off, None
    if difference(reference.run(points), together) > tolerance:
        return off, Cause.RANDOM
    if difference(together[:1], alone) > tolerance:
        return off, Cause.BATCH
    exact = points.double()
    try:
        double = graph.to(points.device, torch.float64)
        expected = reference.double(exact)
        same, apart = difference(double.as_model(double(exact)), expected), difference(together.double(), expected)
    except Exception:  # a model that double precision stops: nothing is learnt
        same, apart = inf, 0.0
    if reference.other and apart > _ROUNDED[points.dtype]:
        return off, Cause.REFERENCE
    if points.dtype != torch.float64 and same <= TOLERANCE[torch.float64]:
        return off, Cause.ROUNDING
    return off, Cause.READING


def difference(got: Tensor, expected: Tensor) -> float:
    """The largest difference between two batches of logits, of the largest logit expected, where that is defined."""
    if got.shape != expected.shape:
        return inf
    defined = torch.isfinite(expected).all(1)
    if not bool(defined.any()):
        return 0.0
    off = (got - expected)[defined].abs().max() / expected[defined].abs().max().clamp(min=1e-6)
    return float(off) if bool(torch.isfinite(off)) else inf
