"""Totals of a run: certified and refuted counts, the distribution of overlaps, and mean scores of each class."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from proofmap.explainers.explanation import Guarantee
from proofmap.registry import objective_of
from proofmap.runs.chunk import ARRAYS, SCORE_BOUNDS, Array
from proofmap.runs.results import Results, maps
from proofmap.runs.sets.contrast_results import ContrastTotals
from proofmap.runs.sets.reason_results import ReasonTotals
from proofmap.runs.totals_text import totals_text
from proofmap.sources.own_files import DRAWING
from proofmap.storage.resumable_folder import write_piece
from proofmap.text.output_wording import explained_output
from proofmap.text.verdict import Witness
from proofmap.text.wording import around, bound_name
from proofmap.verify.objective import decides

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from proofmap.plots.figure_page import Picture

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # the quantiles of bounds and radii in totals.json
_HISTOGRAM_BINS = 20  # bins of the histogram of bounds


@dataclass(frozen=True)
class Distribution:
    """Mean, quantiles and histogram of some numbers."""

    mean: float
    quantiles: Mapping[str, float]  # "0.5" is the median
    edges: Sequence[float]  # bin edges of the histogram
    counts: Sequence[int]


@dataclass(frozen=True)
class ClassTotal:
    """The samples with one explained class."""

    number: int
    title: str
    count: int
    certified: int | None
    overlap: float | None  # mean of the overlaps


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over all samples of a run."""

    count: int
    failed: Sequence[tuple[str, str]]  # name and reason
    guarantee: Guarantee
    rigorous: bool  # True: the proofs cover all rounding errors
    certified: int | None  # samples with a proven AO < 0; None for other guarantees
    refuted: int | None  # samples with a known input in the ball that is classified otherwise
    ranked: int | None  # samples whose most important groups are proven; None without a search
    labelled: int  # samples with a known true class, including failed ones
    correct: int | None  # samples predicted as labelled; None without labels
    certified_correct: int | None  # samples whose label is proven on the whole ball
    ball: Mapping[str, Any] | None
    objective: Any  # a word, or the record of an objective about one output
    level: float | None  # the probability with which probable bounds of a sample hold
    taken_off: str | None  # the final operation that the bounds leave out
    overlap: Distribution | None
    radius: Distribution | None  # radii of the balls, if each sample has its own
    classes: Sequence[ClassTotal]
    means: Array  # (K, G) float32: the mean scores of each of the classes
    mask: Array  # (*shape) int32: the group of each variable
    smooth: bool  # True: maps interpolate between groups
    columns: Sequence[str] | None  # the names of the variables of a flat sample
    reason: ReasonTotals | None = None  # the sufficient sets
    contrast: ContrastTotals | None = None  # the contrastive sets

    @property
    def explained(self) -> int:
        return self.count - len(self.failed)

    @property
    def bounds(self) -> str:
        """The name of the overlaps' column, such as "overlap_upper_proven"."""
        return bound_name(self.guarantee, self.objective)

    @property
    def around(self) -> str:
        """A short description of the balls."""
        return "" if self.ball is None else around(self.ball)

    @property
    def undecided(self) -> int:
        """The explained samples that are neither proven nor refuted; 0 if the method proves nothing."""
        return 0 if self.certified is None else self.explained - self.certified - (self.refuted or 0)

    @property
    def witness(self) -> Witness:
        """The kind of point that refutes decisions: the input itself, unless a method looks for others."""
        searched = self.ranked is not None or self.contrast is not None
        return "search" if self.guarantee == "sampled" or searched else "input"

    @property
    def maps(self) -> Array:
        """(K, *shape): the mean map of each class."""
        return maps(self.means, self.mask[None], self.smooth)

    def json(self) -> dict[str, Any]:
        """Return the totals without the maps, as JSON."""
        proven, right = self.certified, self.certified_correct
        return {
            "count": self.count,
            "explained": self.explained,
            "failed": len(self.failed),
            "guarantee": self.guarantee,
            **({"rigorous": self.rigorous} if self.guarantee == "certified" else {}),
            **({} if self.level is None else {"level": self.level}),
            "ball": self.ball,
            "taken_off": self.taken_off,
            "certified": proven,
            "certified_share": None if proven is None else proven / self.count,  # failures count as not proven
            "refuted": self.refuted,
            **({} if self.ranked is None else {"matters_most_proven": self.ranked}),
            **({} if self.reason is None else {"reason": self.reason.json()}),
            **({} if self.contrast is None else {"contrast": self.contrast.json()}),
            "labelled": self.labelled,
            "correct": self.correct,
            "certified_correct": right,
            "certified_accuracy": None if right is None else right / self.labelled,
            self.bounds: None if self.overlap is None else vars(self.overlap),
            "radius": None if self.radius is None else vars(self.radius),
            "classes": [vars(entry) for entry in self.classes],
            "failures": [{"name": name, "reason": reason} for name, reason in self.failed],
        }

    def text(self) -> str:
        """Return the totals as text."""
        return totals_text(self)

    def save(self, folder: Path) -> None:
        """Write totals.json, means.safetensors and totals.png."""
        for name, content in self.files.items():
            write_piece(folder, name, content)
        from proofmap.runs.totals_figure import draw  # imports matplotlib, which is slow

        write_piece(folder, DRAWING, draw(self))

    def plot(
        self,
        *,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | None = None,
        panels: str | Sequence[str] | None = None,
    ) -> Picture:
        """Draw the histogram of the overlaps and the mean map of each class.

        Args:
            ax: The axes of the histogram, with panels="overlaps". By default a new figure.
            cmap: The colour map of the mean maps.
            title: The title.
            panels: "overlaps", "maps" or both.

        Returns:
            The figure; with `ax`, the figure of these axes.
        """
        from proofmap.plots.figure_look import Look  # imports matplotlib, which is slow
        from proofmap.runs.totals_figure import plot_totals

        return plot_totals(self, Look(ax, cmap, title, panels))

    @property
    def files(self) -> dict[str, bytes]:
        """The content of totals.json and means.safetensors."""
        numbers = np.array([entry.number for entry in self.classes], dtype=np.int64)
        counts = np.array([entry.count for entry in self.classes], dtype=np.int64)
        arrays = {"classes": numbers, "counts": counts, "scores": self.means, "mask": self.mask}
        means = bytes(save({name: np.ascontiguousarray(values) for name, values in arrays.items()}))
        return {"totals.json": (json.dumps(self.json(), indent=1) + "\n").encode(), "means.safetensors": means}


