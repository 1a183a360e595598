"""Single operations as ONNX files: built in each opset, run by onnxruntime, and read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from proofmap.graph import Graph
from tests.graph.onnx.files import NEWEST, Array, assert_same, floats, make

node = helper.make_node

NONE = np.zeros(0, dtype=np.float32)
OPSETS = (7, 9, 11, 13, 18, NEWEST)


@dataclass(frozen=True)
class Spec:
    """Nodes from x to h, for the opsets in which their form changed."""

    label: str
    shape: tuple[int, ...]
    build: Callable[[int], list[onnx.NodeProto]]
    constants: dict[str, Any] = field(default_factory=dict)
    opsets: Sequence[int] = OPSETS
    batch: int | str = "n"


def fixed(
    label: str,
    shape: tuple[int, ...],
    nodes: list[onnx.NodeProto],
    constants: dict[str, Any],
    opsets: Sequence[int] = OPSETS,
    batch: int | str = "n",
) -> Spec:
    """Return nodes that are the same in every opset."""
    return Spec(label, shape, lambda opset: nodes, constants, opsets, batch)


def one(label: str, shape: tuple[int, ...], *constants: Any, opsets: Sequence[int] = OPSETS, **attributes: Any) -> Spec:
    """Return a spec of one node that reads x and constants. The label starts with the operator."""
    names = {f"c{k}": constant for k, constant in enumerate(constants)}
    return fixed(label, shape, [node(label.partition(" ")[0], ["x", *names], ["h"], **attributes)], names, opsets)


def moved(
    label: str,
    shape: tuple[int, ...],
    since: int,
    values: dict[str, Array],
    *,
    opsets: Sequence[int] = OPSETS,
    **also: Any,
) -> Spec:
    """Return a spec of one node whose values are attributes before opset `since` and inputs from then on."""
    names = {f"c{k}": value for k, value in enumerate(values.values())}
    plain = {key: value.tolist() for key, value in values.items()}
    op = label.partition(" ")[0]

    def build(opset: int) -> list[onnx.NodeProto]:
        if opset >= since:
            return [node(op, ["x", *names], ["h"], **also)]
        return [node(op, ["x"], ["h"], **plain, **also)]

    return Spec(label, shape, build, names, opsets)


def several(label: str, *nodes: onnx.NodeProto, shape: tuple[int, ...] = (4,), opsets: Sequence[int] = (8, 13)) -> Spec:
    """Return a spec of nodes that also read c, a constant like x, and r, which is relu(x)."""
    return fixed(label, shape, [node("Relu", ["x"], ["r"]), *nodes], {"c": floats(1, *shape)}, opsets)


def cases(*specs: Spec, opsets: Sequence[int] | None = None) -> list[Any]:
    """Return pytest parameters, one for each operation and opset."""
    pairs = [(spec, opset) for spec in specs for opset in opsets or spec.opsets]
    return [pytest.param(spec, opset, id=f"{spec.label} {opset}") for spec, opset in pairs]


def assert_read(spec: Spec, opset: int, folder: Path) -> Graph:
    """Check that the loaded operation agrees with onnxruntime."""
    nodes = [*spec.build(opset), node("Flatten", ["h"], ["y"])]
    read = {name for n in nodes for name in n.input}
    constants = {name: np.asarray(value) for name, value in spec.constants.items() if name in read}
    return assert_same(make(nodes, (spec.batch, *spec.shape), constants, opset=opset), folder)
