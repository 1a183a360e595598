"""Explanations as a page: a report that opens anywhere and needs nothing."""

from __future__ import annotations

from proofmap.show.report import report
from proofmap.show.tables import read_table

__all__ = ["read_table", "report"]