def total(results: Results) -> Totals:
    """Compute the totals of the finished chunks. The same chunks give the same totals, to the last digit."""
    explained = np.concatenate([part.explained for part in results.parts])
    rows = {name: results[name][explained] for name in results.names if name in ARRAYS and ARRAYS[name][2] == 1}
    about, job, target, overlap = results.about, results.about["job"], rows["target"], rows.get("full")
    objective = objective_of(job["method"], job["settings"])
    certain = overlap < 0 if overlap is not None and results.guarantee == "certified" and decides(objective) else None
    reason = ReasonTotals.of(results) if explained.any() else None
    contrast = ContrastTotals.of(results) if explained.any() else None
    if certain is not None and contrast is not None and job["target"] is None:
        certain = certain | (contrast.least < 0)  # no input of the ball changes the decision
    if certain is not None and reason is not None:
        certain = certain | (reason.sizes == 0)  # all groups are free: the proof is about the whole ball
    names = results.samples
    titles = about["model"]["classes"]
    labels, labelled = rows.get("label"), int((results["label"] >= 0).sum()) if "label" in rows else 0
    means, mask = _means(results)
    columns = about["data"]["columns"]
    return Totals(
        count=len(results),
        failed=[(names[row], reason) for row, reason in results.reasons.items()],
        guarantee=results.guarantee,
        rigorous=bool(job["settings"].get("rigorous")),
        certified=None if certain is None else int(certain.sum()),
        refuted=_refuted(rows, results.guarantee, objective)
        if contrast is None or certain is None
        else len(contrast.found),
        ranked=sum(int(part.ranked.sum()) for part in results.parts) if SCORE_BOUNDS[0] in results.names else None,
        labelled=labelled,
        correct=int((labels == rows["predicted"]).sum()) if labelled else None,
        certified_correct=int((certain & (labels == target)).sum()) if labelled and certain is not None else None,
        ball=job["ball"],
        objective=objective,
        level=job["settings"]["level"] if results.guarantee == "probable" else None,
        taken_off=results.taken_off,
        overlap=None if overlap is None else _distribution(overlap),
        radius=_distribution(rows["eps"]) if (job["ball"] or {}).get("eps") == "auto" else None,
        classes=[
            ClassTotal(
                number=number,
                title=_title(number, titles, objective),
                count=int((target == number).sum()),
                certified=None if certain is None else int(certain[target == number].sum()),
                overlap=None if overlap is None else _mean(overlap[target == number]),
            )
            for number in means
        ],
        means=np.array([*means.values()], dtype=np.float32).reshape(len(means), int(mask.max()) + 1),
        mask=mask,
        smooth=job.get("smooth", False),
        columns=columns if mask.ndim == 1 and columns is not None and len(columns) == len(mask) else None,
        reason=reason,
        contrast=contrast,
    )


