"""VNN-LIB specifications, versions 1.0 and 2.0: boxes of inputs, and conditions that no output may satisfy there.

    (declare-const X_0 Real) ... (declare-const Y_0 Real) ...
    (assert (<= X_0 0.5)) (assert (>= X_0 0.25)) (assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0))))

A file describes its counterexamples: inputs for which every assertion is true. An assertion limits an input by a
number, or compares linear forms of the outputs by <=, >=, < or >. Assertions may be nested in `and` and `or`. If an
`or` contains inputs, the file describes several boxes. The error for any other expression names it.
(Guidotti et al. 2020, "The VNN-LIB standard", https://www.vnnlib.org)

Version 2.0 declares tensors, and names their elements by all indices, from 0:

    (vnnlib-version <2.0>)
    (declare-network f (declare-input X float32 [1,1]) (declare-output Y float32 [1,2]))
    (assert (and (>= X[0,0] 0.25) (<= (* 2.0 X[0,0]) 1.0))) (assert (or (> Y[0,1] Y[0,0]) (== Y[0,0] 0.5)))

It is read for one network with one input and one output. `==` is <= and >=, and `!=` is < or >. Refused by name are
products of variables, hidden tensors, several networks, inputs or outputs, strict limits of inputs, and element types
other than real, float32 and float64.
"""

from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import FileError
from proofmap.sources.limited_reads import read_text
from proofmap.sources.preparation import Preparation
from proofmap.sources.sample_shapes import arrange, in_layout
from proofmap.sources.vnnlib.assertions import Assertions, Row, Stated
from proofmap.sources.vnnlib.declared_variables import Shape
from proofmap.verify.property import Region, Unsafe

_MAX_FILE_BYTES = 2**26  # enough for half a million inputs


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between two corners, with its centre and its radius for a ball of norm inf."""

    lower: Tensor  # (*shape) float64
    upper: Tensor

    @property
    def centre(self) -> Tensor:
        """The centre, (*shape) float32."""
        return ((self.lower + self.upper) / 2).float()

    @property
    def radius(self) -> Tensor:
        """The distance to the faces, (*shape) float32, rounded up: the ball around the centre contains the box."""
        exact = torch.maximum(self.upper - self.centre.double(), self.centre.double() - self.lower)
        up = torch.nextafter(exact.float(), torch.tensor(inf))
        return torch.where(exact > 0, up, 0.0)


def read_box(path: Path, preparation: Preparation) -> Box:
    """Read the only box of a VNN-LIB file, plain or packed by gzip, in the shape of a network's samples.

    Assertions about the outputs must be well formed and are otherwise ignored.
    """
    specification = _read(path)
    boxes = specification.boxes()
    _check_input(path, specification, preparation)
    if len(boxes) > 1:
        raise FileError(f"{path} allows one box of inputs or another, expected one: split the file")
    return Box(*_ends(boxes[0], preparation, path))


@dataclass(frozen=True, eq=False)
class Specification:
    """The regions of a file, and the declared shape of the outputs; None in version 1."""

    regions: tuple[Region, ...]
    output_shape: Shape | None


def read_specification(path: Path, preparation: Preparation) -> tuple[Region, ...]:
    """Read a VNN-LIB file: boxes in the shape of a network's samples, with the unsafe cases of the outputs."""
    return read_declared(path, preparation).regions


def read_declared(path: Path, preparation: Preparation) -> Specification:
    """Read a VNN-LIB file with the shape of the outputs that it declares."""
    specification = _read(path)
    boxes = specification.boxes()
    _check_input(path, specification, preparation)
    stated = [bool(rows) for box in boxes for rows in box.cases]
    if not all(stated):
        where = "in one of its cases nothing" if any(stated) else "nothing"
        raise FileError(f"{path} asserts {where} about the outputs, expected a condition on Y_0, Y_1 and so on")
    outputs = specification.outputs
    regions = tuple(
        Region(*_ends(box, preparation, path), tuple(_unsafe(rows, outputs) for rows in box.cases)) for box in boxes
    )
    return Specification(regions, specification.shapes[1])


def _check_input(path: Path, specification: Assertions, preparation: Preparation) -> None:
    own = preparation.shape
    check_shape(path, "input", specification.shapes[0], None if own is None else in_layout(own, preparation))


def check_shape(path: Path, what: str, declared: Shape | None, own: Shape | None) -> None:
    """Raise FileError if the declared shape of the input or output is not that of the network.

    own: the network's shape for one sample. An axis for one sample may precede it, and axes of length 1 do not count.
    """
    if declared is None or own is None:
        return
    if [n for n in declared if n != 1] != [n for n in own if n != 1]:
        expected = f"[1, {str(list(own))[1:]}"
        raise FileError(
            f"{path} declares an {what} of shape {list(declared)}, expected {expected}, that of the network"
        )


def _read(path: Path) -> Assertions:
    return Assertions.read(read_text(path, _MAX_FILE_BYTES), str(path))


def _ends(box: Stated, preparation: Preparation, path: Path) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper corner, (*shape) float64."""
    ends = [arrange(end, preparation, str(path)) for end in (box.lower, box.upper)]
    lower, upper = (torch.from_numpy(np.ascontiguousarray(end)) for end in ends)
    return lower, upper


def _unsafe(rows: list[Row], outputs: int) -> Unsafe:
    weight = [[float(row.coefficients.get(k, 0)) for k in range(outputs)] for row in rows]
    bias, strict = [float(row.constant) for row in rows], [row.strict for row in rows]
    return Unsafe(
        torch.tensor(weight, dtype=torch.float64), torch.tensor(bias, dtype=torch.float64), torch.tensor(strict)
    )
