"""Samples of a torch DataLoader: all batches are read once and joined in their order."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from proofmap.errors import InputError

_EXPECTED = "batches of samples x, or of pairs (x, y), whose labels y are not used"


def samples_of_loader(loader: DataLoader[Any]) -> Tensor:
    """Return the samples of all batches as one tensor (N, *shape), on the device of the batches.

    A batch is a tensor, or a list or tuple (x,) or (x, y). Labels are left out: `target` names the explained classes.
    """
    if isinstance(loader.sampler, RandomSampler):
        raise InputError(
            "got a DataLoader with shuffle=True, expected a fixed order of samples, so that result k is about sample k "
            "of the data set: use shuffle=False"
        )
    batches = [_samples(batch, k) for k, batch in enumerate(loader)]
    if not batches:
        raise InputError("got a DataLoader without batches, expected at least one sample")
    first = batches[0]
    for k, batch in enumerate(batches):
        if batch.shape[1:] != first.shape[1:] or batch.dtype != first.dtype or not batch.ndim:
            raise InputError(
                f"got a DataLoader with samples {batch.dtype} of shape {tuple(batch.shape[1:])} in batch {k}, expected "
                f"{first.dtype} of shape {tuple(first.shape[1:])} as in batch 0"
            )
    return torch.cat(batches)


def _samples(batch: Any, k: int) -> Tensor:
    """Return the samples of batch k."""
    if isinstance(batch, list | tuple) and len(batch) in (1, 2):
        batch = batch[0]
    if not isinstance(batch, Tensor):
        parts = f" of {len(batch)} parts" if isinstance(batch, list | tuple | dict) else ""
        raise InputError(
            f"got a DataLoader whose batch {k} is a {type(batch).__name__}{parts}, expected {_EXPECTED}: change its "
            "collate_fn, or wrap the model in a module with one input"
        )
    return batch.detach()