def _title(number: int, titles: Sequence[str] | None, objective: Any) -> str:
    """Return the name of a class, its number, or the output that all samples are about."""
    output = explained_output({"objective": objective})
    if output is not None:
        return output.text
    return str(number) if titles is None else titles[number]


def _means(results: Results) -> tuple[dict[int, Array], Array]:
    """Return the mean scores of each class, and their groups: the shared groups, else one group per variable."""
    shared = results.about["mask"] is not None
    sums: dict[int, Array] = {}
    counts: Counter[int] = Counter()
    for part in results.parts:
        scores = (part["scores"] if shared else part["attributions"].reshape(len(part), -1))[part.explained]
        target = part["target"][part.explained]
        for number in map(int, np.unique(target)):
            of_class = scores[target == number]
            counts[number] += len(of_class)
            sums[number] = sums.get(number, 0.0) + of_class.sum(axis=0, dtype=np.float64)
    mask = results.parts[0]["mask"][0]
    every = mask if shared else np.arange(mask.size, dtype=np.int32).reshape(mask.shape)
    return {number: sums[number] / counts[number] for number in sorted(sums)}, every


def _refuted(rows: Mapping[str, Array], guarantee: Guarantee, objective: object) -> int | None:
    """Count the samples for which another class wins at the sample itself or at a known input of the ball."""
    if "nominal" not in rows or not decides(objective) or guarantee == "probable":
        return None
    met = (rows["nominal"] > 0) | (rows.get("full_lower", rows["nominal"]) > 0)
    return int((met | (rows["full"] > 0) if guarantee == "sampled" else met).sum())


def _distribution(values: Array) -> Distribution | None:
    """Return the distribution of the finite values; about 20 bins start at multiples of their width."""
    values = values[np.isfinite(values)].astype(np.float64)
    if not len(values):
        return None
    low, high = float(values.min()), float(values.max())
    width = (high - low) / _HISTOGRAM_BINS or max(abs(low), 1.0)
    edges = np.arange(np.floor(low / width), np.floor(high / width) + 2) * width
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # corrects rounding errors
    counts, _ = np.histogram(values, edges)
    quantiles = {f"{q:g}": float(v) for q, v in zip(_QUANTILES, np.quantile(values, _QUANTILES), strict=True)}
    return Distribution(float(values.mean()), quantiles, [float(e) for e in edges], [int(c) for c in counts])


def _mean(values: Array) -> float | None:
    mean = float(values.mean())
    return mean if isfinite(mean) else None
