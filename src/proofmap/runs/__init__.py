"""Data sets explained: chunk by chunk, resumable, in this process or on a Ray cluster, to the same bytes."""

from __future__ import annotations

from proofmap.runs.cluster import Ray
from proofmap.runs.dataset_run import run, shape_of
from proofmap.runs.executor import Engine, Local
from proofmap.runs.results import Results
from proofmap.runs.run_job import Job
from proofmap.runs.totals import Totals

__all__ = ["Engine", "Job", "Local", "Ray", "Results", "Totals", "run", "shape_of"]
