"""Files of counterexamples that `proofmap verify` found: npy, picture and a JSON record."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from proofmap.cli.options.shared_options import make_folder
from proofmap.inputs.several_inputs import inputs_at
from proofmap.sources import Model, Preparation, Rerun, rerun
from proofmap.sources.sample_shapes import Array, planes


@dataclass(frozen=True, eq=False)
class Points:
    """The folder of counterexamples, created with the first one, and the model that confirms them."""

    folder: Path
    model: Model

    @cached_property
    def run(self) -> Rerun:
        """The model in the form that its user runs."""
        return rerun(self.model)

    @property
    def confirmed(self) -> str:
        """Name the software that ran the model at the points."""
        alone = " alone, without onnxruntime" if self.run.by == "proofmap" else ""
        return f"confirmed by {self.run.by}{alone}"

    def keep(self, point: Tensor | None, stem: str, entry: dict[str, Any], *, picture: bool) -> dict[str, Any]:
        """Write the point (*shape), and return the entry with its files and the software that confirmed it.

        The npy file can be an input of other commands; for several inputs it is an npz file. The picture is rounded to
        bytes.
        """
        if point is None:
            return {**entry, "point": None, "picture": None, "confirmed_by": None}
        make_folder(self.folder)
        if self.model.parts:
            file, shown = self.folder / f"{stem}.npz", None
            values = inputs_at(point[None], self.model.parts)
            named = {part.name: value for part, value in zip(self.model.parts, values, strict=True)}
            np.savez(file, **{name: value.cpu().numpy() for name, value in named.items()})  # type: ignore[arg-type]
        else:
            file = self.folder / f"{stem}.npy"
            np.save(file, values_of(point, self.model.preparation))
            shown = _draw(file.with_suffix(".png"), point, self.model.preparation) if picture else None
        whole = {**entry, "point": str(file), "picture": shown, "confirmed_by": self.run.by}
        file.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        return whole


def values_of(point: Tensor, preparation: Preparation) -> Array:
    """Return a sample (*shape) in the model's layout; in float64 if float32 cannot represent it."""
    values = point.cpu().numpy()
    narrow = values.astype(np.float32)
    kept = narrow if np.array_equal(narrow, values) else values
    return np.ascontiguousarray(planes(kept, preparation))


def _draw(file: Path, point: Tensor, preparation: Preparation) -> str | None:
    """Draw the point and return the file's name; None if the point is not a picture."""
    if point.ndim != 3 or point.shape[0] not in (1, 3):
        return None
    from PIL import Image

    low, high = preparation.range
    shades = ((point.cpu().double() - low) / (high - low) * 255).round().clamp(0, 255)
    pixels = shades.byte().permute(1, 2, 0).numpy()
    Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0]).save(file)
    return str(file)
