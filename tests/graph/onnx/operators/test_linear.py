"""ONNX operators that are linear because their positions, masks or factors are constants, against onnxruntime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from proofmap.errors import UnsupportedError
from proofmap.graph import bounded
from tests.graph.onnx.files import Array, floats, ints, loaded, make
from tests.graph.onnx.specs import NONE, Spec, assert_read, fixed, node, one


def scaled(
    op: str, shape: tuple[int, ...], scales: Sequence[float], *, opsets: Sequence[int] = (13,), **how: Any
) -> Spec:
    """A change of size by factors; before opset 11 they are the second input."""
    factors = np.array([1, 1, *scales], dtype=np.float32)
    nodes = [node(op, ["x", "", "s"] if min(opsets) >= 11 else ["x", "s"], ["h"], **how)]
    return fixed(f"{op} {how} {scales}", shape, nodes, {"s": factors}, opsets)


def sized(shape: tuple[int, ...], sizes: Sequence[int], **how: Any) -> Spec:
    nodes = [node("Resize", ["x", "roi", "none", "sizes"], ["h"], **how)]
    constants = {"sizes": ints(1, shape[0], *sizes), "roi": NONE, "none": NONE}
    return fixed(f"Resize {how} to {sizes}", shape, nodes, constants, (13,), batch=1)


COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
RESIZED = [
    *(
        scaled("Resize", (2, 5, 4), factors, opsets=(19,), mode=mode, coordinate_transformation_mode=where)
        for mode in ("linear", "cubic")
        for where in COORDINATES
        for factors in ((1.75, 0.6), (2.0, 3.0), (0.3, 1.1))
    ),
    *(
        sized((2, 5, 4), sizes, mode=mode, coordinate_transformation_mode=where)
        for mode in ("linear", "cubic")
        for where in COORDINATES[:4]
        for sizes in ((7, 3), (1, 9))
    ),
    scaled("Resize", (1, 4, 5), (1.7, 2.0), mode="cubic", cubic_coeff_a=-0.5),
    scaled("Resize", (1, 4, 5), (1.7, 0.6), mode="cubic", exclude_outside=1),
    scaled("Resize", (1, 10), (0.7,), mode="linear"),
    scaled("Resize", (1, 10, 20), (1.3, 0.9)),
    scaled("Resize", (1, 10, 5), (0.7, 1.4), opsets=(10,)),
    scaled("Resize", (2, 5, 4), (0.6, 0.3), opsets=(10,)),
    scaled("Resize", (2, 5, 4), (0.75, 1.75), opsets=(10,)),
    scaled("Resize", (2, 5, 4), (0.6, 1.75), opsets=(10,), mode="linear"),
    scaled("Upsample", (2, 5, 4), (2.0, 1.5), opsets=(9,), mode="linear"),
    scaled("Resize", (1, 2, 3, 2), (2.0, 0.7, 1.5), mode="linear"),
]


def einsum(equation: str, shape: tuple[int, ...], *constants: Array, first: bool = True) -> Spec:
    names = {f"c{k}": constant for k, constant in enumerate(constants)}
    nodes = [node("Einsum", ["x", *names] if first else [*names, "x"], ["h"], equation=equation)]
    return fixed(f"Einsum {equation} {shape}", shape, nodes, names, (12, 13))


def scatter(label: str, shape: tuple[int, ...], index: Array, updates: Array | None, **how: Any) -> Spec:
    """Write a constant, or twice the overwritten entries; for files of one sample."""
    op = label.partition(" ")[0]
    constants = {"i": index} | ({} if updates is None else {"u": updates})
    nodes = [node(op, ["x", "i", "u"], ["h"], **how)]
    if updates is None:
        taken = node("GatherND" if op == "ScatterND" else "GatherElements", ["x", "i"], ["g"])
        if op != "ScatterND":
            taken.attribute.extend([onnx.helper.make_attribute("axis", how["axis"])])
        nodes = [taken, node("Add", ["g", "g"], ["u"]), *nodes]
    opsets = (9,) if op == "Scatter" else (11, 13) if "reduction" not in how else (16, 18)
    return fixed(label, shape, nodes, constants, opsets, batch=1)


def where(label: str, shape: tuple[int, ...], x: str, y: str, constant: Array | None = None) -> Spec:
    """Select from x, relu(x) and a constant."""
    nodes = [node("Relu", ["x"], ["r"]), node("Where", ["m", x, y], ["h"])]
    return fixed(label, shape, nodes, {"m": MASK, "c": constant}, (9, 16))


ROWS = ints(2, -1, 0, 3).reshape(1, 2, 2)  # positions along axis 2
CELLS = ints(0, 1, 2, 0, 0, 3).reshape(2, 3)  # (sample, row, column)
MASK = np.array([[True, False, True], [False, False, True]])

SPECS = [
    *RESIZED,
    einsum("nij,jk->nik", (2, 3), floats(3, 4)),
    einsum("nij,kj->nki", (2, 3), floats(4, 3)),
    einsum("ij,njk->nik", (2, 3), floats(4, 2), first=False),
    einsum("nij,ij->n", (2, 3), floats(2, 3)),
    einsum("nij,ij->nij", (2, 3), floats(2, 3)),
    einsum("nij,i->nj", (2, 3), floats(2)),
    einsum("nij,ik->njk", (2, 3), floats(2, 4)),
    einsum("nij,k->nijk", (2, 3), floats(2)),
    einsum("nij,jk,kl->nil", (2, 3), floats(3, 4), floats(4, 2)),
    einsum("nhij,hjk->nhik", (2, 3, 4), floats(2, 4, 3)),
    einsum("...ij,jk->...ik", (2, 3, 4), floats(4, 3)),
    einsum("n...,...->n...", (2, 3), floats(2, 3)),
    einsum("nii->ni", (3, 3)),
    einsum("nii->n", (3, 3)),
    einsum("nij->nji", (2, 3)),
    einsum("nij->ni", (2, 3)),
    *(
        one(f"CumSum {axis}", (2, 3, 4), np.array(axis), opsets=(11, 14), exclusive=exclusive, reverse=reverse)
        for exclusive in (0, 1)
        for reverse in (0, 1)
        for axis in (1, 2, -1)
    ),
    one("CumSum of one", (1, 2), np.array(1), opsets=(14,), exclusive=1),
    *(one(f"Trilu {k} {up}", (2, 3, 4), np.array(k), opsets=(14,), upper=up) for k in (-1, 0, 2) for up in (0, 1)),
    one("Trilu default", (3, 3), opsets=(14,)),
    one("Col2Im", (8, 4), ints(4, 4), ints(2, 2), opsets=(18,), strides=[2, 2]),
    one("Col2Im overlapping", (4, 20), ints(3, 4), ints(2, 2), opsets=(18,), pads=[1, 1, 1, 1]),
    one("Col2Im dilated", (6, 6), ints(5, 4), ints(2, 3), opsets=(18,), dilations=[2, 1], pads=[0, 0, 0, 0]),
    scatter("ScatterElements", (2, 4), ROWS, floats(1, 2, 2), axis=2),
    scatter("ScatterElements of a branch", (2, 4), ROWS, None, axis=-1),
    scatter("ScatterElements added", (2, 4), ROWS, None, axis=2, reduction="add"),
    scatter("Scatter", (2, 4), ROWS, floats(1, 2, 2), axis=2),
    scatter("ScatterND", (3, 4), CELLS, floats(2)),
    scatter("ScatterND of a branch", (3, 4), CELLS[None], None),
    scatter("ScatterND added", (3, 4), CELLS, floats(2), reduction="add"),
    scatter("ScatterND rows", (3, 4), ints(0, 2).reshape(1, 2), floats(1, 4)),
    where("Where first", (2, 3), "x", "c", floats(2, 3)),
    where("Where last", (2, 3), "c", "x", floats(1, 2, 1)),
    where("Where of a number", (1, 3), "c", "x", floats()),
    where("Where of branches", (2, 3), "r", "x"),
    where("Where of branches that are smaller", (2, 1), "r", "x"),
]  # fmt: skip


def test_unselected_entries_may_be_infinite(tmp_path: Path) -> None:
    nodes = [node("Log", ["c"], ["d"]), node("Where", ["m", "x", "d"], ["h"])]
    constants = {"m": MASK, "c": np.where(MASK, np.float32(0), np.float32(2))}
    assert_read(fixed("Where", (2, 3), nodes, constants), 13, tmp_path)


REFUSED: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "Einsum of several computed values": (
        [node("Einsum", ["x", "x", "x"], ["h"], equation="nij,nij,nij->nij")],
        "of several computed values",
    ),
    "ScatterND with places that repeat": ([node("ScatterND", ["x", "twice", "two"], ["h"])], "with places that repeat"),
    "ScatterND with reduction 'max'": (
        [node("ScatterND", ["x", "cells", "two"], ["h"], reduction="max")],
        "with reduction 'max'",
    ),
    "Resize with antialias": ([node("Resize", ["x", "", "half"], ["h"], mode="linear", antialias=1)], "with antialias"),
    "Resize with coordinates 'tf_crop_and_resize'": (
        [
            node(
                "Resize",
                ["x", "roi", "half"],
                ["h"],
                mode="linear",
                coordinate_transformation_mode="tf_crop_and_resize",
            )
        ],
        "with coordinates 'tf_crop_and_resize'",
    ),
}


@pytest.mark.parametrize(("nodes", "message"), REFUSED.values(), ids=REFUSED)
def test_forms_without_a_rule_are_named(nodes: list[onnx.NodeProto], message: str, tmp_path: Path) -> None:
    """The message starts with the same sentence, whatever else the file contains."""
    constants = {
        "twice": ints(0, 1, 1, 0, 1, 1).reshape(2, 3),
        "cells": CELLS,
        "two": floats(2),
        "half": np.array([1, 1, 0.5], dtype=np.float32),
        "roi": np.array([0, 0, 0, 1, 1, 1], dtype=np.float32),
    }
    used = {name: value for name, value in constants.items() if name in nodes[0].input}
    whole = [*nodes, node("Flatten", ["h"], ["y"])]
    with pytest.raises(UnsupportedError, match=message):
        bounded(loaded(make(whole, (1, 3, 4), used, opset=18), tmp_path))
