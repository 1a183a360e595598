"""Ground truth: networks and data of which is known what matters, and every method of explanation before them."""

from __future__ import annotations

from proofmap.court.run import ACCUSED, run
from proofmap.court.sections import Section, sections
from proofmap.court.trial import Trial
from proofmap.court.verdict import Verdict

__all__ = ["ACCUSED", "Section", "Trial", "Verdict", "run", "sections"]
