"""Trials with known ground truth: explanation methods on networks and data whose relevant variables are known."""

from __future__ import annotations

from benchmarks.trials.ranking import Ranking
from benchmarks.trials.trial import Trial
from benchmarks.trials.trial_runs import METHODS, run
from benchmarks.trials.trial_sections import Section, chosen, sections

__all__ = ["METHODS", "Ranking", "Section", "Trial", "chosen", "run", "sections"]
