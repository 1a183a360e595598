"""Resumable explanations of data sets, chunk by chunk, in this process or on a Ray cluster, with the same bytes."""

from proofmap.runs.cluster import Ray
from proofmap.runs.dataset_run import run, shape_of
from proofmap.runs.results import Results
from proofmap.runs.run_job import Job
from proofmap.runs.totals import Totals
from proofmap.runs.worker import Engine, Local

__all__ = ["Engine", "Job", "Local", "Ray", "Results", "Totals", "run", "shape_of"]
