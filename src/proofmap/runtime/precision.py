"""Full precision, whatever the user has set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Inside: no TF32 or bf16 in matrix products and convolutions, no autocast. Outside: as before."""
    switches = _switches()
    before = [getattr(owner, name) for owner, name, _ in switches]
    try:
        for owner, name, strict in switches:
            setattr(owner, name, strict)
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for (owner, name, _), value in zip(switches, before, strict=True):
            setattr(owner, name, value)


@contextmanager
def plain_sums() -> Iterator[None]:
    """Inside: no library that may convolve by Winograd's algorithm or FFT, whose sums are not those of the products."""
    backends: Any = torch.backends
    before = backends.cudnn.enabled
    try:
        backends.cudnn.enabled = False
        with backends.nnpack.flags(enabled=False):
            yield
    finally:
        backends.cudnn.enabled = before


def _switches() -> list[tuple[Any, str, Any]]:
    """(owner, attribute, its strict value). Torch replaced the two old flags by one for each backend; reading the old
    ones where somebody has used the new ones is an error, so the new ones come first.
    """
    b: Any = torch.backends
    if hasattr(b.cuda.matmul, "fp32_precision"):
        owners = (b.cuda.matmul, b.cudnn.conv, b.mkldnn.matmul, b.mkldnn.conv)
        return [(owner, "fp32_precision", "ieee") for owner in owners]
    return [(b.cuda.matmul, "allow_tf32", False), (b.cudnn, "allow_tf32", False)]
