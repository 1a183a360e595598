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
from proofmap.proof.contrastive_statement import ContrastiveStatement
from proofmap.proof.make_certificate import (
    CertificateSubject,
    Certified,
    ModelFile,
    certify,
    certify_changes,
    comparable,
    in_units_of,
    splits,
    with_objective,
)
from proofmap.proof.never_weaker import Explained, ExplainedSet, ExplainedSize
from proofmap.proof.output_statement import without_last_sigmoid
from proofmap.proof.proof_tree import Growth, growth_for
from proofmap.proof.sufficient_statement import SufficientStatement
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.verify.objectives import Label, read_objective
from proofmap.verify.overlap import Overlap

LEAVES_OF_SETS = 4096  # parts of a ball; the free groups of a sufficient set leave little room, so that trees are large


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
    within = e.settings.get("within")
    assert within is None or isinstance(within, int | float)
    if e.reason is not None:
        subject = replace(subject, sets=statement_of_sets(e.reason, within))
        bound, limit = (float(each[0]) for each in (e.reason.bound, e.reason.limit))
        explained = ExplainedSet(bound, float(overlap.nominal), rigorous, limit)
    elif e.contrast is not None:
        subject = replace(subject, sets=statement_of_changes(e.contrast, within))
        limit = float(e.contrast.limit[0])
        explained = ExplainedSize(limit, float(overlap.nominal), rigorous, limit, int(e.contrast.least[0]))
    bent = without_last_sigmoid(subject.graph) if isinstance(objective, Label) else subject.graph
    growth = growth_for(explained, e.scores.shape[1], leaves, seconds, searched(e), splits(bent))
    if growth is not None and subject.sets is not None:
        growth = Growth(LEAVES_OF_SETS if leaves is None else leaves, seconds)
    growth = in_units_of(subject, explained, growth)
    compared = comparable(subject, objective, explained)
    points = None if overlap.points is None or subject.sets is not None else overlap.points[0]
    model = Certified.of(subject.graph, file)
    with ProgressBar(1, "certificate", show=progress, unit="certificate") as bar, bar.work():
        if isinstance(explained, ExplainedSize):
            made = certify_changes(subject, growth, model, explained)
        else:
            made = certify(subject, points, growth, model, compared)
    if made.shortfall is not None:
        warnings.warn(made.shortfall, ProofmapWarning, stacklevel=3)
    return made


def statement_of_sets(reason: Reason, within: float | None = None) -> SufficientStatement:
    """Return the sets of the only sample, with the points that exceed the limit in float64 arithmetic."""
    above = reason.values > reason.limit[reason.point_of[:, 0]]
    points = reason.points[above].float().cpu().numpy()
    return SufficientStatement(reason.free[0].cpu().numpy(), reason.point_of[above, 1].cpu().numpy(), points, within)


def statement_of_changes(contrast: Contrast, within: float | None = None) -> ContrastiveStatement:
    """Return the sets of the only sample, with the proven number of groups."""
    points = contrast.points.float().cpu().numpy()
    return ContrastiveStatement(contrast.sets.cpu().numpy(), points, int(contrast.least[0]), within)


def _certified_overlap(e: Explanation, half: str | None) -> tuple[Overlap, int | None]:
    """Return the overlap to certify, and its rival class; None: all other classes."""
    if e.contrast is not None and half is None:
        aim = int(e.target)
        return e.overlap, None if aim == int(e.overlap.target) else aim
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
    if e.guarantee != "certified" or e.method not in ("EVA", "TargetedEVA", "Sufficient", "Contrastive"):
        raise InputError(
            f"got an explanation by {e.method}, expected one by pm.EVA, pm.TargetedEVA, pm.Sufficient or "
            "pm.Contrastive: certificates are about their overlaps and sets"
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
