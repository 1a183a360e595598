"""The command line `proofmap`: the list of its commands. Each command has its own file in `commands/`."""

from proofmap.cli.app import app, command
from proofmap.cli.commands.bench_command import bench
from proofmap.cli.commands.check_command import check
from proofmap.cli.commands.claim_command import claim
from proofmap.cli.commands.compare_command import compare
from proofmap.cli.commands.demo_command import demo
from proofmap.cli.commands.dossier_command import dossier
from proofmap.cli.commands.explain_command import explain
from proofmap.cli.commands.export_command import export
from proofmap.cli.commands.reasons_command import reasons
from proofmap.cli.commands.report_command import report
from proofmap.cli.commands.run_command import run
from proofmap.cli.commands.verify_command import verify

__all__ = ["COMMANDS", "app"]

COMMANDS = (explain, reasons, verify, compare, bench, run, export, report, claim, dossier, check, demo)

for _function in COMMANDS:
    command(_function)
