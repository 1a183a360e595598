"""A panel from outside the package: one class adds a section, its style and its link to a report."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pytest

from proofmap.errors import InputError
from proofmap.report import report
from proofmap.report.panel import Panel, PanelSource, ReportData
from tests.explainers.making import make
from tests.report.markup import Element, faults, read


@dataclass(frozen=True)
class LargestScores:
    """The largest score of each finding, as a list."""

    data: ReportData
    id: str = "largest"
    title: str = "Largest scores"
    style: str = ".largest li { font-weight: 650; }"

    def section(self) -> str:
        """Return one line for each finding."""
        findings = [finding for network in self.data.networks for finding in network.findings]
        lines = [f"<li>{escape(f.title)}: {max(place.score for place, _ in f.places):.3f}</li>" for f in findings]
        return (
            f'<section class="part largest" aria-labelledby="{self.id}"><h2 id="{self.id}">{self.title}</h2>'
            f"<ul>{''.join(lines)}</ul></section>"
        )


def largest_scores(data: ReportData) -> Iterator[Panel]:
    """Yield the panel, if there is a finding."""
    if data.networks:
        yield LargestScores(data)


def page_of(path: Path, *sources: PanelSource) -> tuple[str, Element]:
    """The text and the tree of a page with further panels."""
    out = path / "page.html"
    report(out, [("some", make((2, 1, 4, 4)))], panels=sources)
    text = out.read_text(encoding="utf-8")
    assert faults(text) == []
    return text, read(text)[0]


def test_a_panel_adds_its_section_its_style_and_its_link(tmp_path: Path) -> None:
    _, root = page_of(tmp_path, largest_scores)
    (section,) = [each for each in root.all("section") if "largest" in each.attributes["class"]]
    e = make((2, 1, 4, 4))
    expected = [f"EVA, why class {int(e.target[k])}: {float(e.scores[k].max()):.3f}" for k in range(len(e))]
    assert [line.text for line in section.all("li")] == expected
    assert ".largest li { font-weight: 650; }" in root.all("style")[0].text
    assert [link.text for link in root.all("nav")[0].all("a")][-1] == "Largest scores"
    headings = [heading.text for heading in root.all("h2")]
    assert headings.index("Largest scores") == len(headings) - 1


def test_a_panel_may_have_nothing_to_show(tmp_path: Path) -> None:
    with_panel, _ = page_of(tmp_path, lambda data: iter(()))
    without, _ = page_of(tmp_path)
    assert with_panel == without


def test_two_panels_with_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got two panels with the id 'largest'"):
        page_of(tmp_path, largest_scores, largest_scores)
