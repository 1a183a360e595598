"""The table of rules: how each operation is bounded by intervals, relaxed by linear functions and pulled back."""

from __future__ import annotations

from proofmap.rules import discontinuous as jumps
from proofmap.rules import linear_operations as linear
from proofmap.rules import maximum, piecewise
from proofmap.rules import one_bend as smooth
from proofmap.rules import s_shaped as curves
from proofmap.rules.elementwise_product import Product
from proofmap.rules.matrix_product import Contract
from proofmap.rules.maximum_of_two import Larger
from proofmap.rules.rule import Form, Forms, Interval, Linear, Nonlinear, Relaxation, Rule
from proofmap.rules.secant_slopes import Change
from proofmap.rules.softmax import Softmax

__all__ = ["RULES", "Form", "Forms", "Interval", "Linear", "Nonlinear", "Relaxation", "Rule"]

RULES: dict[str, Rule] = {
    "linear": linear.Dense(),
    "matmul": Linear(),
    "conv": linear.Convolution(),
    "conv_transpose": Linear(),
    "affine": linear.Affine(),
    "keep": linear.Affine(),
    "add": linear.Add(),
    "concat": linear.Concat(),
    "sum": Linear(),
    "avg_pool": linear.AvgPool(),
    "adaptive_avg_pool": Linear(),
    "reshape": linear.Reshape(),
    "permute": linear.Moving(),
    "expand": Linear(),
    "index": Linear(),
    "slice": linear.Slice(),
    "pad": linear.Pad(),
    "relu": piecewise.ReLU(),
    "leaky_relu": piecewise.LeakyReLU(),
    "clamp": piecewise.Clamp(),
    "abs": piecewise.Absolute(),
    "shrink": jumps.Shrink(),
    "threshold": jumps.Threshold(),
    "softplus": jumps.Softplus(),
    "elu": curves.Elu(),
    "sigmoid": curves.Sigmoid(),
    "tanh": curves.Tanh(),
    "softsign": curves.Softsign(),
    "erf": curves.Erf(),
    "gelu": curves.Swish(reach=10.0),
    "silu": curves.Swish(reach=45.0),
    "mish": curves.Swish(reach=45.0),
    "hardswish": curves.HardSwish(),
    "square": smooth.Square(),
    "exp": smooth.Exp(),
    "log": smooth.Log(),
    "sqrt": smooth.Sqrt(),
    "rsqrt": smooth.Rsqrt(),
    "reciprocal": smooth.Reciprocal(),
    "product": Product(),
    "contract": Contract(),
    "softmax": Softmax(),
    "max_pool": maximum.MaxPool(),
    "maximum": maximum.Maximum(),
    "larger": Larger(),
}
RULES["change"] = Change(RULES)
