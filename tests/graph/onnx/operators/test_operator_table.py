"""The table of ONNX operators, each against onnxruntime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from proofmap.graph import bounded
from proofmap.graph.onnx.operators.ml_domain import ML_CONVERTERS
from proofmap.graph.onnx.operators.operator_table import CONVERTERS
from proofmap.graph.onnx.operators.quantisation import QUANTISATION_CONVERTERS
from proofmap.graph.onnx.operators.recurrent import RECURRENT_CONVERTERS
from proofmap.graph.ops import LINEAR
from tests.graph.onnx.files import NEWEST, floats, ints
from tests.graph.onnx.operators.test_linear import SPECS as LINEAR_SPECS
from tests.graph.onnx.operators.test_norms import SPECS as NORM_SPECS
from tests.graph.onnx.specs import NONE, Spec, assert_read, cases, moved, node, one, several


def clip(opset: int) -> list[onnx.NodeProto]:
    return [node("Clip", ["x"], ["h"], min=-0.3, max=0.5) if opset < 11 else node("Clip", ["x", "low", "high"], ["h"])]


def upsample(opset: int) -> list[onnx.NodeProto]:
    if opset < 9:
        return [node("Upsample", ["x"], ["h"], scales=[1.0, 1.0, 2.0, 1.5])]
    if opset < 11:
        return [node("Upsample" if opset == 9 else "Resize", ["x", "scales"], ["h"])]
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [node("Resize", ["x", "roi", "scales"], ["h"], **how)]


def resize(where: str, rounding: str, *, sizes: bool, opsets: Sequence[int] = (11, 13)) -> Spec:
    how = {"coordinate_transformation_mode": where, "nearest_mode": rounding}
    label = f"Resize {where} {rounding}"
    if not sizes:
        scales = np.array([1, 1, 1.75, 0.6], dtype=np.float32)
        nodes = [node("Resize", ["x", "roi", "scales"], ["h"], **how)]
        return Spec(label, (1, 4, 5), lambda opset: nodes, {"scales": scales, "roi": NONE}, opsets)
    nodes = [node("Resize", ["x", "roi", "none", "sizes"], ["h"], **how)]
    return Spec(
        f"{label} to sizes",
        (2, 4, 5),
        lambda opset: nodes,
        {"sizes": ints(1, 2, 7, 3), "roi": NONE, "none": NONE},
        opsets,
        batch=1,
    )


POOLS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_shape": [2, 3]},
    "strides": {"kernel_shape": [2, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]},
    "uneven": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 2]},
    "wide pads": {"kernel_shape": [3, 2], "pads": [2, 1, 2, 1]},
    "same upper": {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "same lower": {"kernel_shape": [2, 4], "strides": [1, 2], "auto_pad": "SAME_LOWER"},
    "valid": {"kernel_shape": [2, 2], "auto_pad": "VALID"},
}
CEIL: dict[str, dict[str, Any]] = {
    "ceil": {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1},
    "ceil uneven": {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [0, 1, 1, 0], "ceil_mode": 1},
    "ceil dropped": {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
}
DILATED: dict[str, Any] = {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [0, 1, 1, 1]}
MAP = (2, 5, 6)

SCALAR_SPECS = [
    one("Relu", (2, 3)),
    one("LeakyRelu", (4,), alpha=0.3),
    one("LeakyRelu default", (4,)),
    one("PRelu", (2, 3), floats(2, 1)),
    one("Elu", (4,), alpha=0.6),
    one("Selu", (4,)),
    one("Selu scaled", (4,), alpha=1.5, gamma=0.9),
    one("Celu", (4,), opsets=(12, NEWEST), alpha=0.7),
    one("Softplus", (4,)),
    one("Softsign", (4,)),
    one("Mish", (4,), opsets=(18, 22)),
    one("ThresholdedRelu", (4,), opsets=(10, 22), alpha=0.3),
    one("ThresholdedRelu default", (4,), opsets=(10,)),
    one("Shrink", (4,), opsets=(9, 13)),
    one("Shrink softly", (4,), opsets=(9,), lambd=0.3, bias=0.3),
    one("Shrink with a jump", (4,), opsets=(9,), lambd=0.3, bias=-0.2),
    several("Mul to mish", node("Softplus", ["x"], ["p"]), node("Tanh", ["p"], ["t"]), node("Mul", ["x", "t"], ["h"])),
    one("Sigmoid", (4,)),
    one("Tanh", (4,)),
    one("Round", (4,), opsets=(11, NEWEST)),
    one("Floor", (4,)),
    one("Ceil", (4,)),
    one("Sign", (4,), opsets=(9, 13)),
    several(
        "Sign twice",
        node("Sign", ["x"], ["s"]),
        node("Add", ["s", "c"], ["a"]),
        node("Sign", ["a"], ["h"]),
        opsets=(9, 13),
    ),
    one("Sin", (4,), opsets=(7, 22)),
    one("Cos", (4,), opsets=(7, 22)),
    one("Erf", (4,), opsets=(9, 13)),
    one("Gelu", (4,), opsets=(20, NEWEST)),
    one("Gelu by tanh", (4,), opsets=(20,), approximate="tanh"),
    one("Swish", (4,), opsets=(24, NEWEST), alpha=1.5),
    one("HardSigmoid", (4,)),
    one("HardSigmoid scaled", (4,), alpha=0.3, beta=0.4),
    one("HardSwish", (4,), opsets=(14, 22)),
    one("Abs", (4,)),
    one("Exp", (4,)),
    one("Neg", (4,)),
    Spec("Clip", (4,), clip, {"low": np.float32(-0.3), "high": np.float32(0.5)}),
    Spec("Clip above", (4,), lambda opset: [node("Clip", ["x", "", "c"], ["h"])], {"c": np.float32(0.5)}, (11, 13)),
    one("Pow", (4,), np.float32(2)),
    one("Pow with an integer", (4,), ints(2), opsets=(12, 13)),
    several("Log Sqrt Reciprocal", *(node(op, [a], [b]) for op, a, b in [
        ("Exp", "x", "e"), ("Sqrt", "e", "s"), ("Reciprocal", "s", "i"), ("Log", "i", "h"),
    ])),
    several("Mul with itself", node("Mul", ["x", "x"], ["h"])),
    several("Mul to silu", node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "x"], ["h"])),
    one("Add", (2, 3), floats(3)),
    one("Add to samples", (2, 3), floats(1, 2, 3)),
    one("Sub", (2, 3), floats(2, 1)),
    one("Mul", (2, 3), floats(1, 1, 3)),
    one("Div", (2, 3), floats(2, 3)),
    several("Sub from a constant", node("Sub", ["c", "x"], ["h"])),
    several("Sub of branches", node("Sub", ["r", "x"], ["h"])),
    several("Div of a constant", node("Exp", ["x"], ["e"]), node("Div", ["c", "e"], ["h"])),
    several("Sum", node("Sum", ["x", "c", "r"], ["h"])),
    several("Sum of one", node("Sum", ["x"], ["h"])),
    several("Mean", node("Mean", ["c", "x", "r"], ["h"])),
    several("Max", node("Neg", ["x"], ["n"]), node("Max", ["x", "n", "c"], ["h"])),
    several("Min", node("Neg", ["x"], ["n"]), node("Min", ["c", "x", "n"], ["h"])),
    one("Identity", (4,)),
    one("Cast", (4,), to=TensorProto.FLOAT),
    one("CastLike", (4,), np.float32(0), opsets=(15, NEWEST)),
    Spec("Dropout", (4,), lambda opset: [node("Dropout", ["x"], ["h", "mask"])]),
]  # fmt: skip

LAYER_SPECS = [
    one("MatMul", (3, 4), floats(4, 2)),
    one("MatMul by a stack", (2, 3, 4), floats(2, 4, 2)),
    several("MatMul left", node("MatMul", ["c", "x"], ["h"]), shape=(3, 3)),
    one("Gemm", (4,), floats(4, 3), floats(3)),
    one("Gemm scaled", (4,), floats(3, 4), floats(1, 3), alpha=0.5, beta=2.0, transB=1),
    one("Gemm without a third", (4,), floats(4, 3), opsets=(11, 13)),
    Spec("Gemm of branches", (3,), lambda opset: [node("Gemm", ["x", "c", "x"], ["h"], beta=0.5)], {"c": floats(3, 3)}),
    one("BatchNormalization", (3, 2, 2), *(np.abs(floats(3, seed=k)) + 0.1 for k in range(4)), epsilon=1e-3),
    one("Conv", (2, 5, 5), floats(4, 2, 3, 3), floats(4), pads=[1, 0, 1, 0], strides=[2, 1]),
    one("Conv uneven", (2, 5, 5), floats(4, 1, 2, 3), pads=[0, 1, 2, 0], group=2, dilations=[2, 1]),
    one("Conv same upper", (1, 5, 6), floats(2, 1, 2, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    one("Conv same lower", (1, 5, 6), floats(2, 1, 4, 2), auto_pad="SAME_LOWER"),
    one("Conv valid", (1, 5), floats(2, 1, 2), auto_pad="VALID"),
    one("Conv of volumes", (1, 3, 3, 3), floats(2, 1, 2, 2, 2), floats(2)),
    one("ConvTranspose", (2, 3, 3), floats(2, 3, 3, 3), floats(3), strides=[2, 2], output_padding=[1, 0]),
    one("ConvTranspose odd", (4, 3, 3), floats(4, 1, 3, 3), floats(2), opsets=(7, 11, 22), pads=[0, 1, 2, 0], group=2),
    one("ConvTranspose same", (1, 3, 3), floats(1, 2, 3, 2), strides=[2, 2], auto_pad="SAME_UPPER"),
    one(
        "ConvTranspose to a size",
        (1, 3, 3),
        floats(1, 2, 4, 3),
        opsets=(7, 11, 22),
        strides=[2, 2],
        output_shape=[7, 6],
    ),
    one("GlobalAveragePool", (2, 3, 4)),
    one("GlobalMaxPool", (2, 3, 4)),
    *(one(f"MaxPool {label}", MAP, opsets=(8, 11, 13), **pool) for label, pool in POOLS.items()),
    *(one(f"MaxPool {label}", MAP, opsets=(11, 13, 22), **pool) for label, pool in CEIL.items()),
    one("MaxPool dilated", (2, 6, 6), opsets=(11, 13), **DILATED),
    *(one(f"AveragePool {label}", MAP, opsets=(7, 11, 13), **pool) for label, pool in POOLS.items()),
    *(one(f"AveragePool {label}", MAP, opsets=(11, 19), **pool) for label, pool in CEIL.items()),
    *(
        one(f"AveragePool counting {label}", MAP, opsets=(11, 19), count_include_pad=1, **pool)
        for label, pool in (POOLS | CEIL).items()
    ),
    one("AveragePool dilated", (2, 6, 6), opsets=(19,), **DILATED),
    moved("ReduceMean", (2, 3, 4), 18, {"axes": ints(1, -1)}, keepdims=0),
    moved("ReduceSum", (2, 3, 4), 13, {"axes": ints(2)}),
    moved("ReduceMax", (2, 3, 4), 18, {"axes": ints(2, 3)}, keepdims=0),
    moved("ReduceMin", (2, 3, 4), 18, {"axes": ints(1)}),
]

SHAPE_SPECS = [
    one("Flatten", (2, 3)),
    one("Flatten from the end", (2, 3), opsets=(11,), axis=-2),
    one("Transpose", (2, 3), perm=[0, 2, 1]),
    one("DepthToSpace", (8, 2, 3), blocksize=2),
    one("DepthToSpace by columns", (8, 2, 3), opsets=(11, 13), blocksize=2, mode="CRD"),
    one("SpaceToDepth", (2, 4, 6), blocksize=2),
    moved("Squeeze", (1, 3, 1), 13, {"axes": ints(1)}),
    Spec("Squeeze all", (1, 3, 1), lambda opset: [node("Squeeze", ["x"], ["h"])], {}, (11, 13), batch=2),
    moved("Unsqueeze", (3,), 13, {"axes": ints(1, 3)}),
    moved("Slice", (5, 4), 10, {"starts": ints(1, -3), "ends": ints(2**40, -1), "axes": ints(1, 2)}),
    moved("Slice of all samples", (5, 4), 10, {"starts": ints(0, 1), "ends": ints(2**62, 3)}),
    one("Slice backwards", (5, 4), ints(-1, 2), ints(-(2**40), 0), ints(1, 2), ints(-2, -1), opsets=(10, 13)),
    one(
        "Slice backwards from before",
        (5, 4),
        ints(-9, -6),
        ints(-9, -(2**40)),
        ints(1, 2),
        ints(-1, -2),
        opsets=(10, 13),
    ),
    one("Slice from before", (5, 4), ints(-9, -6), ints(3, 9), ints(1, 2), ints(2, 3), opsets=(10, 13)),
    one("Gather", (5, 4), ints(0, -1, 2), opsets=(11, 13), axis=1),
    one("Gather one", (5, 4), np.array(3, dtype=np.int64), axis=2),
    one("Gather a grid", (5, 4), ints(0, 1, 3, 3).reshape(2, 2), axis=-1),
    Spec(
        "GatherElements",
        (2, 3),
        lambda opset: [node("GatherElements", ["x", "i"], ["h"], axis=2)],
        {"i": ints(2, -1, 0, 0).reshape(1, 2, 2)},
        (11, 13),
        batch=1,
    ),
    moved("Pad", (2, 3), 11, {"pads": ints(0, 1, 0, 0, 0, 2)}),
    moved("Pad with a value", (2, 3), 11, {"pads": ints(0, 1, 0, 0, 0, 2), "value": np.asarray(np.float32(0.7))}),
    moved("Pad reflect", (2, 3, 4), 11, {"pads": ints(0, 0, 1, 1, 0, 0, 2, 0)}, mode="reflect"),
    moved("Pad edge", (2, 3, 4), 11, {"pads": ints(0, 1, 0, 2, 0, 0, 2, 0)}, mode="edge"),
    moved("Pad crop", (3, 4), 11, {"pads": ints(0, -1, 0, 0, 1, -2)}, opsets=(7, 11, 21)),
    one("Pad wrap", (2, 4), ints(0, 0, 1, 0, 0, 2), opsets=(19,), mode="wrap"),
    one("Pad wrap and crop", (4, 5), ints(0, -1, 3, 0, 2, -2), opsets=(19,), mode="wrap"),
    one("Pad reflect and crop", (4, 5), ints(0, -1, 2, 0, 2, -1), opsets=(19,), mode="reflect"),
    one("Pad edge and crop", (4, 5), ints(0, -2, 3, 0, 3, -1), opsets=(19,), mode="edge"),
    one("Pad along axes", (2, 4), ints(1, 2), np.float32(0), ints(-1), opsets=(18, NEWEST)),
    one("Expand", (1, 4), ints(1, 3, 1), opsets=(8, 13)),
    one("Tile", (2, 3), ints(1, 2, 3)),
    one("Reshape", (2, 6), ints(0, 3, -1)),
    one("Reshape the samples last", (2, 6), ints(-1, 4, 3)),
    Spec(
        "Concat",
        (1, 2),
        lambda opset: [node("Relu", ["x"], ["r"]), node("Concat", ["r", "c", "x"], ["h"], axis=-1)],
        {"c": floats(1, 1, 3)},
        batch=1,
    ),
    several("Split", node("Split", ["x"], ["a", "b"], axis=1), node("Sub", ["a", "b"], ["h"]), opsets=(7, 11, 13)),
    Spec(
        "Upsample",
        (2, 3, 4),
        upsample,
        {"scales": np.array([1, 1, 2, 1.5], dtype=np.float32), "roi": NONE},
        (7, 9, 10, 11, 13),
    ),
    *(
        resize(where, rounding, sizes=sizes)
        for where in ("asymmetric", "half_pixel", "align_corners")
        for rounding in ("floor", "ceil", "round_prefer_floor")
        for sizes in (False, True)
    ),
    resize("pytorch_half_pixel", "round_prefer_ceil", sizes=True),
    resize("tf_half_pixel_for_nn", "floor", sizes=False, opsets=(11,)),
    resize("half_pixel_symmetric", "round_prefer_floor", sizes=False, opsets=(19,)),
]


def split(opset: int) -> list[onnx.NodeProto]:
    if opset < 13:
        return [node("Split", ["x"], ["h", "b"], axis=1, split=[1, 3])]
    return [node("Split", ["x", "sizes"], ["h", "b"], axis=1)]


def computed_shape(opset: int) -> list[onnx.NodeProto]:
    """Reshape to (samples, -1), as exporters write it."""
    gathered = node("Gather", ["s", "zero"], ["g"], axis=0)
    wrap = node("Unsqueeze", ["g", "axes"], ["u"]) if opset >= 13 else node("Unsqueeze", ["g"], ["u"], axes=[0])
    joined = node("Concat", ["u", "minus"], ["t"], axis=0)
    return [node("Shape", ["x"], ["s"]), gathered, wrap, joined, node("Reshape", ["x", "t"], ["h"])]


SHAPE_SPECS += [
    Spec("Split by sizes", (4,), split, {"sizes": ints(1, 3)}),
    Spec(
        "Split unevenly",
        (5,),
        lambda opset: [node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2), node("Identity", ["b"], ["h"])],
        opsets=(18, NEWEST),
    ),
    Spec("Shape", (2, 3), computed_shape, {"zero": np.array(0, dtype=np.int64), "minus": ints(-1), "axes": ints(0)}),
    Spec(
        "Size",
        (2, 3),
        lambda opset: [node("Size", ["x"], ["s"]), node("Cast", ["s"], ["f"], to=1), node("Div", ["x", "f"], ["h"])],
        opsets=(7, 13),
        batch=2,
    ),
    Spec(
        "Shape of a part",
        (2, 3),
        lambda opset: [
            node("Shape", ["x"], ["s"], start=1),
            node("ConstantOfShape", ["s"], ["c"], value=helper.make_tensor("v", 1, [1], [2.5])),
            node("Add", ["x", "c"], ["h"]),
        ],
        opsets=(15, NEWEST),
    ),
    Spec(
        "Constant",
        (2, 3),
        lambda opset: [
            node("Constant", [], ["a"], value=helper.make_tensor("v", 1, [3], [1.0, 2.0, 3.0])),
            node("Neg", ["a"], ["b"]),
            node("Mul", ["x", "b"], ["h"]),
        ],
    ),
]

SPECS = (*SCALAR_SPECS, *LAYER_SPECS, *SHAPE_SPECS, *LINEAR_SPECS, *NORM_SPECS)


@pytest.mark.parametrize(("spec", "opset"), cases(*SPECS))
def test_operator_equals_onnxruntime(spec: Spec, opset: int, tmp_path: Path) -> None:
    graph = bounded(assert_read(spec, opset, tmp_path))
    if spec in LINEAR_SPECS:
        assert {n.op for n in graph.nodes} <= {"input", "relu", *LINEAR}


def test_every_operator_of_the_table_is_tested() -> None:
    """Greater is mostly refused, and no ONNX checker knows SimplifiedLayerNormalization."""
    tested = {n.op_type for spec in SPECS for opset in spec.opsets for n in spec.build(opset)}
    elsewhere = {*ML_CONVERTERS, *RECURRENT_CONVERTERS, *QUANTISATION_CONVERTERS, "Attention", "Softmax", "LogSoftmax"}
    elsewhere |= {"ArgMax", "OneHot", "Equal"}  # in test_comparisons
    assert set(CONVERTERS) - tested == {"Greater", "SimplifiedLayerNormalization", *elsewhere - tested}
