"""The pages claim exactly what the certificates claim, and list for every question what others must add."""

import json
import re
import string
import sys
from base64 import b64decode
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proofmap.dossier.page_texts import templates
from proofmap.proof import check as checker
from tests.dossier.making import REASON, Members, members_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BALL = "within ε = 0.02 (L∞) of the input, with values in [0, 1]"


@pytest.fixture(scope="module")
def members(archive: Path) -> Members:
    return members_of(archive)


@pytest.fixture(scope="module")
def page(members: Members) -> str:
    return members["evidence.md"].decode()


def part(page: str, title: str) -> str:
    """Return the answer to one question."""
    return page.partition(f"### {title}")[2].partition("\n#")[0]


def claimed(row: int, bounds: list[float], lower: list[float] | None, **changes: Any) -> Any:
    """Return a claim with the fields that the pages count."""
    ends = [(np.array(bounds), None if lower is None else np.array(lower))]
    ball = {"norm": "inf", "eps": "0.02", "half": None, "relative": False, "domain": None}
    stated: dict[str, Any] = {"target": 0, "rivals": [1, 2], "every": True, "margin": 0.0}
    stated |= {name: changes.pop(name) for name in [*stated] if name in changes}
    about = {"ball": ball, "stated": ball, "x": np.zeros(3), "statement": checker.Decision(**stated)}
    return checker.Claim(
        ends=ends, groups=len(bounds) - 1, input=f"{row}", file={"sha256": "f"}, **{**about, **changes}
    )


def counted(claims: dict[int, Any], samples: list[dict[str, Any]]) -> SimpleNamespace:
    files = {"file_sha256": None, "certificate": "", "input": "", "reason": "none", "sample": ""}
    stated = [{**files, "label": None, "predicted": None, **one} for one in samples]
    entries = [checker.entry(row, one, claims.get(row), "decisions") for row, one in enumerate(stated)]
    return SimpleNamespace(**checker.figures(entries, [*claims.values()], stated))


def test_figures_are_counted_from_the_claims() -> None:
    claims = {
        0: claimed(0, [-1.0, -2.0, -3.0], [-1.5, -2.5, -3.5]),  # group 1 counts more than group 0
        1: claimed(1, [3.14159, 2.0, 1.0], None),
        3: claimed(3, [-0.5, -0.6, -0.7], None),
    }
    labels = [
        {"label": 1, "predicted": 0},
        {"label": 0, "predicted": 0},
        {"label": 0, "predicted": 0},
        {"label": 0, "predicted": 0},
    ]
    found = counted(claims, labels)
    assert (found.samples, found.certified, found.distinct, found.open) == (4, 3, 3, 2)
    assert (found.undecided, found.missing) == (1, 1)
    assert found.proven == "2 of 4 samples (50.0 %)"
    assert (found.verdict, found.worst) == ("2 of 4 decisions proven, 2 not proven", "3.15")
    assert (found.frozen, found.searched, found.intervals, found.ordered) == (6, 1, 2, 1)
    assert found.correct == "3 of 4 labelled samples (75.0 %)"
    assert found.certified_correct == "1 of 4 labelled samples (25.0 %)"
    assert counted(claims, [{}] * 4).certified_correct == "0 of 0 labelled samples"


@pytest.mark.parametrize(
    "change",
    [
        {"every": False},
        {"margin": 1.0},
        {"ball": {"norm": "inf", "eps": "0.02", "half": "+", "relative": False, "domain": None}},
    ],
)
def test_a_decision_is_proven_against_all_rivals_on_the_whole_ball_alone(change: dict[str, Any]) -> None:
    assert counted({0: claimed(0, [-1.0], None)}, [{}]).open == 0
    assert counted({0: claimed(0, [-1.0], None, **change)}, [{}]).open == 1


def test_the_radii_of_several_balls_are_a_range() -> None:
    def ball(eps: str, **more: Any) -> dict[str, Any]:
        stated = {"norm": "inf", "eps": eps, "half": None, "relative": False, "domain": ["0", "1"], **more}
        return {"ball": stated, "stated": stated}

    claims = [claimed(0, [-1.0], None, **ball(eps)) for eps in ("0.02", "0.0123456789", "0.5")]
    several = "ε = 0.0123456 to 0.5, as stated for each input,"
    assert checker.within(claims, "the") == f"within {several} (L∞) of the input, with values in [0, 1]"
    claims.append(claimed(0, [-1.0], None, **ball("1", norm="2", domain=None)))
    assert checker.within(claims, "the").startswith("within ε = 1 (L2) of the input, with values of any size; or ")


