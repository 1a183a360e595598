"""`pm.curve`: the adversarial overlap against ε, bounded from both sides, with the certified radius."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proofmap.bounds import Method
from proofmap.errors import InputError
from proofmap.graph import Network, as_graph, bounded
from proofmap.graph.classes import logits_of, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import in_unit_ball
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import Domains
from proofmap.rounding.crossed_bounds import check_attained, estimate_stored_error
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runtime.memory import budget
from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.storage.exported_tables import data_frame
from proofmap.text.wording import plural
from proofmap.text.wording import radius as rounded_down
from proofmap.verify.overlap import OverlapSettings, attained_value, method_of, two_sided_overlap
from proofmap.verify.radius import Radius, radius, with_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from pandas import DataFrame

    from proofmap.plots.figure_page import Picture

_COLUMNS = (
    "sample",
    "eps",
    "attained",
    "proven",
    "holds",
    "certified_radius",
    "refuted_radius",
)  # columns of the data frame
_RADIUS_WORK_SHARE = 0.5  # share of the progress bar for the radius: about as many bounds as a usual list of ε has


@dataclass(frozen=True, eq=False, repr=False)
class OverlapCurve:
    """Bounds of AO(B_ε) at several radii ε, for each of N samples: lower <= AO(B_ε) <= upper.

    The balls are nested, so AO grows with ε, and both bounds are made to grow with it: an upper bound also holds for
    every smaller ball, and a point in a ball also lies in every larger one. `upper` is below 0 up to the certified
    radius.

    The length of a curve is the number of samples. An index gives the curve of one of them.

    >>> found = pm.curve(model, x[:1], [0.01, 0.05, 0.1], domain=(0.0, 1.0), steps=4)
    >>> bool((found.lower <= found.upper).all()), found.upper[0] < 0
    (True, tensor([ True, False, False]))
    """

    eps: Tensor  # (E,) the radii, ascending
    upper: Tensor  # (N, E) proven upper bounds
    lower: Tensor  # (N, E) values at inputs of the balls
    target: Tensor  # (N,) the class c
    radius: Radius  # the certified radius of each sample, and the distance of the nearest adversary
    norm: float
    domain: tuple[float | Tensor, float | Tensor] | None
    rigorous: bool  # whether both bounds cover all rounding errors

    def __len__(self) -> int:
        return len(self.upper)

    def __getitem__(self, k: int) -> OverlapCurve:
        """Return the curve of one sample."""
        k = operator.index(k)
        if not -len(self) <= k < len(self):
            raise IndexError(f"got sample {k}, expected one of {len(self)}")
        one = slice(k, k + 1 or None)
        found = self.radius
        part = Radius(found.proven[one], found.refuted[one], found.points[one], found.rigorous)
        return replace(self, upper=self.upper[one], lower=self.lower[one], target=self.target[one], radius=part)

    def __repr__(self) -> str:
        low, high = (rounded_down(float(end)) for end in (self.radius.proven.min(), self.radius.proven.max()))
        radii = low if low == high else f"{low} to {high}"
        ends = f"ε from {float(self.eps[0]):g} to {float(self.eps[-1]):g}"
        rounding = "" if self.rigorous else f"; {NOT_COVERED}"
        many = f"{plural(len(self), 'sample')}, {plural(len(self.eps), 'radius', 'radii')}"
        return f"OverlapCurve({many}, {ends}; certified radius {radii}{rounding})"

    def _repr_png_(self) -> bytes | None:
        """Return the figure for notebooks."""
        return self.plot()._repr_png_()

    def to_frame(self) -> DataFrame:
        """Return a tidy pandas frame with one row for each sample and radius.

        `attained` and `proven` are the lower and the upper bound of AO. `holds` tells whether the decision is proven.
        """
        rows = (
            (k, eps, low, high, high < 0, proven, refuted)
            for k, (lower, upper, proven, refuted) in enumerate(
                zip(
                    self.lower.tolist(),
                    self.upper.tolist(),
                    self.radius.proven.tolist(),
                    self.radius.refuted.tolist(),
                    strict=True,
                )
            )
            for eps, low, high in zip(self.eps.tolist(), lower, upper, strict=True)
        )
        return data_frame(_COLUMNS, rows)

    def plot(
        self,
        *,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | Sequence[str] | None = None,
        panels: int | Sequence[int] | None = None,
    ) -> Picture:
        """Draw AO against ε, one panel per sample: the proven upper bound, the attained lower bound, and the radii.

        The titles state up to which radius the decision is proven.

        Args:
            ax: Axes to draw into, one for each panel. By default a new figure.
            cmap: The colour map of the two colours.
            title: The titles, one for each panel.
            panels: The samples to draw, by default the first 12.

        Returns:
            The figure; with `ax`, the figure of these axes.
        """
        from proofmap.plots.curves.curve_figure import draw_overlap_curve  # imports matplotlib, which takes a while
        from proofmap.plots.figure_look import Look

        return draw_overlap_curve(self, Look(ax, cmap, title, panels))


def curve(
    model: Network,
    x: Inputs,
    eps: Iterable[float | str] | Tensor,
    *,
    norm: float = inf,
    domain: Domains = None,
    bounds: Method | None = None,
    target: Target = None,
    steps: int = 16,
    memory: int | None = None,
    rigorous: bool | None = None,
    progress: bool = True,
) -> OverlapCurve:
    """Bound the adversarial overlap of each sample at several radii from both sides, and search the certified radius.

    A bound method gives the proven side. PGD gives the attained side, or the search itself if the method searches, as
    `pm.bounds.Exact` does. `pm.radius` gives the radii.

    Args:
        model: The network.
        x: The samples (N, *shape), or several inputs as for `pm.radius`.
        eps: The radii, in any order, as numbers, texts such as "2/255", or a 1-D tensor. Each is used for all samples.
        norm: 1, 2 or inf.
        domain: The range of the values, as for `pm.Ball`; for several inputs a tuple, as for `pm.radius`.
        bounds: The bound method, by default `Backward()`.
        target: The class c, by default the predicted one.
        steps: The number of bisection steps of the certified radius.
        memory: The bytes that the computation may use, by default half of the free memory.
        rigorous: As for `pm.overlap`.
        progress: Show a progress bar.

    Returns:
        The bounds as data; `to_frame` and `plot` give other forms.

    Raises:
        InputError: There is no radius, or one is negative or not finite.
        BoundError: No finite bound is known.

    >>> pm.curve(model, x[:1], [0.01, 0.02], domain=(0.0, 1.0), steps=4)
    OverlapCurve(1 sample, 2 radii, ε from 0.01 to 0.02; certified radius 0.0263)
    """
    radii = _radii(eps)
    method = method_of(bounds)
    model, x, at, _ = in_unit_ball(model, x, norm, domain)
    x = as_samples(x, model)
    graph = bounded(as_graph(model, x)).to(x.device, x.dtype)
    how = OverlapSettings(method, budget(memory, x.device), rigorous=decide_rigorous(graph, rigorous, method))
    with full_precision(x.device), torch.no_grad():
        aim = target_of(target, logits_of(graph, x))
    with ProgressBar(len(x), "curve", show=progress) as bar, bar.work(len(x)):
        with part(0.0, _RADIUS_WORK_SHARE):
            options: Any = {"norm": norm, "domain": at.domain, "bounds": method, "memory": memory, "rigorous": rigorous}
            found = radius(model, x, **options, target=aim, steps=steps, progress=False)
        width = (1 - _RADIUS_WORK_SHARE) / len(radii)
        sides = []
        for k, size in enumerate(radii):
            begin = _RADIUS_WORK_SHARE + k * width
            with part(begin, begin + width, f"ε = {size:g}"):
                sides.append(two_sided_overlap(graph, replace(at, eps=size).at(x), aim, how))
        sizes = torch.tensor(radii, dtype=torch.float64)
        found = with_curve(found, sizes, sides, model, x, aim, at)
        reached = attained_value(graph, found.points, aim, how, found.rigorous)
    lower = torch.stack([side.full_lower for side in sides], dim=1)
    upper = torch.stack([side.full for side in sides], dim=1)
    certain = all(side.rigorous for side in sides) and found.rigorous
    lower, upper = _nested(sizes, lower, upper, found, reached)
    return OverlapCurve(sizes, upper, lower, aim, found, at.norm, at.domain, certain)


def _radii(eps: Iterable[float | str] | Tensor) -> list[float]:
    """Return the checked radii, ascending, each once."""
    if isinstance(eps, str | float | int) or (isinstance(eps, Tensor) and eps.ndim != 1):
        raise InputError(f"curve got eps={eps!r:.60}, expected several radii, such as [0.01, 0.02] or a 1-D tensor")
    balls = [Ball(each) for each in (eps.tolist() if isinstance(eps, Tensor) else eps)]
    if not balls or any(ball.eps == "auto" for ball in balls):
        raise InputError("curve got no radius or 'auto', expected several radii, such as [0.01, 0.02]")
    return sorted({float(ball.eps) for ball in balls})


def _nested(eps: Tensor, lower: Tensor, upper: Tensor, found: Radius, reached: Tensor) -> tuple[Tensor, Tensor]:
    """Return upper and lower bounds (N, E) that grow with ε, from the bounds at each ε and the radii.

    An upper bound of a larger ball holds for every smaller one. Up to the certified radius AO is below 0. A lower bound
    of a smaller ball holds for every larger one. Beyond `refuted`, a ball contains the adversary, with the value
    `reached` (N,).
    """
    size = eps.to(upper)  # the balls have radii of x's type
    zero = torch.zeros_like(upper)
    upper = torch.where(size <= found.proven[:, None], upper.minimum(torch.nextafter(zero, zero - inf)), upper)
    upper = upper.flip(1).cummin(dim=1).values.flip(1)
    lower = torch.where(size > found.refuted[:, None], lower.maximum(reached[:, None]), lower)
    lower = lower.cummax(dim=1).values
    check_attained(lower, upper, estimate_stored_error(upper))
    return lower, upper.maximum(lower)
