"""The variables of a metric: groups of entries that are deleted, inserted, chosen or moved together.

A pixel of an image, with all its channels, is one variable, as in the paper and in Xplique; of any other shape, each
entry is one. Quantus takes each entry of an image for itself. Any grouping of `pm.groups`, or a mask, may stand in
their place. For ranks a variable's attribution is the mean over its entries; sums over variables are sums over their
entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.inputs.groups import Groups, Shape, mask_of

__all__ = ["Entries", "Variables"]


@dataclass(frozen=True)
class Entries:
    """A grouping: each entry alone, the channels of a pixel apart.

    >>> pm.metrics.Entries()((3, 2, 2)).unique().numel()        # channels apart
    12
    """

    def __call__(self, shape: Shape) -> Tensor:
        """Number the entries in the order of memory."""
        return torch.arange(torch.Size(shape).numel()).reshape(shape)


@dataclass(frozen=True, eq=False)
class Variables:
    """The variables of some samples; where all have the same, once for all of them."""

    ids: Tensor  # (1 or N, d) int64: the variable of each entry
    sizes: Tensor  # (1 or N, G) the entries of each variable; 0 where a sample lacks one

    @classmethod
    def of(cls, x: Tensor, groups: Groups) -> Variables:
        """The groups of x (N, *shape)."""
        ids = mask_of(groups, x).flatten(1)
        sizes = torch.zeros(len(ids), int(ids.max()) + 1, dtype=torch.int64, device=x.device)
        return cls(ids, sizes.scatter_add_(1, ids, torch.ones_like(ids)))

    def cut(self, piece: slice) -> Variables:
        """The variables of some samples."""
        return self if len(self.ids) == 1 else Variables(self.ids[piece], self.sizes[piece])

    @property
    def most(self) -> int:
        """G, the largest number of variables of a sample."""
        return self.sizes.shape[1]

    @property
    def counts(self) -> Tensor:
        """How many variables each sample has: (1 or N,)."""
        return (self.sizes > 0).sum(1)

    def sums(self, values: Tensor) -> Tensor:
        """The sum over each variable's entries: (n, *shape) -> (n, G)."""
        flat = values.flatten(1)
        total = flat.new_zeros(len(flat), self.most)
        return total.scatter_add_(1, self.ids.expand(len(flat), -1), flat)

    def ranks(self, attributions: Tensor, ties: Tensor) -> Tensor:
        """Each variable's place, 0 for the most important: (n, *shape) -> (n, G).

        Equal attributions rank in the order of `ties` (n, G), random numbers: a map that says nothing is then a random
        order, not one from the top of the picture to its bottom. Variables that a sample lacks come last.
        """
        mean = (self.sums(attributions) / self.sizes.clamp(min=1)).masked_fill(self.sizes == 0, -torch.inf)
        drawn = ties.argsort(1)
        order = drawn.gather(1, mean.gather(1, drawn).argsort(dim=1, descending=True, stable=True))
        place = torch.arange(self.most, device=order.device).expand_as(order)
        return torch.empty_like(order).scatter_(1, order, place)

    def at_entries(self, values: Tensor) -> Tensor:
        """A value for each entry from one for each variable: (n, m, G) -> (n, m, d)."""
        if len(self.ids) == 1:
            return values[..., self.ids[0]]
        return values.gather(2, self.ids[:, None].expand(-1, values.shape[1], -1))

    def first(self, ranks: Tensor, index: Tensor, steps: int) -> Tensor:
        """Whether each entry is among the first floor(i G / steps) of its sample's G variables, for i of the index.

        ranks (n, G), index (P,) -> (n, P, d) bool.
        """
        many = index * self.counts[:, None] // steps  # (1 or n, P)
        return self.at_entries(ranks[:, None]) < many[:, :, None]