def test_nothing_is_claimed_that_is_not_there(page: str) -> None:
    assert "It is no statement of conformity" in page
    assert f"Proven for 2 of 3 samples (66.6 %): {BALL}, and no other ball" in part(page, "Stability")
    assert "1 of 3 samples are not proven" in part(page, "Stability")
    assert "For 0 samples an input of the ball reaches a lower end" in part(page, "Sensitivity")
    assert "The order of 0 pairs of groups is proven" in part(page, "Relevance")
    assert "such a map alone proves no order" in part(page, "Relevance")
    assert "One step only" in part(page, "Reachability")
    assert "Nothing shows that they represent the inputs in use" in part(page, "Domain")
    assert all(words in page for words in ("TF32", "Winograd", "any order of summation"))


@pytest.mark.parametrize("article", [12, 13, 15])
def test_the_articles_are_there(page: str, article: int) -> None:
    assert f"### Article {article}, " in page


def test_every_row_has_its_three_answers_on_both_pages(members: Members) -> None:
    texts = tomllib.loads(files("proofmap.dossier").joinpath("evidence.toml").read_text(encoding="utf-8"))
    rows = [row for framework in texts["frameworks"] for row in framework["rows"]]
    plain, page = (members[f"evidence.{kind}"].decode() for kind in ("md", "html"))
    assert len(rows) == 15
    assert all(set(row) == {"title", "asks", "holds", "lacks", "who"} and all(row.values()) for row in rows)
    for label in ("In the dossier", "Not in it", "Who must add it"):
        assert plain.count(f"- **{label}**: ") == len(rows)
        assert page.count(f'data-label="{label}"') == len(rows)
    for row in rows:
        assert f"### {row['title']}\n" in plain
        assert row["title"] in page


def test_every_figure_of_a_text_is_one_that_the_checker_puts_in(members: Members) -> None:
    known = json.loads(members["evidence.json"])
    names = {*known["figures"], *known["stated"], "first_certificate", "first_input", "samples_shown"}
    for name, text in (*templates().items(), *templates("outputs").items()):
        found = {match["named"] for match in string.Template.pattern.finditer(text.decode())}
        assert found <= (
            names if name != "templates/sample.html" else {"row", "name", "label", "word", "sentence", "facts", "shown"}
        )
    assert "$" not in "".join(members[name].decode() for name in ("evidence.md", "evidence.html", "README.txt"))


def test_members_that_the_pages_name_are_there(members: Members, page: str) -> None:
    """Named members exist, or are folders or commands."""
    named = {name for name in re.findall("`([^`]+)`", page) if " " not in name}
    assert named - {"certificates/", "inputs/", "run/"} <= {*members}
    assert {"report.html", "samples.json", "claims.csv"} <= named


def test_the_readme_says_how_to_check(members: Members) -> None:
    text = members["README.txt"].decode()
    assert "python check.py dossier.zip" in text
    assert "python check.py certificates/000000.proof model/network.onnx inputs/000000.npy" in text


def test_the_report_shows_what_the_certificates_claim(members: Members) -> None:
    page, claims = members["report.html"].decode(), json.loads(members["claims.json"])
    cards = page.split('<section class="sample ')[1:]
    assert [card.partition('"')[0] for card in cards] == ["Proven", "Proven", "Undecided"]
    for card, claim in zip(cards[:2], claims, strict=False):
        most = checker.number(claim["ao_at_most"], "ROUND_CEILING")
        assert f"<dd>overlap on B ≤ {most}; overlap on all B_u ≤ " in card
        assert f"<dt>SHA-256 of the input</dt><dd>{claim['input_sha256']}</dd>" in card
        assert f"Decision {claim['target']} is proven: no input within ε = 0.02 (L∞) of this input" in card
        assert card.count("data:image/bmp;base64,") == 2
    assert f"NOT proven: no certificate ({REASON})." in cards[2]


def test_a_picture_is_the_input_pixel_for_pixel() -> None:
    opened = pytest.importorskip("PIL.Image").open
    colors = np.arange(3 * 5 * 6, dtype=np.float32).reshape(3, 5, 6) / 100
    for x in (colors, np.moveaxis(colors, 0, -1)):
        shown = checker.pictures(claimed(0, [-1.0], None, x=x))
        data = b64decode(shown.partition("base64,")[2].partition('"')[0])
        pixels = np.asarray(opened(BytesIO(data)))
        assert np.array_equal(pixels, np.rint(np.moveaxis(colors.astype(float), 0, -1) * 255))
    mask = np.zeros((1, 2, 2), int)
    mask[0, 1, 1] = 1
    shown = checker.pictures(claimed(0, [1.0, 1.0, -1.0], None, x=np.zeros((1, 2, 2), np.float32), mask=mask))
    data = b64decode(shown.rpartition("base64,")[2].partition('"')[0])
    assert np.asarray(opened(BytesIO(data))).tolist() == [[[255] * 3] * 2, [[255] * 3, [178, 0, 0]]]


def test_an_input_that_is_no_picture_is_a_table() -> None:
    shown = checker.pictures(claimed(0, [-1.0], None, x=np.array([0.25, -3.0], np.float32)))
    assert shown == (
        "<table><tr><th>0</th><td>0.25</td></tr><tr><th>1</th><td>-3</td></tr></table>2 values, the first 2"
    )
