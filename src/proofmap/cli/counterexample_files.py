"""The points that verify found: the numbers as npy, the picture that they are, and a record of what they show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from proofmap.cli.options.shared_options import make_folder
from proofmap.sources import Model, Preparation, Rerun, rerun
from proofmap.sources.sample_shapes import Array, planes

__all__ = ["Points", "values_of"]


@dataclass(frozen=True, eq=False)
class Points:
    """A folder for points, made when the first is found, and who confirms them."""

    folder: Path
    model: Model

    @cached_property
    def run(self) -> Rerun:
        """The model as its user runs it."""
        return rerun(self.model)

    @property
    def confirmed(self) -> str:
        """Who has run the model at the points."""
        alone = " alone, without onnxruntime" if self.run.by == "proofmap" else ""
        return f"confirmed by {self.run.by}{alone}"

    def keep(self, point: Tensor | None, stem: str, entry: dict[str, Any], *, picture: bool) -> dict[str, Any]:
        """The entry with the files that hold the point (*shape), which are written, and who confirmed it.

        As npy it can be given back to a command as an input; the picture is rounded to bytes.
        """
        if point is None:
            return {**entry, "point": None, "picture": None, "confirmed_by": None}
        make_folder(self.folder)
        file = self.folder / f"{stem}.npy"
        np.save(file, values_of(point, self.model.preparation))
        shown = _draw(file.with_suffix(".png"), point, self.model.preparation) if picture else None
        whole = {**entry, "point": str(file), "picture": shown, "confirmed_by": self.run.by}
        file.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        return whole


def values_of(point: Tensor, preparation: Preparation) -> Array:
    """A sample (*shape) in the order of the model's layout, in float64 where a float32 would be another point."""
    values = point.cpu().numpy()
    narrow = values.astype(np.float32)
    kept = narrow if np.array_equal(narrow, values) else values
    return np.ascontiguousarray(planes(kept, preparation))


def _draw(file: Path, point: Tensor, preparation: Preparation) -> str | None:
    """The file's name; None where the point is no picture."""
    if point.ndim != 3 or point.shape[0] not in (1, 3):
        return None
    low, high = preparation.range
    shades = ((point.cpu().double() - low) / (high - low) * 255).round().clamp(0, 255)
    pixels = shades.byte().permute(1, 2, 0).numpy()
    Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0]).save(file)
    return str(file)
