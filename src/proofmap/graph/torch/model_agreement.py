"""Check of a traced graph against its torch module at sample points."""

import copy

import torch
from torch import Tensor, nn

from proofmap.errors import ModelError
from proofmap.graph.agreement import (
    LOGIT_TOLERANCE,
    BatchFunction,
    Cause,
    Reference,
    relative_difference,
    require_agreement,
)
from proofmap.graph.ir import Graph
from proofmap.runtime.memory import is_out_of_memory


def check(graph: Graph, model: nn.Module, x: Tensor, precision: torch.dtype) -> None:
    """Compare graph and module at x and at a point drawn around it, in the model's precision and in that of x."""
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x)
    points = torch.cat([x, x.min() + (x.max() - x.min() + 1) * (noise - 0.25)])
    run = _checked_model(graph, model)

    def double(exact: Tensor) -> Tensor:
        return _checked_model(graph, copy.deepcopy(model).double())(exact)

    whose = "the traced graph and the model differ by {} of the largest logit"
    require_agreement(graph, Reference(run, double), points, whose, _ADVICE)
    if precision != x.dtype and precision in LOGIT_TOLERANCE:
        single, rounded = graph.to(x.device, precision), points.to(precision)
        off = relative_difference(single.as_model(single(rounded)).to(x), run(rounded.to(x)))
        if off > LOGIT_TOLERANCE[torch.float32]:
            cure = "x.double()" if precision == torch.float32 else "model.double()"
            raise ModelError(
                f"the model is {x.dtype} and x {precision}: single precision rounds the logits by {off:.1e} of the "
                f"largest, expected {LOGIT_TOLERANCE[torch.float32]:g} at most: use {cure}"
            )


_ADVICE = {
    Cause.RANDOM: f"{Cause.RANDOM.value}, does it draw random numbers or keep state?",
    Cause.BATCH: f"{Cause.BATCH.value}, does it look at the batch's size?",
    Cause.ROUNDING: f"{Cause.ROUNDING.value}, so this is rounding: use model.double()",
    Cause.READING: "Proofmap has read it wrongly, please report it with the model",
}


def output_of(model: nn.Module, points: Tensor) -> Tensor:
    """Return the model's output for a batch; raise if it is not one tensor."""
    try:
        value = model(points)
    except Exception as error:  # a module may raise anything
        if is_out_of_memory(error):
            raise
        raise ModelError(f"the model cannot take a batch of {len(points)}: {error}") from error
    if not isinstance(value, Tensor):
        raise ModelError(f"got a model whose output is a {type(value).__name__}, expected one tensor of logits")
    return value


def _checked_model(graph: Graph, model: nn.Module) -> BatchFunction:
    """Return the model as a function of batches that checks shape and finiteness of the output."""
    outputs = graph.as_model(torch.zeros(1, graph.classes)).shape[1]

    def run(points: Tensor) -> Tensor:
        n, value = len(points), output_of(model, points)
        if len(value) == n and (graph.taken_off is not None or tuple(value.shape[1:]) in ((), graph.output_shape)):
            value = value.flatten(1) if value.ndim > 1 else value[:, None]
        if tuple(value.shape) != (n, outputs):
            raise ModelError(
                f"the model turns a batch of {n} into {tuple(value.shape)}, expected {(n, outputs)}: "
                "dimension 0 must be that of the samples, whatever their number"
            )
        if not bool(torch.isfinite(value[0]).all()):
            raise ModelError("the model's output at x is NaN or infinite: nothing can be bounded there")
        return value

    return run
