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
from proofmap.proof.make_certificate import CertificateSubject, Certified, ModelFile, certify, splits
from proofmap.proof.never_weaker import Explained
from proofmap.proof.proof_tree import growth_for
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.verify.overlap import Overlap


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
    growth = growth_for(explained, e.scores.shape[1], leaves, seconds, searched(e), splits(graph))
    around = ball if half is None else replace(ball, half=half)
    subject = CertificateSubject(graph, e.x, around, e.mask, e.scores.shape[1], int(overlap.target), rival)
    points = None if overlap.points is None else overlap.points[0]
    with ProgressBar(1, "certificate", show=progress, unit="certificate") as bar, bar.work():
        made = certify(subject, points, growth, Certified.of(graph, file), explained)
    if made.shortfall is not None:
        warnings.warn(made.shortfall, ProofmapWarning, stacklevel=3)
    return made


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
    if e.guarantee != "certified" or e.method not in ("EVA", "TargetedEVA"):
        raise InputError(
            f"got an explanation by {e.method}, expected one by pm.EVA or pm.TargetedEVA: certificates are about their "
            "overlaps"
        )
    if e.settings.get("objective", "margin") != "margin":
        raise InputError(
            f"got an explanation of the objective {e.settings['objective']!r}, expected 'margin': certificates are "
            "about the largest margin"
        )
    if e.made_from is None:
        raise InputError(
            "got an explanation from a file, which does not hold the network, expected one that was just made: explain "
            "the input again"
        )
