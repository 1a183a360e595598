"""Benchmark with ground truth: explanation methods on networks and data whose relevant variables are known."""

from __future__ import annotations

from proofmap.ground_truth.ranking import Ranking
from proofmap.ground_truth.trial import Trial
from proofmap.ground_truth.trial_runs import METHODS, run
from proofmap.ground_truth.trial_sections import Section, sections

__all__ = ["METHODS", "Ranking", "Section", "Trial", "run", "sections"]
