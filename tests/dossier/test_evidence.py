"""The pages claim what the certificates claim and no more, for every question what is missing, and by whom."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from proofmap.dossier.certificates import Certificates
from proofmap.dossier.evidence import pages
from proofmap.dossier.facts import Facts
from proofmap.runs import Results
from tests.dossier.making import COUNT, GROUPS, certify

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIRST = {"certificate": "certificates/000000.proof", "model": "model/model.onnx", "input": "inputs/000000.npy"}
BALL = "ε = 0.015 in L∞, values within [0, 1]"


def facts_of(folder: Path) -> Facts:
    results = Results.open(folder)
    return Facts.of(results, Certificates.open(results))


def markdown(facts: Facts) -> str:
    return pages(facts, FIRST, "Made on 1 March 2026")["evidence.md"].decode()


def part(page: str, title: str) -> str:
    """The answer to one question."""
    return page.partition(f"### {title}")[2].partition("\n#")[0]


def test_figures_are_counted_from_the_certificates(certified: Path) -> None:
    results, facts = Results.open(certified), facts_of(certified)
    decided = sum(float(full) <= 0 for row, full in enumerate(results["full"]) if row != 3)
    assert (facts.samples, facts.certified, facts.missing) == (COUNT, COUNT - 1, 1)
    assert facts.proven.startswith(f"{decided} of {COUNT} samples")
    assert facts.undecided == COUNT - 1 - decided > 0
    assert facts.frozen == (COUNT - 1) * GROUPS
    assert facts.ball == BALL
    assert (facts.searched, facts.intervals, facts.ordered) == (0, 0, 0)
    right = sum(
        float(full) <= 0 and target == label
        for row, (full, target, label) in enumerate(
            zip(*(results[n] for n in ("full", "target", "label")), strict=True)
        )
        if row != 3
    )
    assert facts.certified_correct.startswith(f"{right} of {COUNT} labelled samples")


def test_lower_sides_are_counted_where_they_are(bare: Path) -> None:
    certify(bare, lower=True)
    facts, count = facts_of(bare), COUNT - 1
    assert (facts.searched, facts.intervals, facts.ordered) == (count, count * GROUPS, count * 2 * (GROUPS - 2))
    page = markdown(facts)
    assert f"{count * GROUPS} scores of groups lie between two proven ends" in part(page, "Sensitivity")
    assert f"for {count * 2 * (GROUPS - 2)} pairs of groups" in part(page, "Relevance")


def test_nothing_is_claimed_that_is_not_there(certified: Path) -> None:
    facts = facts_of(certified)
    page = markdown(facts)
    assert "No statement of conformity".lower() in page.lower()
    assert f"Proven for {facts.proven}, for {BALL} and no other" in part(page, "Stability")
    assert "no score has a proven interval" in part(page, "Sensitivity")
    assert "No proven order" in part(page, "Relevance")
    assert "a map is no proof" in part(page, "Relevance")
    assert "`check.py` finds whether these files are as they were packed, and proves none" in page
    assert "One step alone" in part(page, "Reachability")
    assert "Nothing shows that they are representative" in part(page, "Domain")
    assert all(words in page for words in ("TF32", "Winograd", "any order of summation"))
    unlabelled = markdown(replace(facts, labelled=0))
    assert "Nothing: no labels were given" in part(unlabelled, "Article 15, accuracy")
    assert facts.correct not in unlabelled


@pytest.mark.parametrize("article", [12, 13, 15])
def test_the_articles_are_there(certified: Path, article: int) -> None:
    assert f"### Article {article}, " in markdown(facts_of(certified))


def test_every_row_has_its_three_answers_on_both_pages(certified: Path) -> None:
    texts = tomllib.loads(files("proofmap.dossier").joinpath("evidence.toml").read_text(encoding="utf-8"))
    rows = [row for framework in texts["frameworks"] for row in framework["rows"]]
    made = pages(facts_of(certified), FIRST, "Made on 1 March 2026")
    assert len(rows) == 15
    assert all(set(row) == {"title", "asks", "holds", "lacks", "who"} and all(row.values()) for row in rows)
    for label in ("In the dossier", "Not in it", "Who must add it"):
        assert made["evidence.md"].decode().count(f"- **{label}**: ") == len(rows)
        assert made["evidence.html"].decode().count(f'data-label="{label}"') == len(rows)
    for row in rows:
        assert f"### {row['title']}\n" in made["evidence.md"].decode()
        assert row["title"] in made["evidence.html"].decode()


def test_names_from_files_are_text(certified: Path) -> None:
    facts = replace(facts_of(certified), model="<script>alert(1)</script>", ball="<b>`</b>")
    page = pages(facts, FIRST, "Made by <i>Ada</i>")["evidence.html"].decode()
    assert not re.search("<script|<b>|<i>", page)
    assert "default-src 'none'" in page


def test_members_that_the_pages_name_are_there(certified: Path) -> None:
    """Or are folders, or commands."""
    page = markdown(facts_of(certified))
    known = {"claims.csv", "claims.json", "report.html", "check.py", "manifest.json", "environment.json"}
    known |= {"run/manifest.json", "run/log.jsonl", "certificates/", "inputs/", "run/", "model/network.onnx"}
    named = {name for name in re.findall("`([^`]+)`", page) if " " not in name}
    assert named <= known


def test_the_readme_says_how_to_check(certified: Path) -> None:
    text = pages(facts_of(certified), FIRST, "Made on 1 March 2026")["README.txt"].decode()
    assert "python check.py ../dossier.zip" in text
    assert "python check.py certificates/000000.proof model/model.onnx inputs/000000.npy" in text
