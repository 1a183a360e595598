"""Small files of every format for the tests."""

import io
import struct
from pathlib import Path

import numpy as np
import torch
from onnx import helper
from PIL import Image
from torch import Tensor

import proofmap as pm
from proofmap.sources import Preparation
from tests.graph.onnx.files import floats, ints, make

GREY = Preparation(size=(28, 28), channels=1, shape=(1, 28, 28))


def digits(count: int) -> tuple[Tensor, list[int]]:
    """Return packaged digits, whose values are multiples of 1/255, and their classes."""
    images, labels = pm.data.digits()
    return images[:count], labels[:count].tolist()


def bytes_of(images: Tensor) -> np.ndarray:
    """Convert (N, 1, 28, 28) in [0, 1] to (N, 28, 28) uint8."""
    found: np.ndarray = (images[:, 0] * 255).round().byte().numpy()
    return found


def write_png(path: Path, image: Tensor) -> Path:
    Image.fromarray(bytes_of(image[None])[0]).save(path)
    return path


def write_idx(path: Path, values: np.ndarray) -> Path:
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes())
    return path


def npy(shape: tuple[int, ...], count: int = 1) -> bytes:
    """Return an npy file with `count` bytes of data and any shape in its header."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return content.getvalue() + bytes(count)


def write_linear(path: Path, shape: tuple[int, ...], classes: int = 3) -> Path:
    """Write an ONNX file: flatten, linear, ReLU, linear."""
    count = int(np.prod(shape))
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v"], ["y"]),
    ]
    constants = {
        "flat": ints(-1, count),
        "w": floats(count, 5),
        "b": floats(5, seed=2),
        "v": floats(5, classes, seed=3),
    }
    path.write_bytes(make(nodes, ("n", *shape), constants).SerializeToString())
    return path


def write_known(path: Path) -> Path:
    """Write an ONNX file of (relu(x_0), x_0 - x_1), whose range over a box is easy to compute."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    w = np.array([[1, -1, 0, 0], [0, 0, 1, -1]], dtype=np.float32)
    v = np.array([[1, 1], [0, -1], [0, -1], [0, 1]], dtype=np.float32)
    path.write_bytes(make(nodes, ("n", 2), {"w": w, "v": v}).SerializeToString())
    return path


def write_convolution(path: Path, side: int = 6) -> Path:
    """Write an ONNX file with the channels last: transpose, convolution, ReLU, flatten, linear."""
    count = 2 * (side - 2) ** 2
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["y"]),
    ]
    constants = {
        "flat": ints(-1, count),
        "w": floats(2, 3, 3, 3),
        "b": floats(2, seed=2),
        "v": floats(count, 3, seed=3),
    }
    path.write_bytes(make(nodes, ("n", side, side, 3), constants).SerializeToString())
    return path


MODULE = """
from torch import nn
from beside import WIDTH

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))

def wrong():
    return 3

def broken():
    return 1 / 0

def stops():
    raise SystemExit("no")
"""


def write_module(folder: Path) -> Path:
    """Write a Python file with functions that return models, and a second file that it imports."""
    (folder / "beside.py").write_text("WIDTH = 5\n")
    path = folder / "module.py"
    path.write_text(MODULE)
    return path


def small_state() -> dict[str, Tensor]:
    """Return weights for the function `small`."""
    torch.manual_seed(0)
    return {
        "1.weight": torch.randn(5, 12),
        "1.bias": torch.randn(5),
        "3.weight": torch.randn(3, 5),
        "3.bias": torch.randn(3),
    }


BOX = """; a box
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (<= X_0 0.5))
(assert (>= X_0 0.25)) ; ends
(assert (and (<= -1e-1 X_1) (>= (- 0.05) X_1)))
(assert (or (and (>= Y_1 Y_0)) (and (>= Y_0 0.5) (<= Y_1 1))))
"""
