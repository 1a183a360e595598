"""The command line: one file a command, one line here."""

from __future__ import annotations

from proofmap.cli.app import app, command
from proofmap.cli.bench import bench

__all__ = ["app"]

command(bench)
