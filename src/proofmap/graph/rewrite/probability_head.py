"""Removal of the probability head: a last softmax, log-softmax or sigmoid that only maps logits to probabilities.

softmax and log-softmax over the classes keep the order of their inputs. A sigmoid of one output z is the probability of
the second of two classes with logits (0, z). The logits are bounded and explained instead of the probabilities.

In float32, two logits with a small difference may have the same probability. `decision_margin` is a difference m of
logits that is large enough for different outputs in float32:

- softmax: the largest logit z_c has exp(0) = 1, another has exp(z_k - z_c) <= exp(-m) < 1 - m / 2 = 1 - 2⁻¹⁷. Both are
  divided by the same sum, and the larger quotient is at least 1 / classes. A few rounding errors of 2⁻²⁴ cannot make
  them equal.
- log-softmax: outputs are z - s with one number s, and |z_c - s| <= log(classes) < 32, where floats are 2⁻¹⁹ apart.
- sigmoid of one output: for |z| >= m the probability is at least 2⁻¹⁹ away from 1/2, where floats are 2⁻²⁴ apart.

A sigmoid of two outputs is not removed: beyond z = 17 both probabilities are 1, whatever the logits' difference.
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

SINGLE_SIGMOID = "sigmoid of one output"
SINGLE_LOGIT = "one output"  # nothing is removed: the output z is read as the logits (0, z)
MAX_LOGIT_GAP = 32.0  # classes at most this far below the largest logit have probabilities that differ in float32
_DECISION_MARGIN = 2.0**-16  # least difference of logits; the certificate checker has the same number
_SATURATING_OPERATIONS = frozenset({"sigmoid", "softmax", "tanh", "erf", "softsign"})  # many inputs have outputs near 1
_SATURATION_MARGIN = 2.0**-20  # 16 rounding errors of numbers up to 1


# The model's outputs from the logits (N, classes), by the name of the head
PROBABILITY_HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(1),
    "log-softmax": lambda logits: logits.log_softmax(1),
    SINGLE_SIGMOID: lambda logits: torch.sigmoid(logits[:, 1:] - logits[:, :1]),  # σ(z) for the logits (0, z), (N, 1)
    SINGLE_LOGIT: lambda logits: logits[:, 1:] - logits[:, :1],  # z for the logits (0, z), (N, 1)
}


def decision_margin(taken_off: str | None) -> float:
    """Return the margin between logits at which the float32 outputs decide as the logits do."""
    return 0.0 if taken_off in (None, SINGLE_LOGIT) else _DECISION_MARGIN


def saturation_margin(op: str) -> float:
    """Return the margin in real numbers at which two outputs of this operation differ in float32."""
    return _SATURATION_MARGIN if op in _SATURATING_OPERATIONS else 0.0


def scores(outputs: Tensor, taken_off: str | None) -> Tensor:
    """Return one number for each class (N, classes) from a model's outputs.

    They are (1 - p, p) for one probability p, and (0, z) for one logit z.
    """
    if taken_off == SINGLE_LOGIT:
        return torch.cat([torch.zeros_like(outputs), outputs], 1)
    return torch.cat([1 - outputs, outputs], 1) if taken_off == SINGLE_SIGMOID else outputs


def softmax(b: Builder, name: str, x: str, axes: Sequence[int], kind: str) -> str:
    """Add softmax or log-softmax along an axis of a sample, or along its last axes together.

    If it covers all entries, it is marked as a possible probability head.
    """
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
    """Return the error for a model that ends in an argmax."""
    return ModelError(
        f"the model ends in {op} (node {node!r}): it names a class and not by how much, expected the logits: hand over "
        "the network before it"
    )


def output_shape_error(what: str, shape: Sequence[int]) -> ModelError:
    """Return the error for a model or file whose output for one sample does not have the shape (classes,)."""
    got = ", ".join(map(str, ("N", *shape)))
    return ModelError(f"got a {what} whose output has shape ({got}), expected logits of shape (N, classes)")


def without_probability_head(b: Builder, output: str) -> tuple[str, str | None]:
    """Return the output without its probability head, and the head's name in `PROBABILITY_HEADS` (None: no head).

    Only reshapes may follow the head.
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
