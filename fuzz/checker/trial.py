"""What one seed of a campaign comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """Something that is accepted wrongly. `files` are enough to see it again."""

    seed: int
    outcome: str
    why: str
    about: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return "\n    ".join([f"seed {self.seed}: {self.outcome}: {self.why}", *self.about])

    def save(self, folder: Path) -> None:
        """Write the files and the explanation into a folder named after the seed."""
        place = folder / f"{self.seed}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "finding.txt").write_text(f"{self}\n", encoding="utf-8")
        for name, data in self.files.items():
            (place / name).write_bytes(data)


@dataclass(frozen=True)
class Trial:
    """Counts to add up, a note on why the seed came to its outcome, and what is wrong, if anything."""

    counts: dict[str, int]
    note: str = ""
    finding: Finding | None = None
