"""Totals of the sufficient sets of a run: sizes, shares of minimal, smallest and undecided sets, and seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proofmap.runs.chunk import Array
from proofmap.runs.results import Results
from proofmap.text.reason_wording import counted_reasons
from proofmap.text.wording import share

_NOUNS = {
    "Grid": "cell",
    "Pixels": "pixel",
    "Superpixels": "superpixel",
    "Columns": "column",
    "Windows": "window",
    "Tokens": "token",
}


@dataclass(frozen=True, eq=False)
class ReasonTotals:
    """The sizes of the sufficient sets of all explained samples."""

    noun: str
    sizes: Array  # (N,) int64: kept groups
    undecided: Array  # (N,) int64
    least: Array  # (N,) int64: no sufficient set has fewer groups
    seconds: Array  # (N,) float64; NaN without a log

    @classmethod
    def of(cls, results: Results) -> ReasonTotals | None:
        """Return the totals of a run; None without sufficient sets."""
        if not any(part.reasoned for part in results.parts):
            return None
        explained = np.concatenate([part.explained for part in results.parts])
        names = ("reason_size", "reason_undecided", "reason_least", "reason_seconds")
        kind = str(results.about["job"]["groups"]).partition("(")[0]
        return cls(_NOUNS.get(kind, "group"), *(results[name][explained] for name in names))

    @property
    def count(self) -> int:
        """The number of sets."""
        return len(self.sizes)

    @property
    def minimal(self) -> int:
        """The number of sets without undecided groups."""
        return int((self.undecided == 0).sum())

    @property
    def smallest(self) -> int:
        """The number of sets for which no sufficient set is smaller."""
        return int((self.least >= self.sizes).sum())

    @property
    def undecided_share(self) -> float:
        """The share of undecided groups among all kept groups; 0 if no group is kept."""
        return float(self.undecided.sum() / max(1, int(self.sizes.sum())))

    @property
    def mean_seconds(self) -> float | None:
        """The mean seconds of a sample; None if the log does not have all."""
        mean = float(self.seconds.mean())
        return None if np.isnan(mean) else mean

    def json(self) -> dict[str, Any]:
        """Return the totals as JSON. Seconds are not among them: they differ in every execution."""
        return {
            "group": self.noun,
            "mean_size": float(self.sizes.mean()),
            "median_size": float(np.median(self.sizes)),
            "smallest_size": int(self.sizes.min()),
            "largest_size": int(self.sizes.max()),
            "subset_minimal": self.minimal,
            "proven_smallest": self.smallest,
            "undecided_share": self.undecided_share,
            "mean_lower_bound_of_size": float(self.least.mean()),
        }

    def lines(self) -> list[str]:
        """Return the totals as lines of text."""
        took = "" if self.mean_seconds is None else f"; {self.mean_seconds:.3g} s for each on average"
        least = f"; no sufficient set has fewer than {self.least.mean():.1f} on average" if self.least.any() else ""
        percent = 100 * self.undecided_share
        return [
            f"sufficient sets: {counted_reasons(self.sizes.tolist(), self.noun)}{least}{took}",
            f"subset-minimal: {share(self.minimal, self.count, 'sample')}; "
            f"proven smallest: {share(self.smallest, self.count, 'sample')}; "
            f"undecided: {percent:.1f} % of kept {self.noun}s",
        ]
