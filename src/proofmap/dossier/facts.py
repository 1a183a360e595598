"""The figures of a dossier's page, counted from its certificates and its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proofmap.dossier.certificates import Certificates, Claimed, number
from proofmap.explain.wording import around, radius, share, taken_off
from proofmap.guarantee import rounded
from proofmap.runs import Results

__all__ = ["Facts"]


@dataclass(frozen=True)
class Facts:
    """What the page counts; every share says what it is of."""

    model: str  # as it was given
    member: str  # the model's name in the dossier
    sha256: str
    exported: bool  # whether that file was made from the network by us
    samples: int
    certified: int  # samples with a certificate
    proven: str  # decisions: "95 of 100 samples (95.0 %)"
    undecided: int  # certified, and the decision not proven
    missing: int  # samples without a certificate
    ball: str
    worst: str  # the largest AO(B) <= t of all certificates
    frozen: int  # claims with a group frozen
    searched: int  # samples with a lower side
    intervals: int  # scores between two proven ends
    ordered: int  # pairs of groups of one sample, proven over the reals which matters more
    labelled: int
    correct: str  # predicted as labelled
    certified_correct: str
    taken_off: str | None
    versions: str

    @classmethod
    def of(cls, results: Results, certificates: Certificates) -> Facts:
        """Counted; a sample without a certificate counts as not proven."""
        claimed, about, classes = certificates.claimed, results.about, results.about["model"]["outputs"]
        decided = {one.row for one in claimed if one.decided(classes)}
        labels = results["label"] if "label" in results.names else np.full(len(results), -1)
        labelled = int((labels >= 0).sum())
        correct = int(((results["predicted"] == labels) & (labels >= 0)).sum())
        right = sum(one.row in decided and one.target == labels[one.row] for one in claimed)
        sided = [one for one in claimed if one.full_lower is not None]
        return cls(
            model=results.manifest.model.name or "not named",
            member=f"model/{certificates.model.name}",
            sha256=certificates.sha256,
            exported=certificates.exported,
            samples=len(results),
            certified=len(claimed),
            proven=share(len(decided), len(results), "sample"),
            undecided=len(claimed) - len(decided),
            missing=len(results) - len(claimed),
            ball=_ball(claimed),
            worst=rounded(max(one.full for one in claimed), "certified"),
            frozen=sum(0 if one.frozen is None else len(one.frozen) for one in claimed),
            searched=len(sided),
            intervals=sum(0 if one.frozen_lower is None else len(one.frozen_lower) for one in sided),
            ordered=sum(one.ordered for one in claimed),
            labelled=labelled,
            correct=share(correct, labelled, "labelled sample"),
            certified_correct=share(right, labelled, "labelled sample"),
            taken_off=None if results.taken_off is None else taken_off(results.taken_off),
            versions=", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        )


def _ball(claimed: tuple[Claimed, ...]) -> str:
    """The balls of all certificates in a few words; radii that differ by the smallest and the largest of them."""
    radii = sorted({one.eps for one in claimed})
    stated = radius(radii[0]) if len(radii) == 1 else f"{radius(radii[0])} to {radius(radii[-1])}, each sample's own,"
    kinds = {around({**one.ball, "domain": _domain(one.ball.get("domain"))}, stated=stated) for one in claimed}
    return "; or ".join(sorted(kinds))


def _domain(ends: Any) -> Any:
    """The ends as numbers, where they are numbers and no arrays."""
    try:
        return None if ends is None else [number(end) for end in ends]
    except ValueError:
        return ends
