"""VNN-LIB 1.0 specifications: boxes of inputs, and conditions that no output may satisfy there.

    (declare-const X_0 Real) ... (declare-const Y_0 Real) ...
    (assert (<= X_0 0.5)) (assert (>= X_0 0.25)) (assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0))))

A file describes its counterexamples: inputs for which every assertion is true. An assertion limits an input by a
number, or compares linear forms of the outputs by <=, >=, < or >. Assertions may be nested in `and` and `or`. If an
`or` contains inputs, the file describes several boxes. The error for any other expression names it.
(Guidotti et al. 2020, "The VNN-LIB standard", https://www.vnnlib.org)
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
from proofmap.sources.sample_shapes import arrange
from proofmap.sources.vnnlib.assertions import Assertions, Row, Stated
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
    boxes = _read(path).boxes()
    if len(boxes) > 1:
        raise FileError(f"{path} allows one box of inputs or another, expected one: split the file")
    return Box(*_ends(boxes[0], preparation, path))


def read_specification(path: Path, preparation: Preparation) -> tuple[Region, ...]:
    """Read a VNN-LIB file: boxes in the shape of a network's samples, with the unsafe cases of the outputs."""
    specification = _read(path)
    boxes = specification.boxes()
    stated = [bool(rows) for box in boxes for rows in box.cases]
    if not all(stated):
        where = "in one of its cases nothing" if any(stated) else "nothing"
        raise FileError(f"{path} asserts {where} about the outputs, expected a condition on Y_0, Y_1 and so on")
    outputs = specification.outputs
    return tuple(
        Region(*_ends(box, preparation, path), tuple(_unsafe(rows, outputs) for rows in box.cases)) for box in boxes
    )


def _read(path: Path) -> Assertions:
    return Assertions.read(read_text(path, _MAX_FILE_BYTES), str(path))


def _ends(box: Stated, preparation: Preparation, path: Path) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper corner, (*shape) float64."""
    ends = [arrange(np.array(end), preparation, str(path)) for end in (box.lower, box.upper)]
    lower, upper = (torch.from_numpy(np.ascontiguousarray(end)) for end in ends)
    return lower, upper


def _unsafe(rows: list[Row], outputs: int) -> Unsafe:
    weight = [[float(row.coefficients.get(k, 0)) for k in range(outputs)] for row in rows]
    bias, strict = [float(row.constant) for row in rows], [row.strict for row in rows]
    return Unsafe(
        torch.tensor(weight, dtype=torch.float64), torch.tensor(bias, dtype=torch.float64), torch.tensor(strict)
    )
