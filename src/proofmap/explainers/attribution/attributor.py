"""The protocol `Attributor`: one call that returns a number for each variable of each sample; checks of its result."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.array_types import to_tensor


@runtime_checkable
class Attributor(Protocol):
    """An explanation method: the larger its number for a variable, the more the variable supports the class or matters.

    >>> isinstance(pm.explainers.as_attributor("rise", model), pm.explainers.Attributor)
    True
    """

    def attribute(self, inputs: Tensor, target: int | Tensor | None = None) -> Tensor:
        """Return the attributions of inputs (N, *shape), in the same shape.

        target: the explained class, one for all samples or one per sample; by default the predicted one.
        """
        ...


def checked_maps(given: Any, x: Tensor, who: str) -> Tensor:
    """Return the attributions that `who` gave for x in x's shape, dtype and device; raise InputError if they misfit.

    Maps with one number per pixel, (N, H, W) or (N, 1, H, W), are copied to the channels of x (N, C, H, W).
    """
    if not isinstance(given, Tensor | np.ndarray):
        raise InputError(
            f"{who} gave a {type(given).__name__}, expected a tensor of x's shape {tuple(x.shape)}: return attributions"
        )
    maps = to_tensor(given) if isinstance(given, np.ndarray) else given.detach()
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
