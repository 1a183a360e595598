"""The variables of a metric: groups of entries that are deleted, inserted or perturbed together.

By default a pixel with all its channels is one variable, as in the paper and in Xplique. In samples that are not
images, each entry is one variable. In Quantus, each entry of an image is a variable. A setting can be any grouping of
`pm.groups` or a mask. Ranks use the mean attribution over the entries of a variable, and sums use the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.inputs.groups import Groups, Shape, mask_of


@dataclass(frozen=True)
class Entries:
    """A grouping in which each entry is a group, also each channel of a pixel.

    >>> pm.metrics.Entries()((3, 2, 2)).unique().numel()        # one group per channel and pixel
    12
    """

    def __call__(self, shape: Shape) -> Tensor:
        """Number the entries in the order of memory."""
        return torch.arange(torch.Size(shape).numel()).reshape(shape)


@dataclass(frozen=True, eq=False)
class Variables:
    """The variables of samples; stored once if all samples have the same variables."""

    ids: Tensor  # (1 or N, d) int64: the variable of each entry
    sizes: Tensor  # (1 or N, G) the number of entries of each variable; 0 if a sample lacks the variable

    @classmethod
    def of(cls, x: Tensor, groups: Groups) -> Variables:
        """Return the variables of x (N, *shape)."""
        ids = mask_of(groups, x).flatten(1)
        sizes = torch.zeros(len(ids), int(ids.max()) + 1, dtype=torch.int64, device=x.device)
        return cls(ids, sizes.scatter_add_(1, ids, torch.ones_like(ids)))

    def cut(self, piece: slice) -> Variables:
        """Return the variables of some samples."""
        return self if len(self.ids) == 1 else Variables(self.ids[piece], self.sizes[piece])

    @property
    def most(self) -> int:
        """The largest number G of variables of a sample."""
        return self.sizes.shape[1]

    @property
    def counts(self) -> Tensor:
        """The number of variables of each sample: (1 or N,)."""
        return (self.sizes > 0).sum(1)

    def sums(self, values: Tensor) -> Tensor:
        """Sum over the entries of each variable: (n, *shape) -> (n, G)."""
        flat = values.flatten(1)
        total = flat.new_zeros(len(flat), self.most)
        return total.scatter_add_(1, self.ids.expand(len(flat), -1), flat)

    def ranks(self, attributions: Tensor, ties: Tensor) -> Tensor:
        """Return the rank of each variable, 0 for the most important: (n, *shape) -> (n, G).

        Equal attributions are ordered by the random numbers `ties` (n, G). So a constant map gives a random order, not
        the order of rows. Variables that a sample lacks come last.
        """
        mean = (self.sums(attributions) / self.sizes.clamp(min=1)).masked_fill(self.sizes == 0, -torch.inf)
        drawn = ties.argsort(1)
        order = drawn.gather(1, mean.gather(1, drawn).argsort(dim=1, descending=True, stable=True))
        place = torch.arange(self.most, device=order.device).expand_as(order)
        return torch.empty_like(order).scatter_(1, order, place)

    def at_entries(self, values: Tensor) -> Tensor:
        """Copy the value of each variable to its entries: (n, m, G) -> (n, m, d)."""
        if len(self.ids) == 1:
            return values[..., self.ids[0]]
        return values.gather(2, self.ids[:, None].expand(-1, values.shape[1], -1))

    def first(self, ranks: Tensor, index: Tensor, steps: int) -> Tensor:
        """Return whether an entry is in the first floor(i G / steps) of its sample's G variables, for i in `index`.

        ranks (n, G), index (P,) -> (n, P, d) bool.
        """
        many = index * self.counts[:, None] // steps  # (1 or n, P)
        return self.at_entries(ranks[:, None]) < many[:, :, None]
