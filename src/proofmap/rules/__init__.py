"""The table of rules: how each operation is bounded by intervals, relaxed by linear functions and pulled back."""

from proofmap.rules import discontinuous, linear_operations, maximum, one_bend, piecewise, s_shaped
from proofmap.rules.elementwise_product import ElementwiseProduct
from proofmap.rules.matrix_product import MatrixProduct
from proofmap.rules.maximum_of_two import Larger
from proofmap.rules.rounding_steps import Floor, Round
from proofmap.rules.rule import AffineBounds, Form, Interval, Linear, Nonlinear, Relaxation, Rule
from proofmap.rules.secant_slopes import Change
from proofmap.rules.signs import Sign
from proofmap.rules.softmax import Softmax
from proofmap.rules.waves import Cosine, Sine

__all__ = ["RULES", "AffineBounds", "Form", "Interval", "Linear", "Nonlinear", "Relaxation", "Rule"]

RULES: dict[str, Rule] = {
    "linear": linear_operations.Dense(),
    "matmul": Linear(),
    "conv": linear_operations.Convolution(),
    "conv_transpose": Linear(),
    "affine": linear_operations.Affine(),
    "keep": linear_operations.Affine(),
    "add": linear_operations.Add(),
    "concat": linear_operations.Concat(),
    "sum": Linear(),
    "avg_pool": linear_operations.AvgPool(),
    "adaptive_avg_pool": Linear(),
    "reshape": linear_operations.Reshape(),
    "permute": linear_operations.EntryMove(),
    "expand": Linear(),
    "index": Linear(),
    "slice": linear_operations.Slice(),
    "pad": linear_operations.Pad(),
    "relu": piecewise.ReLU(),
    "leaky_relu": piecewise.LeakyReLU(),
    "clamp": piecewise.Clamp(),
    "abs": piecewise.Absolute(),
    "shrink": discontinuous.Shrink(),
    "threshold": discontinuous.Threshold(),
    "round": Round(),
    "floor": Floor(),
    "sign": Sign(),
    "softplus": discontinuous.Softplus(),
    "elu": s_shaped.Elu(),
    "sigmoid": s_shaped.Sigmoid(),
    "sin": Sine(),
    "cos": Cosine(),
    "tanh": s_shaped.Tanh(),
    "softsign": s_shaped.Softsign(),
    "erf": s_shaped.Erf(),
    "gelu": s_shaped.Swish(reach=10.0),
    "silu": s_shaped.Swish(reach=45.0),
    "mish": s_shaped.Swish(reach=45.0),
    "hardswish": s_shaped.HardSwish(),
    "square": one_bend.Square(),
    "exp": one_bend.Exp(),
    "log": one_bend.Log(),
    "sqrt": one_bend.Sqrt(),
    "rsqrt": one_bend.Rsqrt(),
    "reciprocal": one_bend.Reciprocal(),
    "product": ElementwiseProduct(),
    "contract": MatrixProduct(),
    "softmax": Softmax(),
    "max_pool": maximum.MaxPool(),
    "maximum": maximum.Maximum(),
    "larger": Larger(),
}
RULES["change"] = Change(RULES)
