"""The last operation of a classifier, where it only turns logits into probabilities: the network decides without it.

softmax and log-softmax over the classes keep the order of what they are given; a sigmoid of one output z is the second
of two classes with logits (0, z). What is bounded and explained are the logits.

In float32 two logits that differ by little may have the same probability. `decision_margin` is a difference m that
float32 keeps:

- softmax: beside exp(0) = 1 for the largest logit z_c stands exp(z_k - z_c) <= exp(-m) < 1 - m / 2 = 1 - 2⁻¹⁷. Both are
  divided by one sum, which leaves the larger at 1 / classes or more. A few roundings of 2⁻²⁴ cannot make them equal.
- log-softmax: outputs are z - s with one number s, and |z_c - s| <= log(classes) < 32, where numbers are 2⁻¹⁹ apart.
- sigmoid of one output: |z| >= m puts the probability 2⁻¹⁹ or more away from 1/2, where numbers are 2⁻²⁴ apart.

A sigmoid of two outputs is not taken off: beyond z = 17 both probabilities are 1, however far apart the logits are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proofmap.errors import ModelError

if TYPE_CHECKING:
    from proofmap.graph.builder.graph_builder import Builder

__all__ = [
    "MAX_LOGIT_GAP",
    "PROBABILITY_HEADS",
    "SINGLE_SIGMOID",
    "argmax_error",
    "decision_margin",
    "output_shape_error",
    "saturation_margin",
    "scores",
    "softmax",
    "without_probability_head",
]

SINGLE_SIGMOID = "sigmoid of one output"
MAX_LOGIT_GAP = (
    32.0  # of the largest logit: a class that is no further behind has a probability that float32 tells from others
)
_DECISION_MARGIN = 2.0**-16  # the same in the checker of certificates
_SATURATING_OPERATIONS = frozenset(
    {"sigmoid", "softmax", "tanh", "erf", "softsign"}
)  # many inputs have outputs next to 1
_SATURATION_MARGIN = 2.0**-20  # 16 roundings of numbers up to 1


def _sigmoid_of_difference(logits: Tensor) -> Tensor:
    """σ(z) from (0, z): (N, 1)."""
    return torch.sigmoid(logits[:, 1:] - logits[:, :1])


# What the model puts out, from the logits (N, classes)
PROBABILITY_HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(1),
    "log-softmax": lambda logits: logits.log_softmax(1),
    SINGLE_SIGMOID: _sigmoid_of_difference,
}


def decision_margin(taken_off: str | None) -> float:
    """By how much a logit has to be ahead, so that the outputs in float32 decide as the logits do."""
    return 0.0 if taken_off is None else _DECISION_MARGIN


def saturation_margin(op: str) -> float:
    """By how much an output of this operation has to be ahead in real numbers, so that it is not equal in float32."""
    return _SATURATION_MARGIN if op in _SATURATING_OPERATIONS else 0.0


def scores(outputs: Tensor, taken_off: str | None) -> Tensor:
    """What a model puts out as a number for each class (N, classes): of one probability p, 1 - p and p."""
    return torch.cat([1 - outputs, outputs], 1) if taken_off == SINGLE_SIGMOID else outputs


def softmax(b: Builder, name: str, x: str, axes: Sequence[int], kind: str) -> str:
    """softmax or log-softmax along an axis of a sample, or along its last axes together; a model may end in it."""
    shape = b.shape(x)
    flat = b.reshape(f"{name}.flat", x, (*shape[: axes[0]], -1)) if len(axes) > 1 else x
    whole: dict[str, Any] = {"last": kind} if prod(b.shape(flat)) == b.shape(flat)[axes[0]] else {}
    if kind == "log-softmax":
        y = b.add_node(f"{name}.softmax", "softmax", [flat], axis=axes[0])
        y = b.add_node(f"{name}.log", "log", [y], **whole)
    else:
        y = b.add_node(f"{name}.softmax", "softmax", [flat], axis=axes[0], **whole)
    return b.reshape(name, y, shape)


def argmax_error(op: str, node: str) -> ModelError:
    """For a model that ends in an argmax."""
    return ModelError(
        f"the model ends in {op} (node {node!r}): it names a class and not by how much, expected the logits: hand over "
        "the network before it"
    )


def output_shape_error(what: str, shape: Sequence[int]) -> ModelError:
    """For a model or file whose output has another shape for one sample than (classes,)."""
    got = ", ".join(map(str, ("N", *shape)))
    return ModelError(f"got a {what} whose output has shape ({got}), expected logits of shape (N, classes)")


def without_probability_head(b: Builder, output: str) -> tuple[str, str | None]:
    """The output without what turns logits into probabilities, and its name in `PROBABILITY_HEADS`; None where there is none.

    Between it and the output, shapes may change, and nothing else.
    """
    shapes, node = [], b.nodes[output]
    while node.op == "reshape":
        shapes.append(node)
        node = b.nodes[node.inputs[0]]
    missing = b.missing.get(node.name, "")
    if "argmax" in missing.lower() or missing.endswith("of the positions of a maximum"):
        raise argmax_error(missing, node.name)
    last = node.attributes.get("last")
    if node.op == "sigmoid" and prod(node.shape) == 1:
        last = SINGLE_SIGMOID
    if last is None:
        return output, None
    inner = node.attributes.get("logits", node.inputs[0])
    if last == "log-softmax" and inner in node.inputs:
        inner = b.nodes[inner].inputs[0]
    if last == SINGLE_SIGMOID:
        logit = b.reshape("classes.logit", inner, (1,))
        both = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        return b.add_node("classes", "linear", [logit], weight=both), last
    if shapes:
        b.nodes[shapes[-1].name] = replace(shapes[-1], inputs=(inner,))
    return (output if shapes else inner), last
