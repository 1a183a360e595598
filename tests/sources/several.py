"""Files of a network with two inputs: a module, an ONNX file and samples."""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

IMAGES = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(1))
ROWS = torch.randn(3, 2, generator=torch.Generator().manual_seed(2))
JOINED = torch.cat([IMAGES.flatten(1), ROWS], 1)
_WEIGHTS = torch.randn(18, 5, generator=torch.Generator().manual_seed(3)).numpy() * 0.5
_LAST = torch.randn(5, 3, generator=torch.Generator().manual_seed(4)).numpy()
_CODE = """
import torch
from torch import nn


class Clinic(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.tensor({w}))
        self.register_buffer("v", torch.tensor({v}))
        self.words = nn.Parameter(torch.arange(15.0).reshape(5, 3))

    def forward(self, image, table, tokens=None):
        y = torch.relu(image.flatten(1) @ self.w[:16] + table @ self.w[16:]) @ self.v
        return y if tokens is None else y + torch.nn.functional.embedding(tokens, self.words).sum(1)


def make():
    return Clinic()


def one():
    return nn.Linear(4, 2)
"""


def outputs(joined: Tensor) -> Tensor:
    """Return the outputs of the network at joined vectors."""
    return (joined @ torch.from_numpy(_WEIGHTS)).relu() @ torch.from_numpy(_LAST)


def write_files(folder: Path) -> None:
    """Write net.py, net.onnx, both.npz with labels, image.npy and table.csv."""
    (folder / "net.py").write_text(_CODE.format(w=_WEIGHTS.tolist(), v=_LAST.tolist()))
    nodes = [
        helper.make_node("Flatten", ["image"], ["f"]),
        helper.make_node("MatMul", ["f", "a"], ["g"]),
        helper.make_node("MatMul", ["table", "b"], ["h"]),
        helper.make_node("Add", ["g", "h"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    shapes: dict[str, list[str | int | None]] = {"image": ["n", 1, 4, 4], "table": ["n", 2]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    weights = {"a": _WEIGHTS[:16], "b": _WEIGHTS[16:], "v": _LAST}
    tensors = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in weights.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(nodes, "g", inputs, [result], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    images, rows = IMAGES.numpy(), ROWS.numpy()
    np.savez(folder / "both.npz", image=images, table=rows, labels=outputs(JOINED).argmax(1).numpy())
    np.save(folder / "image.npy", images)
    lines = [",".join(map(repr, row)) for row in rows.astype(float).tolist()]
    (folder / "table.csv").write_text("\n".join(["age,weight", *lines]) + "\n")
