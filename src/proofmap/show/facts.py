"""What a reader can check: the files of a model or an input, and digests, each with a line on what it covers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from proofmap.explain import File

__all__ = ["Fact", "file_facts", "network_digest", "values_digest"]


@dataclass(frozen=True)
class Fact:
    """A term and its value; a hash has a line on what it stands for."""

    term: str
    value: str
    covers: str = ""


def file_facts(files: Iterable[File]) -> Iterator[Fact]:
    """A hash of each file that anybody who has it can make again."""
    for file in files:
        yield Fact(f"SHA-256 of {file.path}", file.sha256, "as sha256sum prints it; covers every byte of the file")


def network_digest(digest: str) -> Fact:
    """The name that Proofmap gives a network."""
    covers = (
        "made by Proofmap; covers operations, shapes and every weight, and how values are prepared (mean, deviation, "
        "layout), whatever file they come from"
    )
    return Fact("Digest of the network", digest, covers)


def values_digest(digest: str) -> Fact:
    """The name that Proofmap gives an input."""
    return Fact("Digest of the values", digest, "made by Proofmap; covers type, shape and all values, as explained")
