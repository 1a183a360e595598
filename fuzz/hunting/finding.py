"""What a hunt brings home."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from fuzz.hunting.counting import Work
from proofmap.errors import FileError, ProofmapError

# From worst to least: a bound that a point exceeds; a model read as another; an exception that nobody raised on
# purpose; results that should agree; a refusal with a reason that is not true.
KINDS = ("unsound", "misread", "raw error", "disagreement", "wrong refusal")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, with all that it takes to see it again."""

    seed: int
    kind: str
    what: str
    network: tuple[str, ...]

    @property
    def sort(self) -> str:
        """What findings of one cause have in common, nearly: the sentence without its numbers and names."""
        return re.sub(r"'[^']*'|[\d.]+(e[-+]?\d+)?|\{.*\}", "*", f"{self.kind}: {self.what}")

    def __str__(self) -> str:
        lines = "\n".join(f"    {line}" for line in self.network)
        return f"{self.kind.upper()}: {self.what}\n  python scripts/hunt.py --seed {self.seed} --networks 1\n{lines}"


class Found(Exception):  # noqa: N818 (what is looked for is no error of the one who looks)
    """Raised where a check meets what is wrong."""

    def __init__(self, kind: str, what: str) -> None:
        assert kind in KINDS
        super().__init__(what)
        self.kind, self.what = kind, what


@dataclass
class Tally:
    """How much was looked at."""

    networks: int = 0
    balls: int = 0
    points: int = 0
    hidden: int = 0  # intervals of hidden entries, each compared with every point
    lines: int = 0  # forms pulled through one operation
    bounds: int = 0
    files: int = 0
    searches: int = 0  # of samples, by trees
    split: int = 0  # networks with parts
    splits: int = 0
    parts: int = 0
    programs: int = 0  # parts without a bend that were solved
    closed: int = 0  # overlaps whose two sides met
    enumerated: int = 0  # overlaps that are known exactly
    equal: int = 0  # of these, those whose upper side is the truth, to the gap
    undecided: int = 0  # hostile networks whose bounds leave the range
    fooled: int = 0  # hostile networks of which a bound without roundings is exceeded
    misled: int = 0  # those with ReLUs of which a search without roundings proves too much, in float64
    operations: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rounding: float = 0.0  # the largest share of its tolerance that anything sound took

    def count(self, work: Work) -> None:
        """The searches of one more network."""
        self.split += work.splits > 0
        for name in ("searches", "splits", "parts", "programs"):
            setattr(self, name, getattr(self, name) + getattr(work, name))

    def near(self, share: float) -> None:
        self.rounding = max(self.rounding, share)


# What a reader says of a model that is damaged: not true of one that runs.
_DAMAGED = (
    *("is not as ONNX has it", "scalars a sample", "does not fit", "reads outside an axis", "names axis"),
    *("is called in a way that is not known here", "joins shapes"),
)


def misjudged(error: ProofmapError) -> bool:
    """Whether a refusal calls a model damaged."""
    return isinstance(error, FileError) or any(words in str(error) for words in _DAMAGED)


def reason(error: ProofmapError) -> str:
    """What was refused, without the names of nodes."""
    words = str(error).split(" (node ")[0].split(":")[0]
    return f"{type(error).__name__}: {words[:90]}"


def raw(where: str, error: Exception) -> Found:
    """An exception that is none of ours."""
    text = " ".join(str(error).split())[:300]
    return Found("raw error", f"{where} raised {type(error).__name__}: {text}")
