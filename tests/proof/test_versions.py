"""Every operator in every version: the checker reads what onnxruntime runs, and encloses what it computes."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from proofmap.proof import check as checker
from tests.proof.making import Array
from tests.proof.test_check_models import CASES, given, run

# The operators whose attributes became inputs: since when, and by which names.
TURNED = {
    "Clip": (11, ["min", "max"]),
    "Pad": (11, ["pads", "value"]),
    "ReduceMean": (18, ["axes"]),
    "Slice": (10, ["starts", "ends", "axes", "steps"]),
    "Squeeze": (13, ["axes"]),
    "Unsqueeze": (13, ["axes"]),
}
NEGATIVE = {"squeeze one", "unsqueeze", "slice", "gather", "mean over rows"}  # axes or indices: from version 11 on


def written(name: str, opset: int) -> bytes | None:
    """The case as a file of this version; None where ONNX has no such operator."""
    shape, one, tensors = CASES[name]
    node, held = onnx.NodeProto(), dict(tensors)
    node.CopyFrom(one)
    since, names = TURNED.get(node.op_type, (0, []))
    if opset < since:
        inputs = dict(zip(names, node.input[1:], strict=False))
        del node.input[1:]
        for key, source in inputs.items():
            value = held.pop(source).tolist() if source else None
            if key == "steps" and value is not None:
                return None
            node.attribute.extend([] if value is None else [helper.make_attribute(key, value)])
    elif node.op_type == "ReduceMean":
        (axes,) = (each for each in node.attribute if each.name == "axes")
        held["axes"] = np.array(axes.ints)
        node.attribute.remove(axes)
        node.input.append("axes")
    constants = [numpy_helper.from_array(np.asarray(array), key) for key, array in held.items()]
    ends = [helper.make_tensor_value_info(key, 1, sides) for key, sides in (("x", shape), ("y", None))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], constants)
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
    ).SerializeToString()
    return made


def in_onnxruntime(content: bytes, x: Array) -> Any:
    """Return the output of onnxruntime; None if it refuses the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(content, options).run(None, {"x": x})[0]
    except Exception:
        return None


def compared(opset: int) -> int:
    """Return the number of cases that the checker and onnxruntime accept."""
    random, both = np.random.default_rng(opset), 0
    for name, (shape, one, _) in CASES.items():
        content = written(name, opset)
        if content is None:
            continue
        x = random.normal(size=shape).astype(np.float32)
        value = in_onnxruntime(content, x)
        stricter = (name in NEGATIVE and opset < 11) or (one.op_type in ("Max", "Min") and opset < 8)
        if value is None or stricter:
            with pytest.raises(checker.Rejected):
                checker.read_network(content, given(shape))
            continue
        low, high = run(checker.read_network(content, given(shape)), x.reshape(1, *given(shape)))
        if one.op_type != "Softmax":
            assert value.size == low.size, (name, opset)
            assert (low <= value.reshape(1, -1)).all(), (name, opset)
            assert (value.reshape(1, -1) <= high).all(), (name, opset)
        both += 1
    return both


def test_the_first_version() -> None:
    assert compared(7) > 40


@pytest.mark.slow
def test_every_version() -> None:
    assert sum(map(compared, checker.OPSETS)) > 1000
