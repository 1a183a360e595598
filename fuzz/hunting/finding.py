"""Findings of a hunt (random testing of bounds and readers), and counts of its work."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from fuzz.hunting.counting import Work
from proofmap.errors import FileError, ProofmapError

# The kinds of findings, the worst first: a bound that a point exceeds; a model that is read wrongly; an exception of
# another type than ours; results that should agree; a refusal with a false reason.
FINDING_KINDS = ("unsound", "misread", "raw error", "disagreement", "wrong refusal")


@dataclass(frozen=True)
class Finding:
    """One error that was found, with all that is needed to reproduce it."""

    seed: int
    kind: str
    what: str
    network: tuple[str, ...]

    @property
    def sort(self) -> str:
        """The sentence without its numbers and names, which is nearly equal for findings with the same cause."""
        return re.sub(r"'[^']*'|[\d.]+(e[-+]?\d+)?|\{.*\}", "*", f"{self.kind}: {self.what}")

    def __str__(self) -> str:
        lines = "\n".join(f"    {line}" for line in self.network)
        return f"{self.kind.upper()}: {self.what}\n  python scripts/hunt.py --seed {self.seed} --networks 1\n{lines}"


class Found(Exception):  # noqa: N818 (a finding of a check, not an error of the hunt)
    """Raised by a check that fails."""

    def __init__(self, kind: str, what: str) -> None:
        assert kind in FINDING_KINDS
        super().__init__(what)
        self.kind, self.what = kind, what


@dataclass
class Tally:
    """Counts of the work of a hunt."""

    networks: int = 0
    balls: int = 0
    points: int = 0
    hidden: int = 0  # intervals of hidden entries; each is compared with every point
    lines: int = 0  # linear forms that were pulled through one operation
    bounds: int = 0
    files: int = 0
    searches: int = 0  # searches of samples by branch and bound
    split: int = 0  # networks whose searches split
    splits: int = 0
    parts: int = 0
    programs: int = 0  # linear programs of parts without unstable units
    closed: int = 0  # overlaps whose upper and lower bounds met
    enumerated: int = 0  # overlaps that enumeration gives exactly
    equal: int = 0  # enumerated overlaps whose upper bound equals the truth up to the gap
    undecided: int = 0  # hostile networks whose bounds leave the range of floats
    fooled: int = 0  # hostile networks that exceed a bound without rounding analysis
    misled: int = 0  # hostile ReLU networks that exceed the bound of a float64 search without rounding analysis
    sets: int = 0  # sufficient sets
    free_groups: int = 0
    necessary_groups: int = 0
    undecided_groups: int = 0
    contrasts: int = 0  # samples whose contrastive sets were checked
    operations: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rounding: float = 0.0  # the largest share of its tolerance that a sound result used

    def count(self, work: Work) -> None:
        """Add the searches of one more network."""
        self.split += work.splits > 0
        for name in ("searches", "splits", "parts", "programs"):
            setattr(self, name, getattr(self, name) + getattr(work, name))

    def near(self, share: float) -> None:
        self.rounding = max(self.rounding, share)


# Phrases in a reader's error that call the model damaged. For a model that runs, they are wrong.
_DAMAGED_MODEL_PHRASES = (
    *("is not as ONNX has it", "scalars a sample", "does not fit", "reads outside an axis", "names axis"),
    *("is called in a way that is not known here", "joins shapes"),
)


def calls_model_damaged(error: ProofmapError) -> bool:
    """Return whether a refusal calls the model damaged."""
    return isinstance(error, FileError) or any(words in str(error) for words in _DAMAGED_MODEL_PHRASES)


def refusal_reason(error: ProofmapError) -> str:
    """Return the reason of a refusal without the names of nodes."""
    words = str(error).split(" (node ")[0].split(":")[0]
    return f"{type(error).__name__}: {words[:90]}"


def raw_error(where: str, error: Exception) -> Found:
    """Return the finding for an exception that is not one of ours."""
    text = " ".join(str(error).split())[:300]
    return Found("raw error", f"{where} raised {type(error).__name__}: {text}")
