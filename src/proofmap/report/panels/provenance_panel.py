"""The records of the report: settings, versions, dates and digests of the explanations."""

from collections.abc import Iterator

from proofmap.report.panel import Panel, ReportData, TemplatePanel


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield the records, if there are any."""
    if data.records:
        yield TemplatePanel("records", "How it was made", "panels/provenance_panel.html", {"records": data.records})
