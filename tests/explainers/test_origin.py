"""The origin of explanations: stored with their samples, and refused if it describes other samples."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proofmap.errors import InputError
from proofmap.explainers import Explanation, File, Origin, Source
from tests.explainers.making import forge, make, refuse

ORIGIN = Origin(
    Source("net.py:make", (File("net.py", "a" * 64), File("w.pt", "b" * 64))),
    tuple(Source(f"rows.csv#{k}", (File("rows.csv", "c" * 64),)) for k in range(3)),
    (2, None, 1),
    ("low", "middle", "high"),
    ("age", "weight"),
    "2026-03-01T10:00:00+01:00",
)


def test_an_origin_is_kept_and_goes_with_its_samples(tmp_path: Path) -> None:
    make((3, 2), 2, origin=ORIGIN).save(tmp_path / "e")
    again = Explanation.load(tmp_path / "e")
    assert again.origin == ORIGIN
    assert [again.label(k) for k in range(3)] == [2, None, 1]
    part = again[1:]
    assert part.origin is not None
    assert (part.origin.samples, part.origin.labels) == (ORIGIN.samples[1:], (None, 1))
    assert part.origin.model == ORIGIN.model
    assert make().label(0) is None


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: make((2, 2), 2, origin=ORIGIN), "got the origin of 3 samples, expected that of all 2"),
        (lambda: make((3, 3), 2, origin=ORIGIN), "got names for 2 columns, expected one for each of 3 variables"),
        (lambda: File("x", "12"), "got the file 'x' with SHA-256 '12', expected 64 digits in hex"),
        (lambda: replace(ORIGIN, labels=(1,)), "got 1 label.*, expected one for each of 3 samples"),
    ],
)
def test_an_origin_of_something_else_is_refused(made: Callable[[], object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        made()


@pytest.mark.parametrize(
    "origin", [5, [], {}, {**ORIGIN.json(), "labels": [-1, 0, 0]}, {**ORIGIN.json(), "model": {"name": 5, "files": []}}]
)
def test_an_origin_that_is_none_is_refused(origin: Any, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: words.update(origin=origin))
    refuse(tmp_path / "e", "holds parts that do not fit together")
