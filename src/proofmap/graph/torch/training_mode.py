"""Whether a module is in the mode it decides in: dropout and batch norm are other functions in training."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from proofmap.errors import ModelError

__all__ = ["check_mode"]

_PROBE_COPIES = 8  # copies of a sample: dropout of a few values may spare one


def check_mode(model: nn.Module, x: Tensor) -> None:
    """Refuse a model of which a part is in training mode that is another function in evaluation mode.

    Parts of torch's own are known by their class. Others are run in both modes on copies of x (1, *shape); whatever
    they leave on the module is for the caller to take away.
    """
    training = {name: module for name, module in model.named_modules() if module.training}
    parts = list(_mode_dependent_parts(training))
    if not parts and any(not type(m).__module__.startswith("torch.nn") for m in training.values()):
        parts = ["code that computes something else in evaluation mode"] if _differs_in_evaluation(model, x) else []
    if parts:
        raise ModelError(
            f"got a model in training mode with {', '.join(parts)}, expected the function that it decides by: call "
            "model.eval() first"
        )


def _mode_dependent_parts(training: dict[str, nn.Module]) -> Iterator[str]:
    for name, module in training.items():
        drops = isinstance(module, _DropoutNd) and module.p > 0
        inner = isinstance(module, nn.RNNBase | nn.MultiheadAttention) and float(module.dropout) > 0
        norm = isinstance(module, _NormBase) and module.track_running_stats  # else it is the same in both modes
        if drops or inner or norm or isinstance(module, nn.RReLU):
            yield type(module).__name__ + (f" ({name!r})" if name else "")


def _differs_in_evaluation(model: nn.Module, x: Tensor) -> bool:
    """Whether a run as the model is differs from one in evaluation mode; nothing random is drawn for others."""
    modes = [(module, module.training) for module in model.modules()]
    for module in () if isinstance(model, torch.jit.ScriptModule) else model.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.clone()
    rows = x.repeat(_PROBE_COPIES, *(1,) * (x.ndim - 1))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            trained = model(rows)
        except Exception:  # batch norm of one value, ...
            trained = None
        model.eval()
        try:
            other, again = model(rows), model(rows)
        except Exception:  # what is wrong with the model is said by who runs it
            return False
        finally:
            for module, mode in modes:
                module.training = mode
    if not isinstance(other, Tensor) or not _is_close(other, again):
        return False  # no tensor, or random in every mode: not for want of a mode
    return not isinstance(trained, Tensor) or not _is_close(trained, other)


def _is_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
