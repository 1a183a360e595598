"""Methods compared: which metrics say what, and which differences are more than chance; and the paper's tables."""

from __future__ import annotations

from proofmap.bench.benchmark_file import Entry, Spec, names, read
from proofmap.bench.benchmark_run import run
from proofmap.bench.compare import compare
from proofmap.bench.mean_ranks import Ranks, mean_ranks
from proofmap.bench.statistics import Cell, Column, Table, tabulate

__all__ = [
    "Cell",
    "Column",
    "Entry",
    "Ranks",
    "Spec",
    "Table",
    "compare",
    "mean_ranks",
    "names",
    "read",
    "run",
    "tabulate",
]
