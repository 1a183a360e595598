"""python -m proofmap: the command line."""

from __future__ import annotations

from proofmap.cli import app

app()
