"""Target classes, one for each sample, and classification margins."""

from math import inf

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.graph.rewrite.output_heads import shape_of_outputs
from proofmap.inputs.array_types import Target


def margins(logits: Tensor, target: Tensor) -> Tensor:
    """Return max over c' != c of f_c' - f_c, for logits (..., C) and targets c that broadcast to (...)."""
    index = target.expand(logits.shape[:-1])[..., None]
    decided = logits.gather(-1, index).squeeze(-1)
    return logits.scatter(-1, index, -inf).amax(-1) - decided


def require_classes(graph: Graph) -> Graph:
    """Return the graph if its outputs are one list of at least two classes; raise InputError otherwise."""
    shape = shape_of_outputs(graph)
    if len(shape) > 1:
        sides = ", ".join(map(str, shape))
        at = ", ".join("0" for _ in shape)
        raise InputError(
            f"got a model whose output has shape (N, {sides}), which is no list of classes, expected logits of shape "
            "(N, classes): pm.EVA and pm.overlap take one entry or a region, as in pm.EVA(model, pm.Ball(0.02), "
            f"objective=pm.objectives.Output(({at}), 'up'))"
        )
    assert graph.classes > 1, "as_graph gives a network of one output two logits"
    return graph


def logits_of(graph: Graph, x: Tensor) -> Tensor:
    """Return the logits at x (N, classes). Raise if the outputs are no classes, or if a logit is not finite."""
    require_classes(graph)
    logits = graph(x).flatten(1)
    if not bool(torch.isfinite(logits).all()):
        raise InputError("the model's output at x has NaN or infinite entries, expected finite logits")
    return logits


def target_of(target: Target, logits: Tensor, what: str = "target") -> Tensor:
    """Return one class for each sample (N,): the given target, or the predicted class if the target is None."""
    count, classes = logits.shape
    return logits.argmax(1) if target is None else classes_of(target, count, classes, logits.device, what)


def classes_of(
    given: Target | list[int], count: int, classes: int | None, device: torch.device, what: str = "target"
) -> Tensor:
    """Return one class for each of `count` samples, (N,) int64.

    A value with one entry applies to all samples, as in Captum. `classes` is the number of classes, or None if unknown.
    """
    try:
        if isinstance(given, list) and bool in map(type, given):
            raise TypeError
        numbers = torch.as_tensor(given.tolist() if isinstance(given, np.ndarray) else given, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"got {what} {given!r}, expected a class number, or one for each sample") from None
    if numbers.numel() == 1:
        numbers = numbers.reshape(())
    if numbers.is_floating_point() or numbers.dtype == torch.bool or numbers.shape not in ((), (count,)):
        raise InputError(
            f"got {what} of type {numbers.dtype} and shape {tuple(numbers.shape)}, expected a class number, or one for "
            f"each of {count} samples"
        )
    if bool((numbers < 0).any()) or (classes is not None and bool((numbers >= classes).any())):
        largest = "above" if classes is None else f"to {classes - 1}"
        raise InputError(f"got {what} {given}, expected a class from 0 {largest}")
    return numbers.long().expand(count)
