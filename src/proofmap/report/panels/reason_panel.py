"""Sufficient sets in the report: a gallery of the kept groups of each input, and the sizes of the sets of a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import torch

from proofmap.plots.overlay import Array, picture_of
from proofmap.report.finding_pictures import PagePicture
from proofmap.report.panel import Panel, ReportData, TemplatePanel
from proofmap.report.panels.dataset_panel import Bin
from proofmap.report.reason_page import ReasonPage, kept_panel
from proofmap.runs import Results
from proofmap.runs.sets.reason_results import ReasonTotals
from proofmap.text.wording import plural

_GALLERY = 24  # samples of a run in its gallery
_BINS = 20  # bars of the histogram, at most


@dataclass(frozen=True)
class ReasonEntry:
    """The sufficient set of an explained input, with links to the input and the finding."""

    name: str
    says: str  # the network's decision
    input: str
    finding: str
    page: ReasonPage


@dataclass(frozen=True)
class ReasonRun:
    """The sufficient sets of a run."""

    id: str
    name: str
    lines: list[str]
    bins: list[Bin]
    most: str  # the number of samples in the highest bar
    noun: str
    gallery: list[tuple[PagePicture, str]]
    rows: list[tuple[str, int, int, str]]  # sample, size, undecided, lower bound of the size
    left_out: int  # samples that the gallery and the table leave out


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield one panel, if there are sufficient sets."""
    entries = [
        ReasonEntry(subject.name, subject.predicted, subject.id, finding.id, finding.reason)
        for network in data.networks
        for subject in network.subjects
        for finding in subject.findings
        if finding.reason is not None
    ]
    runs = list(_runs(data.runs))
    if entries or runs:
        values = {"entries": entries, "runs": runs}
        yield TemplatePanel("reasons", "Sufficient sets", "panels/reason_panel.html", values)


def _runs(runs: Sequence[tuple[str, Results]]) -> Iterator[ReasonRun]:
    for at, (name, results) in enumerate(runs, start=1):
        results.check()
        totals = ReasonTotals.of(results)
        if totals is None or not totals.count:
            continue
        bins, most = histogram(totals.sizes)
        shown = list(islice(_shown(results, totals.noun), _GALLERY))
        yield ReasonRun(
            id=f"reasons-{at}",
            name=name,
            lines=[f"{line[:1].upper()}{line[1:]}." for line in totals.lines()],
            bins=bins,
            most=plural(most, "sample"),
            noun=totals.noun,
            gallery=[(picture, caption) for picture, caption, _ in shown if picture is not None],
            rows=[row for _, _, row in shown],
            left_out=totals.count - len(shown),
        )


def _shown(results: Results, noun: str) -> Iterator[tuple[PagePicture | None, str, tuple[str, int, int, str]]]:
    """Yield the picture, the caption and the row of each explained sample, in the order of the run."""
    for part in results.parts:
        masks = part["mask"]
        for row, name in zip(count(), part.texts.names, strict=False):
            found = part.reason(row)
            if found is None:
                continue
            reason, x = found
            size, open_ = int(reason.size[0]), int(reason.undecided.sum())
            least = str(int(reason.least[0])) if int(reason.least[0]) or not size else "unknown"
            picture = None
            if x.ndim in (2, 3) and x.shape[-1] > 1 and x.shape[-2] > 1 and noun not in ("token", "window"):
                mask = masks[row if len(masks) > 1 else 0]
                alt = f"{name}: {size} kept {noun}s, {open_} of them undecided."
                shown = picture_of(torch.from_numpy(np.ascontiguousarray(x)))
                free, undecided = (np.asarray(one[0]) for one in (reason.free, reason.undecided))
                picture = kept_panel(shown, mask, free, undecided, alt)
            yield picture, f"{name}: {plural(size, noun)}", (name, size, open_, least)


def histogram(sizes: Array) -> tuple[list[Bin], int]:
    """Return the bars of the sizes on an axis from 0 to 100, and the number of samples in the highest bar."""
    low, high = int(sizes.min()), int(sizes.max()) + 1
    step = max(1, -(-(high - low) // _BINS))
    edges = np.arange(low, high + step, step)
    counts, _ = np.histogram(sizes, edges)
    reach, most = float(edges[-1] - edges[0]), int(counts.max())
    return [
        Bin(
            str(int(first)),
            str(int(last) - 1),
            int(many),
            100 * (first - low) / reach,
            100 * (last - first) / reach,
            100 * many / most,
        )
        for first, last, many in zip(edges, edges[1:], counts, strict=False)
    ], most
