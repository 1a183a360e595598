"""Operations on constants, computed by onnx's own evaluator."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
from onnx import NodeProto

from proofmap.errors import ModelError, first_line
from proofmap.graph.build import LargeError
from proofmap.graph.onnx.message import Array

_COMPUTED = 2**24  # numbers in a constant that a file has computed; beyond it the file is damaged


def evaluate(name: str, node: NodeProto, feeds: dict[str, Array], opset: int) -> list[Array]:
    """The value of an operation on constants, as onnx's reference implementation has it."""
    from onnx.reference import ReferenceEvaluator  # slow to import, and not needed by many

    if _growth(node.op_type, list(feeds.values())) > _COMPUTED:
        raise LargeError(f"{node.op_type} (node {name!r}) makes a constant of more than {_COMPUTED} numbers")
    infos = [onnx.helper.make_empty_tensor_value_info(i) for i in feeds]
    outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in node.output if o]
    graph = onnx.helper.make_graph([node], "constant", infos, outputs)
    opsets = [onnx.helper.make_opsetid("", opset)]
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets)).run(None, feeds)
    except Exception as error:
        raise ModelError(
            f"{node.op_type} (node {name!r}) of constants cannot be computed: {first_line(error)}"
        ) from error
    return [np.asarray(result) for result in results]


def _growth(op: str, inputs: list[Array]) -> int:
    """How many numbers an operation makes whose output does not follow from the sizes of its inputs."""
    if op in ("ConstantOfShape", "Expand") and inputs:
        return prod(max(1, int(n)) for n in inputs[-1].flatten())
    if op == "Tile" and len(inputs) == 2:
        return inputs[0].size * prod(max(1, int(n)) for n in inputs[1].flatten())
    if op == "Range" and len(inputs) == 3:
        start, stop, step = (float(i.flatten()[0]) for i in inputs)
        return int(abs((stop - start) / step)) if step else 0
    if op in ("Pad", "OneHot", "Resize", "Upsample", "EyeLike"):
        return (
            _COMPUTED + 1
            if any(i.dtype.kind in "iu" and i.size and int(np.abs(i).max()) > 2**16 for i in inputs)
            else 0
        )
    return 0
