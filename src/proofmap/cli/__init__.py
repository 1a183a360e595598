"""The command line: one file a command, one line here."""

from __future__ import annotations

from proofmap.cli.app import app, command
from proofmap.cli.bench import bench
from proofmap.cli.check import check
from proofmap.cli.claim import claim
from proofmap.cli.compare import compare
from proofmap.cli.demo import demo
from proofmap.cli.dossier import dossier
from proofmap.cli.explain import explain
from proofmap.cli.export import export
from proofmap.cli.report import report
from proofmap.cli.run import run
from proofmap.cli.verify import verify

__all__ = ["COMMANDS", "app"]

COMMANDS = (explain, verify, compare, bench, run, export, report, claim, dossier, check, demo)

for _one in COMMANDS:
    command(_one)
