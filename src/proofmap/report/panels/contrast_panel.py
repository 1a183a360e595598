"""Contrastive sets in the report: the changed groups of each input, and the sizes of the sets of a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from proofmap.report.contrast_page import ContrastPage
from proofmap.report.panel import Panel, ReportData, TemplatePanel
from proofmap.report.panels.dataset_panel import Bin
from proofmap.report.panels.reason_panel import histogram
from proofmap.runs import Results
from proofmap.runs.sets.contrast_results import ContrastTotals
from proofmap.text.wording import capitalised, plural

_TABLE_ROWS = 200  # samples of a run in its table


@dataclass(frozen=True)
class ContrastEntry:
    """The contrastive sets of an explained input, with links to the input and the finding."""

    name: str
    says: str  # the network's decision
    input: str
    finding: str
    page: ContrastPage


@dataclass(frozen=True)
class ContrastRun:
    """The contrastive sets of a run."""

    id: str
    name: str
    lines: list[str]
    bins: list[Bin]  # [] if no set was found
    most: str  # the number of samples in the highest bar
    noun: str
    rows: list[tuple[str, str, str]]  # sample, size, lower bound of the size
    left_out: int  # samples that the table leaves out


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield one panel, if there are contrastive sets."""
    entries = [
        ContrastEntry(subject.name, subject.predicted, subject.id, finding.id, finding.contrast)
        for network in data.networks
        for subject in network.subjects
        for finding in subject.findings
        if finding.contrast is not None
    ]
    runs = list(_runs(data.runs))
    if entries or runs:
        values = {"entries": entries, "runs": runs}
        yield TemplatePanel("contrasts", "Contrastive sets", "panels/contrast_panel.html", values)


def _runs(runs: Sequence[tuple[str, Results]]) -> Iterator[ContrastRun]:
    for at, (name, results) in enumerate(runs, start=1):
        results.check()
        totals = ContrastTotals.of(results)
        if totals is None or not totals.count:
            continue
        bins, most = histogram(totals.found) if len(totals.found) else ([], 0)
        rows = list(islice(_rows(results), _TABLE_ROWS))
        yield ContrastRun(
            id=f"contrasts-{at}",
            name=name,
            lines=[f"{capitalised(line)}." for line in totals.lines()],
            bins=bins,
            most=plural(most, "sample"),
            noun=totals.noun,
            rows=rows,
            left_out=totals.count - len(rows),
        )


def _rows(results: Results) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the size and the lower bound of the size of each explained sample, in the order of the run."""
    for part in results.parts:
        sizes, least = part["contrast_size"].tolist(), part["contrast_least"].tolist()
        for name, explained, size, bound in zip(part.texts.names, part.explained.tolist(), sizes, least, strict=True):
            if explained:
                known = "no set exists" if bound < 0 else str(bound)
                yield name, str(size) if size else "none found" if bound >= 0 else "–", known
