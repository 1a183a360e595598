"""The report: one HTML file that holds everything it shows, and loads and runs nothing.

All that comes from files (names, settings, numbers) is text to the template, which escapes it.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import nn

from proofmap.bench import Table
from proofmap.errors import InputError
from proofmap.explain import Explanation
from proofmap.graph import Graph
from proofmap.runs import Results
from proofmap.runs.folder import write
from proofmap.show.axis import Axis
from proofmap.show.comparison import comparison
from proofmap.show.sides import Verdict, attacked
from proofmap.show.words import BADGES, Names, number

if TYPE_CHECKING:
    from proofmap.show.page import Finding

__all__ = ["report"]

_MOST = 500  # maps in a page that a browser still opens with ease
_GLYPHS: Mapping[Verdict, str] = {"proven": "✓", "open": "?", "refuted": "✗", "unproven": "–", "aside": "–"}


def report(
    out: Path,
    explanations: Sequence[tuple[str, Explanation]],
    *,
    classes: Names = None,
    table: Table | None = None,
    model: nn.Module | Graph | None = None,
    runs: Sequence[tuple[str, Results]] = (),
) -> None:
    """Write the page for named explanations to `out`; the same arguments give the same bytes.

    classes: names of the classes. table: a comparison of methods to show beside. model: the one that was explained;
    an attack on it then gives the lower side of each overlap, which is the overlap at the input itself without. runs:
    named results of data sets, each summed up.
    """
    if not explanations and not runs:
        raise InputError("got no explanation and no run, expected at least one to report on")
    count = sum(len(e) for _, e in explanations)
    if count > _MOST:
        raise InputError(f"got {count} explained samples, expected at most {_MOST} in one page: report on fewer files")
    _check_classes(explanations, classes)
    from proofmap.show.dataset import data_set  # and with it matplotlib, which takes a while
    from proofmap.show.page import records_of, subjects_of
    from proofmap.show.panels import gradient

    reached = [None if model is None else attacked(model, name, e) for name, e in explanations]
    data_sets = [data_set(at, name, results) for at, (name, results) in enumerate(runs, start=1)]
    records, ids = records_of(explanations)
    subjects = subjects_of(explanations, classes, reached, ids)
    findings = [finding for subject in subjects for finding in subject.findings]
    counts = Counter(finding.verdict for finding in findings)
    page = _TEMPLATES.get_template("report.html").render(
        version=sys.modules["proofmap"].__version__,
        headline=_headline(len(findings), len(subjects), sum(len(results) for _, results in runs)),
        subjects=subjects,
        data_sets=data_sets,
        counts=[(answer, name, counts[answer]) for answer, name in BADGES.items() if counts[answer]],
        axis=_axis(findings),
        records=records,
        comparison=None if table is None else comparison(table),
        ramps={"positive": gradient(signed=False), "signed": gradient(signed=True)},
        glyphs=_GLYPHS,
    )
    write(out, page.encode(errors="replace"))  # a name may hold what is no character


def _check_classes(explanations: Sequence[tuple[str, Explanation]], classes: Names) -> None:
    if classes is None:
        return
    for name, e in explanations:
        named = torch.stack([e.target, e.predicted, e.overlap.target])
        low, high = int(named.min()), int(named.max())
        if low < 0 or high >= len(classes):
            wrong = low if low < 0 else high
            raise InputError(f"got {len(classes)} names for the classes, expected one for class {wrong} of {name} too")


def _axis(findings: Sequence[Finding]) -> Axis:
    """One for the whole summary. A loose bound runs out of it, where it would press all others together."""
    sides = [side for finding in findings for side in finding.sides]
    reach = 2 * max((abs(side.known.lower) for side in sides if math.isfinite(side.known.lower)), default=math.inf)
    return Axis.over(max(-reach, min(end, reach)) for side in sides for end in side.ends())


def _headline(findings: int, inputs: int, samples: int) -> str:
    parts = [f"{_plural(findings, 'finding')} about {_plural(inputs, 'input')}"] if findings else []
    parts += [f"{_plural(samples, 'sample')} of data sets"] if samples else []
    return ", ".join(parts)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("proofmap", "show"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"place": "{:.2f}%".format, "score": _score, "bound": number}
    return found


def _score(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


_TEMPLATES = _templates()
