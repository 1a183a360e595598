"""Modules that torch.compile has wrapped: they are read and run as their originals, which compute the same.

torch.compile compiles for every new shape, which takes seconds. A proof is about the original module.
"""

from contextlib import AbstractContextManager

import torch
from torch import nn


def eager(model: nn.Module) -> nn.Module:
    """The module inside the wrapper of torch.compile, or the module itself."""
    module: nn.Module = getattr(model, "_orig_mod", model)
    return module


def uncompiled() -> AbstractContextManager[object]:
    """Run compiled parts and functions as their originals: modules may hold some anywhere."""
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
