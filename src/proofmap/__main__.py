"""python -m proofmap: the command line."""

from proofmap.cli import app

app()
