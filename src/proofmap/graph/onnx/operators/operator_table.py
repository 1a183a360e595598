"""The table of ONNX operators, from opset 7: a converter for each, which adds its nodes to a graph builder."""

from collections.abc import Callable
from math import inf
from typing import Any

import onnx
import torch
from torch import Tensor

from proofmap.graph.builder import scalar_functions
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant, scalar
from proofmap.graph.builder.scatter import select
from proofmap.graph.onnx.operators import comparisons
from proofmap.graph.onnx.operators.layers import LAYER_CONVERTERS
from proofmap.graph.onnx.operators.linear import LINEAR_CONVERTERS
from proofmap.graph.onnx.operators.ml_domain import ML_CONVERTERS
from proofmap.graph.onnx.operators.node_inputs import Call, number, require_computed
from proofmap.graph.onnx.operators.norms import NORM_CONVERTERS
from proofmap.graph.onnx.operators.quantisation import QUANTISATION_CONVERTERS
from proofmap.graph.onnx.operators.recurrent import RECURRENT_CONVERTERS
from proofmap.graph.onnx.operators.reductions import REDUCTION_CONVERTERS
from proofmap.graph.onnx.operators.resizing import RESIZE_CONVERTERS
from proofmap.graph.onnx.operators.shapes import SHAPE_CONVERTERS
from proofmap.graph.ops import PLAIN

_MAX_EXPONENTS = 16  # largest number of different exponents of one Pow node


def _chain(join: Callable[[Builder, str, Value, Value], str]) -> Callable[..., Value]:
    """Return a converter for any number of inputs that joins two at a time."""

    def convert(b: Builder, call: Call, *xs: Value) -> Value:
        total = xs[0]
        for k, x in enumerate(xs[1:], 2):
            if isinstance(total, Tensor) and isinstance(x, Tensor):
                raise NoRule("of several constants")
            total = join(b, call.name if k == len(xs) else f"{call.name}.{k}", total, x)
        return total

    return convert


def _mean(b: Builder, call: Call, *xs: Value) -> str:
    return b.scale(
        call.name, require_computed(_chain(Builder.add)(b, Call(f"{call.name}.sum", "Sum", 0, {}), *xs)), 1 / len(xs)
    )


def _clip(b: Builder, call: Call, x: str, low: Value | None = None, high: Value | None = None) -> str:
    return scalar_functions.clamp(b, call.name, x, number(call, "min", low, -inf), number(call, "max", high, inf))


def _prelu(b: Builder, call: Call, x: Value, slope: Value) -> str:
    x, slope = require_computed(x), require_constant(slope, "slopes")
    return scalar_functions.leaky_relu(b, call.name, x, b.sample_constant(call.name, call.op, slope, b.rank(x)))


def _pow(b: Builder, call: Call, x: Value, exponent: Value) -> str:
    x = require_computed(x)
    powers = b.sample_constant(call.name, call.op, require_constant(exponent, "exponent").double(), b.rank(x))
    x = b.broadcast_to(call.name, x, powers)
    several: list[float] = powers.unique().tolist()
    if len(several) > _MAX_EXPONENTS:
        raise NoRule(f"with more than {_MAX_EXPONENTS} exponents")
    y: Value = _power(b, call.name, x, several[0])
    for k, power in enumerate(several[1:]):
        other = _power(b, f"{call.name}.{k}", x, power)
        mask = torch.eq(powers, power).expand(*(1,) * b.batch_axes, *b.shape(x))
        y = select(b, f"{call.name}.either{k}", mask, other, y)
    return require_computed(y)


def _power(b: Builder, name: str, x: str, exponent: float) -> str:
    return scalar_functions.power(b, name, x, exponent) if exponent else b.affine(name, x, scalar(0.0), scalar(1.0))


def _greater(b: Builder, call: Call, x: Value, y: Value) -> str:
    """Add a placeholder: a comparison has no rule, but `Where` may recognise a pattern that contains it."""
    x = require_computed(x)
    limit = b.sample_constant(call.name, call.op, require_constant(y, "limit").double(), b.rank(x))
    if limit.unique().numel() != 1:
        raise NoRule
    x = b.broadcast_to(call.name, x, limit)
    return b.add_unsupported(call.name, call.op, [x], b.shape(x), above=limit.flatten()[0].item())


