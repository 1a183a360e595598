"""Context managers for full float precision, independent of the user's settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Disable TF32 and bf16 in matrix products and convolutions, and autocast; restore all settings afterwards."""
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
    """Disable libraries that may convolve by Winograd's algorithm or FFT, whose sums differ from plain sums of
    products.
    """
    backends: Any = torch.backends
    before = backends.cudnn.enabled
    try:
        backends.cudnn.enabled = False
        with backends.nnpack.flags(enabled=False):
            yield
    finally:
        backends.cudnn.enabled = before


def _switches() -> list[tuple[Any, str, Any]]:
    """Return (owner, attribute, strict value) of the precision settings.

    Newer torch versions have one flag per backend instead of two. Reading the old flags is an error if the user has set
    the new ones, so the new flags are used where they exist.
    """
    b: Any = torch.backends
    if hasattr(b.cuda.matmul, "fp32_precision"):
        owners = (b.cuda.matmul, b.cudnn.conv, b.mkldnn.matmul, b.mkldnn.conv)
        return [(owner, "fp32_precision", "ieee") for owner in owners]
    return [(b.cuda.matmul, "allow_tf32", False), (b.cudnn, "allow_tf32", False)]
