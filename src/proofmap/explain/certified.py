"""The certificate of an explained sample: what of its explanation others can check."""

from __future__ import annotations

import operator

from proofmap.errors import InputError
from proofmap.explain.explanation import Explanation
from proofmap.explain.ranks import searched
from proofmap.proof.certificate import Certificate
from proofmap.proof.certify import ModelFile, Subject, certify, splits
from proofmap.proof.grow import Growth
from proofmap.proof.network import check_covered

__all__ = ["certificate", "check_certifiable"]


def certificate(
    explanation: Explanation, k: int | None, leaves: int | None, seconds: float, file: ModelFile | None
) -> Certificate:
    """That of sample k, or of the only one."""
    check_certifiable(explanation)
    if k is None and len(explanation) != 1:
        raise InputError(
            f"got an explanation of {len(explanation)} samples, expected the number of one: certificate(0)"
        )
    e = explanation[0 if k is None else operator.index(k)]
    assert e.made_from is not None
    graph, ball = e.made_from
    wanted = leaves != 0 if leaves is not None else searched(e) and splits(graph)
    growth = Growth.fitting(e.scores.shape[1], leaves, seconds) if wanted else None
    subject = Subject(graph, e.x, ball, e.mask, e.scores.shape[1], int(e.target))
    return certify(subject, None if e.overlap.points is None else e.overlap.points[0], growth, file)


def check_certifiable(e: Explanation) -> None:
    """Refuse an explanation of which nothing can be certified."""
    if e.guarantee != "certified" or e.method != "EVA":
        raise InputError(
            f"got an explanation by {e.method}, expected one by pm.EVA: certificates are about its overlaps; of a half "
            "ball too, pm.Ball(..., half='+')"
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
    check_covered(e.made_from[0])
