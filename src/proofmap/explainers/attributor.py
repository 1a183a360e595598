"""What all methods of explanation have in common: one call that gives each variable of each sample a number."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.array_types import tensor_of

__all__ = ["Attributor", "fitted"]


@runtime_checkable
class Attributor(Protocol):
    """Explains decisions by numbers: the larger, the more a variable speaks for the class, or matters to it.

    >>> isinstance(pm.explainers.as_attributor("rise", model), pm.explainers.Attributor)
    True
    """

    def attribute(self, inputs: Tensor, target: int | Tensor | None = None) -> Tensor:
        """The attributions of inputs (N, *shape), of the same shape.

        target: the explained class, one for all or one for each sample; by default the predicted one.
        """
        ...


def fitted(given: Any, x: Tensor, who: str) -> Tensor:
    """What `who` gave for x, in x's shape, type and place: finite numbers, one a variable.

    One a pixel, (N, H, W) or (N, 1, H, W), is spread over the channels of x (N, C, H, W).
    """
    if not isinstance(given, Tensor | np.ndarray):
        raise InputError(
            f"{who} gave a {type(given).__name__}, expected a tensor of x's shape {tuple(x.shape)}: return attributions"
        )
    maps = tensor_of(given) if isinstance(given, np.ndarray) else given.detach()
    pixels = (len(x), *x.shape[2:])
    if x.ndim == 4 and maps.shape in (pixels, (len(x), 1, *x.shape[2:])):
        maps = maps.reshape(len(x), 1, *x.shape[2:]).expand(x.shape)
    if maps.shape != x.shape:
        also = f", or one number a pixel {pixels}" if x.ndim == 4 else ""
        raise InputError(
            f"{who} gave attributions of shape {tuple(maps.shape)}, expected x's shape {tuple(x.shape)}{also}: "
            "reshape them, or enlarge a layer's maps with torch.nn.functional.interpolate"
        )
    if maps.is_complex() or not bool(maps.isfinite().all()):
        raise InputError(
            f"{who} gave attributions with complex, NaN or infinite entries, expected finite numbers: look for "
            "where the model or its gradient is not defined"
        )
    return maps.to(x.device, x.dtype).contiguous()
