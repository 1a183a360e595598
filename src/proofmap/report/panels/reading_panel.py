"""The guide of the report: how to read it, and what it does not guarantee."""

from collections.abc import Iterator

from proofmap.report.panel import Panel, ReportData, TemplatePanel


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield the guide, which every report has."""
    yield TemplatePanel("reading", "How to read it", "panels/reading_panel.html", {})