def _where(b: Builder, call: Call, condition: Value, x: Value, y: Value) -> Value:
    """Add a selection by a constant mask, or recognise softplus as exporters write it (x above a threshold)."""
    if isinstance(condition, Tensor):
        return select(b, call.name, condition, x, y)
    test, smooth = (
        b.nodes[require_computed(condition)],
        b.nodes[scalar_functions.affine_source(b, require_computed(y))[0]],
    )
    tested = b.nodes[test.inputs[0]]
    # its limit may have a larger shape than the tested value
    inputs = tested.inputs if tested.op == "expand" else test.inputs
    if smooth.op == "softplus" and inputs == smooth.inputs and "above" in test.attributes:
        inner, slope, start = scalar_functions.affine_source(b, smooth.inputs[0])
        _, factor, shift = scalar_functions.affine_source(b, require_computed(y))
        same = scalar_functions.affine_source(b, require_computed(x)) == (
            inner,
            1.0,
            0.0,
        ) and scalar_functions.is_close(b, slope * factor, 1.0)
        if same and start == shift == 0.0:
            cut = scalar_functions.softplus(b, call.name, inner, slope, test.attributes["above"])
            return b.expand(call.name, cut, test.shape)
    raise NoRule


def _cast_like(b: Builder, call: Call, x: Value, like: Value) -> str:
    kind = require_constant(like, "type").dtype
    if kind not in (torch.float32, torch.float64):
        raise NoRule(f"to type {kind}")
    return require_computed(x)


def _dropout(b: Builder, call: Call, x: str, ratio: Value | None = None, training: Value | None = None) -> str:
    if training is not None and bool(require_constant(training, "mode").any()):
        raise NoRule("that stays on in evaluation mode")
    return x


_SCHEMAS = (schema for schema in onnx.defs.get_all_schemas() if schema.domain == "")


def _unary(op: str) -> Callable[..., str]:
    return lambda b, call, x: b.add_node(call.name, op, [x])


CONVERTERS: dict[str, Callable[..., Any]] = {
    **SHAPE_CONVERTERS,
    **RESIZE_CONVERTERS,
    **LINEAR_CONVERTERS,
    **LAYER_CONVERTERS,
    **REDUCTION_CONVERTERS,
    **NORM_CONVERTERS,
    **RECURRENT_CONVERTERS,
    **ML_CONVERTERS,
    **QUANTISATION_CONVERTERS,
    **{schema.name: _unary(schema.name.lower()) for schema in _SCHEMAS if schema.name.lower() in PLAIN},
    "Add": _chain(Builder.add),
    "Sum": _chain(Builder.add),
    "Sub": _chain(Builder.sub),
    "Mul": _chain(scalar_functions.mul),
    "Div": _chain(scalar_functions.div),
    "Max": _chain(scalar_functions.maximum),
    "Min": _chain(scalar_functions.minimum),
    "Mean": _mean,
    "Neg": lambda b, call, x: b.scale(call.name, x, -1.0),
    "Clip": _clip,
    "LeakyRelu": lambda b, call, x: scalar_functions.leaky_relu(b, call.name, x, scalar(call.get("alpha", 0.01))),
    "PRelu": _prelu,
    "Elu": lambda b, call, x: scalar_functions.elu(b, call.name, x, call.get("alpha", 1.0)),
    "Selu": lambda b, call, x: scalar_functions.elu(
        b, call.name, x, *call.get_all(alpha=1.6732631921768188, gamma=1.0507010221481323)
    ),
    "Celu": lambda b, call, x: scalar_functions.elu(
        b, call.name, x, call.get("alpha", 1.0), 1.0, 1 / call.get("alpha", 1.0)
    ),
    "Softplus": lambda b, call, x: scalar_functions.softplus(b, call.name, x),
    "Shrink": lambda b, call, x: scalar_functions.shrink(b, call.name, x, *call.get_all(lambd=0.5, bias=0.0)),
    "ThresholdedRelu": lambda b, call, x: scalar_functions.threshold(b, call.name, x, call.get("alpha", 1.0), 0.0),
    "Gelu": lambda b, call, x: b.add_node(call.name, "gelu", [x], approximate=call.get("approximate", "none")),
    "Swish": lambda b, call, x: scalar_functions.swish(b, call.name, x, call.get("alpha", 1.0)),
    "HardSigmoid": lambda b, call, x: scalar_functions.hard_sigmoid(
        b, call.name, x, *call.get_all(alpha=0.2, beta=0.5)
    ),
    "Sign": lambda b, call, x: scalar_functions.sign(b, call.name, x),
    "Ceil": lambda b, call, x: scalar_functions.ceil(b, call.name, x),
    "Pow": _pow,
    "Log": lambda b, call, x: scalar_functions.log(b, call.name, x),
    "Greater": _greater,
    "Where": _where,
    "Cast": comparisons.cast,
    "ArgMax": comparisons.argmax,
    "OneHot": comparisons.one_hot,
    "Equal": comparisons.equal,
    "CastLike": _cast_like,
    "Dropout": _dropout,
    "Identity": lambda b, call, x: x,
}
