"""The HTML report of explanations and runs: one self-contained file."""

from proofmap.report.comparison_files import read_table
from proofmap.report.html_report import report

__all__ = ["read_table", "report"]
