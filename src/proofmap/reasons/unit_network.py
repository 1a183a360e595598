"""The network of one sample in the form of its units: values, gradients and attacks on balls with free groups.

On the ball, z = A δ + b + M u with u = σ(z), and the forms of the outputs are a·δ + c + m·u. In exact arithmetic this
is the network itself, so that points are tried at the cost of a few small products.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.graph.ops import compute
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import OneGroupMore, PointNetwork
from proofmap.search.unstable_units import UnitLevel, Units

_TRIED_VALUES = 2**24  # values of units at points with one more free group that are computed at once


@dataclass(frozen=True, eq=False)
class UnitNetwork(PointNetwork):
    """Values of the forms at points δ, (P, d)."""

    units: Units

    @property
    def forms(self) -> int:
        """The number of forms."""
        return len(self.units.rows)

    @property
    def start(self) -> Tensor:
        """δ = 0, (1, d)."""
        return torch.zeros_like(self.units.rows.weight[:1])

    def preactivations(self, delta: Tensor) -> Tensor:
        """Return the affine parts A δ + b of the units' inputs, (P, K)."""
        return torch.addmm(self.units.inputs.bias, delta, self.units.inputs.weight.T)

    def forms_at(self, affine: Tensor, linear: Tensor) -> Tensor:
        """Return the values of the forms (..., R) from the affine parts A δ + b (..., K) and a·δ + c (..., R)."""
        return linear + self._activations(affine)[1] @ self.units.rows.mix.T

    def linear(self, delta: Tensor) -> Tensor:
        """Return the affine parts a·δ + c of the forms, (P, R)."""
        return torch.addmm(self.units.rows.bias, delta, self.units.rows.weight.T)

    def values(self, delta: Tensor) -> Tensor:
        """Return the values of the forms, (P, R)."""
        return self.forms_at(self.preactivations(delta), self.linear(delta))

    def margin(self, delta: Tensor) -> Tensor:
        """Return the largest form's value at each point, (P,)."""
        return self.values(delta).amax(1)

    def gradient(self, delta: Tensor, row: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (the values (P,) of the forms `row`, by default of the largest at each point, their gradients)."""
        units = self.units
        z, u = self._activations(self.preactivations(delta))
        values = self.linear(delta) + u @ units.rows.mix.T
        which = values.argmax(1) if row is None else row
        slopes, c = self._slopes(z), units.rows.mix[which]
        for level in reversed(units.levels):
            k = level.columns
            c[:, k] *= slopes[:, k]
            if level.start:
                c[:, : level.start] += c[:, k] @ units.inputs.mix[k, : level.start]
        form = torch.addmm(units.rows.weight[which], c, units.inputs.weight)
        return values.gather(1, which[:, None]).squeeze(1), form

    def one_group_more(self, balls: FreeBalls, pool: Tensor, groups: Tensor) -> OneGroupMore:
        """Move one more group to a corner. The affine parts of the units change by a sum over its variables."""
        units = self.units
        pool = pool[: max(1, _TRIED_VALUES // max(1, 2 * len(groups) * len(units)))]
        _, form = self.gradient(pool)
        up = form > 0
        corners = torch.where(torch.cat([up, ~up]), balls.upper, balls.lower)  # (2 P, d)
        points = pool.repeat(2, 1)
        affine, linear = self.preactivations(points), self.linear(points)
        values = []
        for corner, z, r in zip(corners, affine, linear, strict=True):
            moved = balls.by_group(corner * units.inputs.weight)[:, groups].T  # (n, K)
            shifted = balls.by_group(corner * units.rows.weight)[:, groups].T
            values.append(self.forms_at(z + moved, r + shifted).amax(1))
        best, which = torch.stack(values).max(0)
        return OneGroupMore(balls, groups, best, corners[which], points[which])

    def _activations(self, affine: Tensor) -> tuple[Tensor, Tensor]:
        """Return (z, u), (..., K) each."""
        mix = self.units.inputs.mix
        if not self.units.deep and all(level.node is None for level in self.units.levels):
            return affine, affine.clamp(min=0)
        z, u = affine.clone(), torch.zeros_like(affine)
        for level in self.units.levels:
            k = level.columns
            if level.start:
                z[..., k] += u[..., : level.start] @ mix[k, : level.start].T
            u[..., k] = _activation(level, z[..., k])
        return z, u

    def outputs_of(self, z: Tensor) -> Tensor:
        """Return u = σ(z) of every unit for given inputs z, (..., K)."""
        u = z.clamp(min=0)
        for level in self.units.levels:
            if level.node is not None:
                u[..., level.columns] = _activation(level, z[..., level.columns])
        return u

    def _slopes(self, z: Tensor) -> Tensor:
        """Return the derivatives of the units, (P, K)."""
        slopes = (z > 0).to(z)
        for level in self.units.levels:
            if level.node is not None:
                with torch.enable_grad():
                    here = z[:, level.columns].detach().requires_grad_()
                    (slopes[:, level.columns],) = torch.autograd.grad(_activation(level, here).sum(), here)
        return slopes


def _activation(level: UnitLevel, z: Tensor) -> Tensor:
    return z.clamp(min=0) if level.node is None else compute(level.node, z)
