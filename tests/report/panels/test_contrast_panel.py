"""Contrastive sets in the report: a card for each input, statements that claim no more, and valid HTML."""

from pathlib import Path

import torch

import proofmap as pm
from proofmap.report import report
from proofmap.report.contrast_page import contrast_claim, contrast_page
from tests.plots.reasons.contrasted import contrasted
from tests.report.markup import faults, read


def test_the_page_shows_every_set(tmp_path: Path) -> None:
    images, table = contrasted(), contrasted((4,), torch.tensor([[0, 1, 2, 3]]))
    report(tmp_path / "page.html", [("images", images), ("table", table)])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert faults(page) == []
    root = read(page)[0]
    (section,) = (one for one in root.all("section") if one.attributes.get("aria-labelledby") == "contrasts")
    cards = [one for one in section.all("div") if one.attributes.get("class") == "card"]
    assert len(cards) == len(images) + len(table)
    assert len(list(section.all("img"))) == 2 + 1 + 1
    assert "no set can change the decision" in page
    assert "Changed to" in page


def test_other_reports_have_no_such_panel(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).eval()
    e = pm.EVA(model, pm.Ball(0.1), progress=False).explain(torch.rand(1, 6))
    report(tmp_path / "page.html", [("eva", e)])
    assert 'id="contrasts"' not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_page_says_what_is_not_guaranteed() -> None:
    e = contrasted()
    found, missing, nothing = (contrast_claim(e, k) for k in range(3))
    assert found.short.startswith("Changing these 2 of 4 groups within the ball")
    assert found.open[0] == "Whether fewer than 2 groups suffice was not decided."
    assert any("Another set of groups may change the decision" in one for one in found.open)
    assert missing.short == "At least 3 groups have to change: proven."
    assert "It is not known whether there is one." in missing.open[0]
    assert nothing.short.startswith("Proven: no change within the ball")
    assert not any("proven" in one.lower() for one in found.guaranteed)


def test_the_table_has_both_values() -> None:
    e = contrasted((4,), torch.tensor([[0, 1, 2, 3]]))
    page = contrast_page(e[0], "x")
    assert [len(row) for row in page.rows] == [3, 3]
    assert float(page.rows[0][2].replace("−", "-")) - float(page.rows[0][1].replace("−", "-")) - 0.25 < 1e-4
    assert contrast_page(e[2], "x").rows == []
