"""Ground truth: networks and data of which is known what matters, and every method of explanation before them."""

from __future__ import annotations

from proofmap.court.mean_rank_verdict import Verdict
from proofmap.court.sections import Section, sections
from proofmap.court.trial import Trial
from proofmap.court.trials_run import ACCUSED, run

__all__ = ["ACCUSED", "Section", "Trial", "Verdict", "run", "sections"]
