"""The summary of the report: counts of verdicts, and the bounds of all findings on one axis."""

import math
from collections.abc import Iterator, Sequence

from proofmap.report.finding_page import Finding
from proofmap.report.number_line import Axis
from proofmap.report.panel import Panel, ReportData, TemplatePanel


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield the summary of the networks, if there are any."""
    if data.networks:
        axis = _axis([finding for network in data.networks for finding in network.findings])
        values = {"networks": data.networks, "axis": axis}
        yield TemplatePanel("summary", "Summary", "panels/summary_panel.html", values)


def _axis(findings: Sequence[Finding]) -> Axis:
    """Return the axis of the summary. Very loose upper bounds exceed it, so that the other bars stay readable."""
    sides = [side for finding in findings for side in finding.sides]
    reach = 2 * max((abs(side.known.lower) for side in sides if math.isfinite(side.known.lower)), default=math.inf)
    return Axis.over(max(-reach, min(end, reach)) for side in sides for end in side.ends())
