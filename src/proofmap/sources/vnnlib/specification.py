"""VNN-LIB 1.0: a box of a network's inputs, and what must not be true of its outputs there.

    (declare-const X_0 Real) ... (declare-const Y_0 Real) ...
    (assert (<= X_0 0.5)) (assert (>= X_0 0.25)) (assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0))))

A file describes its counterexamples: an input, with the outputs that the network gives it, for which every assertion is
true. There are `and` and `or`, nested; inputs between two numbers; and <=, >=, < and > between linear forms of outputs,
of +, - and * with numbers. Inputs inside an `or` make several boxes. Anything else is refused by name.
(Guidotti et al. 2020, "The VNN-LIB standard", https://www.vnnlib.org)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import FileError
from proofmap.sources.limited_reads import read_text
from proofmap.sources.preparation import Preparation
from proofmap.sources.sample_shapes import arrange
from proofmap.sources.vnnlib.assertions import Assertions, Row, Stated
from proofmap.verify.property import Region, Unsafe

_LIMIT = 2**26  # bytes of text: half a million inputs


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between two: its middle, and the distance to its faces, for a ball of the norm inf."""

    lower: Tensor  # (*shape) float64
    upper: Tensor

    @property
    def centre(self) -> Tensor:
        """(*shape) float32."""
        return ((self.lower + self.upper) / 2).float()

    @property
    def radius(self) -> Tensor:
        """(*shape) float32, rounded up: what is within it of the centre holds the box."""
        exact = torch.maximum(self.upper - self.centre.double(), self.centre.double() - self.lower)
        up = torch.nextafter(exact.float(), torch.tensor(inf))
        return torch.where(exact > 0, up, 0.0)


def read_box(path: Path, preparation: Preparation) -> Box:
    """The one box of a VNN-LIB file, plain or packed by gzip, in the shape of the samples of a network.

    What is said of the outputs is checked for its form alone.
    """
    boxes = _read(path).boxes()
    if len(boxes) > 1:
        raise FileError(f"{path} allows one box of inputs or another, expected one: split the file")
    return Box(*_ends(boxes[0], preparation, path))


def read_specification(path: Path, preparation: Preparation) -> tuple[Region, ...]:
    """What must not happen by a VNN-LIB file: boxes in the shape of the samples of a network, with cases of outputs."""
    specification = _read(path)
    boxes = specification.boxes()
    stated = [bool(rows) for box in boxes for rows in box.cases]
    if not all(stated):
        where = "in one of its cases nothing" if any(stated) else "nothing"
        raise FileError(f"{path} asserts {where} of the outputs, expected what must not be true of Y_0, Y_1 and so on")
    outputs = specification.outputs
    return tuple(
        Region(*_ends(box, preparation, path), tuple(_unsafe(rows, outputs) for rows in box.cases)) for box in boxes
    )


def _read(path: Path) -> Assertions:
    return Assertions.read(read_text(path, _LIMIT), str(path))


def _ends(box: Stated, preparation: Preparation, path: Path) -> tuple[Tensor, Tensor]:
    """(*shape) float64."""
    ends = [arrange(np.array(end), preparation, str(path)) for end in (box.lower, box.upper)]
    lower, upper = (torch.from_numpy(np.ascontiguousarray(end)) for end in ends)
    return lower, upper


def _unsafe(rows: list[Row], outputs: int) -> Unsafe:
    weight = [[float(row.coefficients.get(k, 0)) for k in range(outputs)] for row in rows]
    bias, strict = [float(row.constant) for row in rows], [row.strict for row in rows]
    return Unsafe(
        torch.tensor(weight, dtype=torch.float64), torch.tensor(bias, dtype=torch.float64), torch.tensor(strict)
    )
