"""Exact uniform sampling from a box cut by an ℓp ball, and Euclidean projection onto it.

Arrays are flat: lower, upper (N, d) with lower <= 0 <= upper, radius (N,), as in `concretise.Sets`. All arithmetic is
in float64.
"""

from dataclasses import replace
from math import ceil, inf, pi, sqrt

import torch
from torch import Tensor

from proofmap.inputs.concretise import CutBoxes

_PROPOSAL_NUMBERS = 2**22  # numbers of one batch of proposals
_TINY = torch.finfo(torch.float64).tiny


def sample_uniform(sets: CutBoxes, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw independent points, exactly uniform on {l <= δ <= u, ||δ||_p <= ε}: (count, N, d) float64."""
    sets = _to_float64(sets)
    lower, upper = sets.lower, sets.upper
    if sets.norm == inf:
        drawn = lower + (upper - lower) * _random((count, *lower.shape), lower, generator)
    else:
        drawn = (_sample_by_rejection if sets.capped else _sample_by_symmetry)(sets, count, generator)
    return drawn.clamp(lower, upper)  # rounding may leave the box


def _to_float64(sets: CutBoxes) -> CutBoxes:
    return replace(sets, lower=sets.lower.double(), upper=sets.upper.double(), radius=sets.radius.double())


def _random(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, device=like.device, generator=generator)


def _sample_by_symmetry(sets: CutBoxes, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw if each side of each variable is either free up to ε or closed, by symmetry from the whole ball.

    Independent y_i with density ~ exp(-|y|^p) give y / ||y||_p, and ε U^(1/d) with U uniform has the distribution of
    the norm.
    """
    lower, upper, norm = sets.lower, sets.upper, sets.norm
    both = (lower < 0) & (upper > 0)
    free = (lower < 0) | (upper > 0)
    shape = (count, *lower.shape)
    if norm == 2:
        size = torch.randn(shape, dtype=torch.float64, device=lower.device, generator=generator).abs()
    else:
        size = -torch.log1p(-_random(shape, lower, generator))
    size = torch.where(free, size, 0)
    flipped = _random(shape, lower, generator) < 0.5
    sign = torch.where(torch.where(both, flipped, lower < 0), -1.0, 1.0)
    free_count = free.sum(dim=1).clamp(min=1)  # (N,)
    length = sets.radius * _random(shape[:2], lower, generator).pow(1 / free_count)  # (count, N)
    total: Tensor = torch.linalg.vector_norm(size, norm, dim=2)
    return sign * size * (length / (total + (total == 0)))[..., None]


def _sample_by_rejection(sets: CutBoxes, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw by rejection from a tilted proposal, in units of ε, because ε² may overflow or underflow.

    Proposal: independent δ_i on [l_i, u_i] with density ~ exp(-τ |δ_i|^p), so jointly ~ exp(-τ ||δ||_p^p) on the box.
    It is accepted with probability exp(τ (||δ||_p^p - ε^p)) inside the ball, and never outside. The product of both is
    constant on box ∩ ball and 0 elsewhere, for every τ >= 0. τ only changes the acceptance rate, which is about 0.5 /
    sqrt(d).
    """
    (samples, variables), norm = sets.lower.shape, sets.norm
    unit = torch.where(sets.radius > 0, sets.radius, 1)
    lower, upper, radius = sets.lower / unit[:, None], sets.upper / unit[:, None], sets.radius / unit
    tilt = _tilt(lower, upper, radius, norm)  # (N,)
    points = torch.empty(count, samples, variables, dtype=torch.float64, device=lower.device)
    filled = torch.zeros(samples, dtype=torch.int64, device=lower.device)
    while len(open_ := (filled < count).nonzero()[:, 0]) > 0:
        wanted = ceil((count - int(filled.min())) * 2 * sqrt(variables))
        batch = max(1, min(wanted, _PROPOSAL_NUMBERS // (len(open_) * variables)))
        random = _random((batch, len(open_), variables), lower, generator)
        proposal = _propose(random, lower[open_], upper[open_], tilt[open_], norm)  # (batch, open, d)
        excess = proposal.abs().pow(norm).sum(dim=2) - radius[open_].pow(norm)  # (batch, open)
        luck = _random((batch, len(open_)), lower, generator).log()
        accepted = (excess <= 0) & (luck <= tilt[open_] * excess)
        place = filled[open_] + accepted.cumsum(dim=0) - 1
        trial, sample = (accepted & (place < count)).nonzero(as_tuple=True)
        points[place[trial, sample], open_[sample]] = proposal[trial, sample]
        filled[open_] = (filled[open_] + accepted.sum(dim=0)).clamp(max=count)
    return points * unit[:, None]


def _propose(random: Tensor, lower: Tensor, upper: Tensor, tilt: Tensor, norm: float) -> Tensor:
    """Map uniform numbers to the density exp(-τ |t|^p) on [l, u] by its inverse distribution function; τ = 0: uniform.

    p = 2: F(t) ~ erf(t sqrt(τ)). p = 1: choose a side of 0 by its mass 1 - exp(-τ |endpoint|), then draw from an
    exponential cut at the endpoint.
    """
    tilted = (tilt > 0)[:, None]
    rate = torch.where(tilt > 0, tilt, 1)[:, None]
    if norm == 2:
        rate = rate.sqrt()
        low, high = torch.erf(rate * lower), torch.erf(rate * upper)
        drawn = torch.erfinv(low + (high - low) * random) / rate
    else:
        right, left = -torch.expm1(-rate * upper), -torch.expm1(rate * lower)
        mass = (left + right) * random
        drawn = torch.where(mass < right, -torch.log1p(-mass), torch.log1p(-(mass - right).clamp(min=0))) / rate
    return torch.where(tilted, drawn, lower + (upper - lower) * random)


def _tilt(lower: Tensor, upper: Tensor, radius: Tensor, norm: float) -> Tensor:
    """Choose τ for each sample so that the proposal has E ||δ||_p^p = ε^p, by bisection: (N,). τ = 0 if the box has
    less.

    E falls with τ. An uncut proposal reaches ε^p at τ = d / (p ε^p), so the cut one needs at most that.
    """
    target = radius.pow(norm)
    high = (lower.shape[1] / (norm * target.clamp(min=_TINY))).log()
    low = high - 25  # nearly the uniform proposal
    needed = _moment(lower, upper, low.exp(), norm) > target
    for _ in range(40):
        middle = (low + high) / 2
        above = _moment(lower, upper, middle.exp(), norm) > target
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return torch.where(needed, high.exp(), 0)


def _moment(lower: Tensor, upper: Tensor, tilt: Tensor, norm: float) -> Tensor:
    """Return E ||δ||_p^p of the proposal: (N,).

    With M the mass of exp(-τ |t|^p) on [l, u], integration by parts gives E |t|^p = (M - Σ c exp(-τ c^p)) / (p τ M).
    The sum is over the two endpoints c = -l, u. For τ -> 0, where this cancels, Σ c^(p+1) / ((p + 1) Σ c) is used.
    """
    rate = tilt[:, None]
    ends = torch.stack([-lower, upper])  # (2, N, d)
    mass = torch.erf(rate.sqrt() * ends) * (pi / rate).sqrt() / 2 if norm == 2 else -torch.expm1(-rate * ends) / rate
    total = mass.sum(dim=0).clamp(min=_TINY)  # (N, d)
    tilted = 1 - (ends * torch.exp(-rate * ends.pow(norm))).sum(dim=0) / total
    even = ends.pow(norm + 1).sum(dim=0) / ((norm + 1) * ends.sum(dim=0).clamp(min=_TINY))
    small = rate * ends.amax(dim=0).pow(norm) < 1e-7
    return torch.where(small, even, tilted / (norm * rate)).sum(dim=1)


def project(points: Tensor, sets: CutBoxes) -> Tensor:
    """Project onto {l <= δ <= u, ||δ||_p <= ε} in the Euclidean sense: (..., N, d) -> the same, float64.

    min ||δ - z||² + µ ||δ||_2² has δ = clip(z / (1 + µ), l, u), and min ||δ - z||² / 2 + µ ||δ||_1 has δ = clip(sign(z)
    (|z| - µ)_+, l, u). The norm falls with µ >= 0, which is found by bisection, from the feasible side.
    """
    sets, points = _to_float64(sets), points.double()
    lower, upper, radius, norm = sets.lower, sets.upper, sets.radius, sets.norm
    clipped = points.clamp(lower, upper)
    if norm == inf:
        return clipped
    points = points * (clipped != 0)  # drop entries that point out of a closed side
    size = torch.linalg.vector_norm(points, dim=-1)  # (..., N)
    if norm == 2:  # 1 / (1 + µ) >= ε / ||z||, with equality if no cap is active
        low = torch.where(size > radius, radius / size, 1)
        if not sets.capped:
            return _shrink_points(points, low, norm).clamp(lower, upper)
    else:
        low = torch.zeros_like(size)
    high = torch.ones_like(size)
    for _ in range(60):
        middle = (low + high) / 2
        moved = _shrink_points(points, middle, norm).clamp(lower, upper)
        feasible = torch.linalg.vector_norm(moved, norm, dim=-1) <= radius
        low, high = torch.where(feasible, middle, low), torch.where(feasible, high, middle)
    return _shrink_points(points, low, norm).clamp(lower, upper)


def _shrink_points(points: Tensor, kept: Tensor, norm: float) -> Tensor:
    """Shrink points towards 0, from unchanged (kept = 1) to 0 (kept = 0).

    p = 2 scales the points. p = 1 soft-thresholds them by µ = (1 - kept) max |z|.
    """
    kept = kept[..., None]
    if norm == 2:
        return points * kept
    size = points.abs()
    return points.sign() * (size - (1 - kept) * size.amax(dim=-1, keepdim=True)).clamp(min=0)
