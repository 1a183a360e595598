"""The certificate of an explained sample: a proof of its overlaps that others can check."""

import operator
import os
import warnings
from dataclasses import replace
from typing import Literal

from proofmap.errors import InputError, ProofmapWarning
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import searched
from proofmap.proof.certificate import Certificate
from proofmap.proof.make_certificate import (
    CertificateSubject,
    Certified,
    ModelFile,
    certify,
    comparable,
    in_units_of,
    splits,
    with_objective,
)
from proofmap.proof.never_weaker import Explained, ExplainedSet
from proofmap.proof.proof_tree import Growth, growth_for
from proofmap.proof.sufficient_statement import SufficientStatement
from proofmap.reasons.reason import Reason
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.verify.objectives import read_objective
from proofmap.verify.overlap import Overlap

_LEAVES_OF_SETS = (
    4096  # parts of a ball; the free groups of a sufficient set leave little room, so that trees are large
)


def certificate(
    explanation: Explanation,
    k: int | None,
    leaves: int | None,
    seconds: float,
    file: ModelFile | str | os.PathLike[str] | None,
    half: Literal["+", "-"] | None,
    progress: bool,
) -> Certificate:
    """Make the certificate of sample k, or of the only sample; for a targeted map, of one half ball."""
    check_certifiable(explanation)
    if k is None and len(explanation) != 1:
        raise InputError(
            f"got an explanation of {len(explanation)} samples, expected the number of one: certificate(0)"
        )
    e = explanation[0 if k is None else operator.index(k)]
    assert e.made_from is not None
    graph, ball = e.made_from
    overlap, rival = _certified_overlap(e, half)
    rigorous = bool(e.settings.get("rigorous", False))
    explained = Explained(float(overlap.full), float(overlap.nominal), rigorous)
    around = ball if half is None else replace(ball, half=half)
    objective = read_objective(e.settings.get("objective", "margin"))
    subject = CertificateSubject(graph, e.x, around, e.mask, e.scores.shape[1], int(overlap.target), rival)
    subject = with_objective(subject, objective)
    if e.reason is not None:
        within = e.settings.get("within")
        assert within is None or isinstance(within, int | float)
        subject = replace(subject, reason=_sets_of(e.reason, within))
        bound, limit = (float(each[0]) for each in (e.reason.bound, e.reason.limit))
        explained = ExplainedSet(bound, float(overlap.nominal), rigorous, limit)
    growth = growth_for(explained, e.scores.shape[1], leaves, seconds, searched(e), splits(subject.graph))
    if growth is not None and e.reason is not None:
        growth = Growth(_LEAVES_OF_SETS if leaves is None else leaves, seconds)
    growth = in_units_of(subject, explained, growth)
    compared = comparable(subject, objective, explained)
    points = None if overlap.points is None or e.reason is not None else overlap.points[0]
    with ProgressBar(1, "certificate", show=progress, unit="certificate") as bar, bar.work():
        made = certify(subject, points, growth, Certified.of(subject.graph, file), compared)
    if made.shortfall is not None:
        warnings.warn(made.shortfall, ProofmapWarning, stacklevel=3)
    return made


def _sets_of(reason: Reason, within: float | None) -> SufficientStatement:
    """Return the sets of the only sample, with the points that exceed the limit in float64 arithmetic."""
    above = reason.values > reason.limit[reason.point_of[:, 0]]
    points = reason.points[above].float().cpu().numpy()
    return SufficientStatement(reason.free[0].cpu().numpy(), reason.point_of[above, 1].cpu().numpy(), points, within)


def _certified_overlap(e: Explanation, half: str | None) -> tuple[Overlap, int | None]:
    """Return the overlap to certify, and its rival class; None: all other classes."""
    if e.opposite is None:
        if half is not None:
            raise InputError(f"got half={half!r} of a map by {e.method}, expected none: a targeted map has two halves")
        return e.overlap, None
    if half not in ("+", "-"):
        raise InputError(
            "got a targeted map, which has a certificate for each half, expected certificate(half='+') for δ >= 0 or "
            "certificate(half='-') for δ <= 0"
        )
    return e.overlap if half == "+" else e.opposite, int(e.target)


def check_certifiable(e: Explanation) -> None:
    """Raise InputError for an explanation without a certificate."""
    if e.guarantee != "certified" or e.method not in ("EVA", "TargetedEVA", "Sufficient"):
        raise InputError(
            f"got an explanation by {e.method}, expected one by pm.EVA, pm.TargetedEVA or pm.Sufficient: certificates "
            "are about their overlaps, or about sufficient sets"
        )
    objective = e.settings.get("objective", "margin")
    if isinstance(objective, str) and objective != "margin":
        raise InputError(
            f"got an explanation of the objective {objective!r}, expected 'margin', an output or a label: certificates "
            "are about the largest margin, or about outputs"
        )
    if e.made_from is None:
        raise InputError(
            "got an explanation from a file, which does not hold the network, expected one that was just made: explain "
            "the input again"
        )
