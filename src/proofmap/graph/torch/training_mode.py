"""Check that a module is in evaluation mode if its training mode is another function (dropout, batch norm)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from proofmap.errors import ModelError

_PROBE_COPIES = 8  # copies of a sample: dropout of few values may leave a single one unchanged


def check_mode(model: nn.Module, x: Tensor) -> None:
    """Raise if a submodule in training mode would be another function in evaluation mode.

    Torch's own modules are known by their class. Others are run in both modes on copies of x (1, *shape); the caller
    must restore attributes that they set.
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
        norm = isinstance(module, _NormBase) and module.track_running_stats  # otherwise both modes are equal
        if drops or inner or norm or isinstance(module, nn.RReLU):
            yield type(module).__name__ + (f" ({name!r})" if name else "")


def _differs_in_evaluation(model: nn.Module, x: Tensor) -> bool:
    """Return whether the model's output differs in evaluation mode. The global random state is kept."""
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
        except Exception:  # a later check reports what is wrong with the model
            return False
        finally:
            for module, mode in modes:
                module.training = mode
    if not isinstance(other, Tensor) or not _is_close(other, again):
        return False  # no tensor, or random in both modes: the mode is not the cause
    return not isinstance(trained, Tensor) or not _is_close(trained, other)


def _is_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
