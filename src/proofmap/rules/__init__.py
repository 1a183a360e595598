"""What each operation means: one file a family, one table."""

from __future__ import annotations

from proofmap.rules.curves import (
    GELU_REACH,
    MISH_REACH,
    SILU_REACH,
    Elu,
    Erf,
    HardSwish,
    Sigmoid,
    Softsign,
    Swish,
    Tanh,
)
from proofmap.rules.jumps import Shrink, Softplus, Threshold
from proofmap.rules.larger import Larger
from proofmap.rules.linear import Add, Affine, AvgPool, Concat, Convolution, Dense, Moving, Pad, Reshape, Slice
from proofmap.rules.maximum import Maximum, MaxPool
from proofmap.rules.piecewise import Absolute, Clamp, LeakyReLU, ReLU
from proofmap.rules.rule import Form, Forms, Interval, Linear, Nonlinear, Relaxation, Rule
from proofmap.rules.smooth import Exp, Log, Reciprocal, Sqrt, Square

__all__ = ["RULES", "Form", "Forms", "Interval", "Linear", "Nonlinear", "Relaxation", "Rule"]

RULES: dict[str, Rule] = {
    "linear": Dense(),
    "matmul": Linear(),
    "conv": Convolution(),
    "conv_transpose": Linear(),
    "affine": Affine(),
    "keep": Affine(),
    "add": Add(),
    "concat": Concat(),
    "sum": Linear(),
    "avg_pool": AvgPool(),
    "adaptive_avg_pool": Linear(),
    "reshape": Reshape(),
    "permute": Moving(),
    "expand": Linear(),
    "index": Linear(),
    "slice": Slice(),
    "pad": Pad(),
    "relu": ReLU(),
    "leaky_relu": LeakyReLU(),
    "clamp": Clamp(),
    "abs": Absolute(),
    "shrink": Shrink(),
    "threshold": Threshold(),
    "elu": Elu(),
    "softplus": Softplus(),
    "sigmoid": Sigmoid(),
    "tanh": Tanh(),
    "softsign": Softsign(),
    "erf": Erf(),
    "gelu": Swish(GELU_REACH),
    "silu": Swish(SILU_REACH),
    "mish": Swish(MISH_REACH),
    "hardswish": HardSwish(),
    "square": Square(),
    "exp": Exp(),
    "log": Log(),
    "sqrt": Sqrt(),
    "reciprocal": Reciprocal(),
    "max_pool": MaxPool(),
    "maximum": Maximum(),
    "larger": Larger(),
}
