"""The networks of the report: for each one its inputs, and for each input its maps, bounds and guarantees."""

from collections.abc import Iterator

from proofmap.report.panel import Panel, ReportData, TemplatePanel


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield a panel for each network."""
    for network in data.networks:
        yield TemplatePanel(network.id, network.title, "panels/network_panel.html", {"network": network})
