"""Sufficient sets in the report: a gallery, a finding about the ball of the free groups, and valid HTML."""

from pathlib import Path

import numpy as np
import pytest
import torch

import proofmap as pm
from proofmap.explainers.statements.explained_verdict import verdict_of
from proofmap.report import report
from proofmap.report.finding_pictures import hatched_picture
from proofmap.report.reason_page import reason_claim, reason_page
from proofmap.text.reason_wording import BALL_OF_FREE
from tests.plots.reasons.reasoned import reasoned
from tests.report.markup import faults, read


@pytest.fixture(scope="module")
def table() -> pm.Explanation:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).eval()
    x = torch.rand(2, 6)
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    return pm.Sufficient(model, ball, groups=pm.groups.columns(), progress=False).explain(x)


def test_the_page_shows_every_set(table: pm.Explanation, tmp_path: Path) -> None:
    images = reasoned()
    report(tmp_path / "page.html", [("table", table), ("images", images)])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert faults(page) == []
    root = read(page)[0]
    (section,) = (one for one in root.all("section") if one.attributes.get("aria-labelledby") == "reasons")
    cards = [one for one in section.all("div") if one.attributes.get("class") == "card"]
    assert len(cards) == len(table) + len(images)
    assert len(list(section.all("img"))) == 3 + 2  # no group of the second image is necessary
    assert "subset-minimal" in page
    assert "3 groups" in page


def test_other_reports_have_no_such_panel(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).eval()
    e = pm.EVA(model, pm.Ball(0.1), progress=False).explain(torch.rand(1, 6))
    report(tmp_path / "page.html", [("eva", e)])
    assert 'id="reasons"' not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_finding_is_about_the_ball_of_the_free_groups() -> None:
    """Its upper bound is that of the set, and not the bound over the whole ball."""
    e = reasoned()
    assert e.reason is not None
    verdict = verdict_of(e, 0, attacked=9.0)
    assert (verdict.kind, verdict.outcome, verdict.witness) == ("reason", "sufficient", None)
    (side,) = verdict.bounds
    assert (side.upper, side.attacked) == (float(e.reason.bound[0]), None)
    assert side.upper != float(e.overlap.full[0])
    assert BALL_OF_FREE.endswith("only the free groups move")


def test_the_page_says_what_is_not_guaranteed() -> None:
    found = reason_claim(reasoned(), 0)
    assert found.short.startswith("Of 4 groups, 3 keep their values: these decide. Proven: no change of")
    assert found.open[0] == "1 kept group is undecided: it is not known whether it can be freed as well."
    assert any("inputs in which a kept group moves" in one for one in found.open)
    assert any("Another set of groups may be sufficient" in one for one in found.open)
    assert not any("smallest" in one or "minimal" in one for one in found.guaranteed)


def test_the_table_lists_kept_groups_with_their_states() -> None:
    page = reason_page(reasoned()[0], "x")
    assert [state for _, _, state in page.rows] == ["necessary", "necessary", "undecided"]
    assert (page.kept, page.undecided, page.left_out) == (3, 1, 0)
    assert [words for _, words in page.pictures][:2] == ["Input", "Kept"]
    assert "another class" in page.pictures[2][1]


def test_stripes_cover_marked_pixels_alone() -> None:
    plain = np.zeros((2, 2, 3))
    marked = np.array([[True, False], [False, False]])
    assert hatched_picture(plain, marked & False, "#ffffff", "").source == (
        hatched_picture(plain, np.zeros((2, 2), bool), "#ff0000", "").source
    )
    assert hatched_picture(plain, marked, "#ffffff", "").source != (
        hatched_picture(plain, np.zeros((2, 2), bool), "#ffffff", "").source
    )
