"""The panels of the report, in the order of the page."""

from proofmap.report.panel import PanelSource
from proofmap.report.panels import (
    comparison_panel,
    contrast_panel,
    dataset_panel,
    network_panel,
    provenance_panel,
    reading_panel,
    reason_panel,
    summary_panel,
)

PANELS: tuple[PanelSource, ...] = (
    summary_panel.panels,
    reading_panel.panels,
    reason_panel.panels,
    contrast_panel.panels,
    dataset_panel.panels,
    network_panel.panels,
    comparison_panel.panels,
    provenance_panel.panels,
)
