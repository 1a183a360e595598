"""Compare explanation methods by metrics with confidence intervals, and run the benchmark tables of the EVA paper."""

from proofmap.bench.benchmark_file import MethodEntry, Spec, names, read
from proofmap.bench.benchmark_run import run
from proofmap.bench.compare import compare
from proofmap.bench.mean_ranks import MeanRanks, mean_ranks
from proofmap.bench.statistics import Cell, Column, Table, tabulate

__all__ = [
    "Cell", "Column", "MeanRanks", "MethodEntry", "Spec", "Table", "compare", "mean_ranks", "names", "read", "run",
    "tabulate",
]  # fmt: skip
