"""The page: its content, its independence of other files, and the escaping of texts from files."""

import json
import math
import re
from base64 import b64decode
from dataclasses import replace
from datetime import date
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import proofmap as pm
from proofmap.bench import Cell, Column, Table
from proofmap.errors import FileError, InputError
from proofmap.explainers import Explanation, Origin, Source
from proofmap.report import report
from proofmap.verify.overlap import Overlap
from tests.explainers.making import bounds, make, make_signed
from tests.report.conftest import CLASSES, tabular
from tests.report.markup import Element, faults, read

MARKUP = '</title></style><script>window.ran = 1</script><img src=x onerror="window.ran = 1">\' & {{ 7 * 6 }}'
SHAPES: dict[str, tuple[int, ...]] = {
    "grey": (2, 1, 28, 28),
    "flat grey": (2, 6, 5),
    "colour": (1, 3, 8, 8),
    "five channels": (1, 5, 4, 4),
    "large": (1, 3, 500, 300),
    "one pixel": (1, 1, 1, 1),
    "wide": (1, 1, 2, 300),
    "table": (2, 7),
    "volume": (1, 2, 3, 4, 5),
}


def written(path: Path, *files: tuple[str, Explanation], **options: object) -> Element:
    """Return the page of some explanations as a tree, after a check for faults."""
    out = path / "page.html"
    report(out, files, **options)  # type: ignore[arg-type]
    page = out.read_text(encoding="utf-8")
    assert faults(page) == []
    return read(page)[0]


def test_the_page_has_no_fault(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8")) == []


def test_a_finding_of_two_halves_has_one_verdict(page: Path) -> None:
    """The summary has one verdict for each counted finding."""
    root, _ = read(page.read_text(encoding="utf-8"))
    counted = int(root.all("p")[0].text.partition(" findings")[0])
    cells = [cell for cell in root.all("td") if cell.attributes.get("data-label") == "Finding"]
    assert len(cells) == counted == len(root.all("article"))
    assert {cell.attributes["rowspan"] for cell in cells} == {"1", "2"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<td data-label="Explanation"><span>', '<td data-label="Explanation">said: <span>'),
        ("</td>", ""),
        ('<html lang="en">', "<html>"),
        ("<h3", "<h4"),
        ('alt="', 'title="'),
        ("</figcaption>", "</figcaption></figure><figure><figcaption>x</figcaption>"),
        ('scope="row"', ""),
        ('id="input-2"', 'id="input-1"'),
        ('href="#record-1"', 'href="#record-99"'),
        ('href="#record-1"', 'href="https://example.com"'),
        ("</body>", "<script></script></body>"),
        ("color-scheme: light dark;", "background: url(x.png);"),
        ('<td class="number">', '<td class="number"></td><td class="number">'),
        ("<main", '<main onclick="x()"'),
    ],
)
def test_the_test_notices_a_fault(page: Path, old: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert old in text
    assert faults(text.replace(old, new, 1)) != []


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_makes_a_page(shape: tuple[int, ...], tmp_path: Path) -> None:
    root = written(tmp_path, ("some", make(shape, groups=min(5, math.prod(shape[1:])))))
    image = len(shape) in (3, 4)
    assert len(root.all("img")) == (3 * shape[0] if image else 0)
    assert "The scores themselves are not proven." in root.text


def test_the_same_arguments_give_the_same_bytes(findings: list[tuple[str, Explanation]], tmp_path: Path) -> None:
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    for out in (first, second):
        report(out, findings[:2], model=pm.zoo.mnist_mlp(), date=date(2026, 3, 1))
    assert first.read_bytes() == second.read_bytes()


def test_maps_of_one_input_stand_together(page: Path) -> None:
    root, _ = read(page.read_text(encoding="utf-8"))
    inputs = [section for section in root.all("section") if section.all("article")]
    assert [len(section.all("article")) for section in inputs] == [
        13,
        1,
        1,
        1,
        1,
        7,
        1,
        1,
    ]  # the network, then its inputs
    titles = [heading.text for heading in inputs[5].all("h4")]
    assert titles[:2] == ["EVA, why “four”", "TargetedEVA, from “four” towards “nine”"]


def test_everything_is_on_the_page(page: Path, findings: list[tuple[str, Explanation]], table: Table) -> None:
    """The page contains predictions, bounds, settings, versions, hashes, seconds and the comparison."""
    text = read(page.read_text(encoding="utf-8"))[0].text
    for _, e in findings:
        for said in (e.model_hash, e.input_hash, f"{e.seconds:.3g}", *e.versions.values(), *e.settings):
            assert said in text
    assert "found by an attack with 20 steps from 4 starts" in text
    for method, cells in table.rows.items():
        assert method in text
        assert all(f"{cell.mean:.3f}" in text for cell in cells.values())
    for badge in ("Proven", "Undecided", "Refuted", "Not proven", "Not about the decision"):
        assert badge in text


def test_printed_bounds_are_rounded_outward(page: Path) -> None:
    """Each printed lower bound is at most the printed upper bound."""
    root, _ = read(page.read_text(encoding="utf-8"))
    rows = [row for body in root.all("table")[0].all("tbody") for row in body.all("tr")]
    seen = 0
    for row in rows:
        low, high = [cell.text.replace("−", "-") for cell in row.all("td") if cell.attributes.get("class") == "number"]
        if high != "none":
            assert float(low) <= float(high)
            seen += 1
    assert seen >= 7


def test_searched_scores_have_intervals(page: Path) -> None:
    """They are in a table with whiskers and in the sentence on the proven ranks. Other findings have none."""
    root, _ = read(page.read_text(encoding="utf-8"))
    known = [article for article in root.all("article") if "True score" in article.text]
    assert [article.all("h4")[0].text.partition(",")[0] for article in known] == ["TargetedEVA", "EVA"]
    for article in known:
        assert "The scores themselves are not proven." not in article.text
        assert re.search(r"\d+ of 49 cells are proven to (be among the 10 that )?matter most", article.text)
        (table,) = [table for table in article.all("table") if "True score" in table.text]
        for row in table.all("tbody")[0].all("tr"):
            score, low, high, *_ = [float(cell.text.replace("−", "-")) for cell in row.all("td") if _numeric(cell)]
            assert low <= score <= high
            solid = not any("open" in box.attributes["class"] for box in row.all("rect"))
            assert solid == ("proven" in [cell.text for cell in row.all("td")])
            assert sum("whisker" in line.attributes["class"] for line in row.all("line")) == 6
    others = [article for article in root.all("article") if article not in known]
    assert all("The scores themselves are not proven." in article.text for article in others)


def _numeric(cell: Element) -> bool:
    return cell.attributes.get("class") == "number"


def test_markup_in_files_stays_text(tmp_path: Path) -> None:
    e = replace(
        make((1, 1, 4, 4)),
        method=MARKUP,
        settings={"eps": 0.1, "norm": MARKUP, "objective": MARKUP, MARKUP: {"a": [MARKUP]}},
        versions={MARKUP: MARKUP},
        model_hash=MARKUP,
        origin=Origin(Source(MARKUP), (Source(MARKUP),), None, (MARKUP,) * 9, None, MARKUP),
    )
    cell = Cell(0.5, 0.4, 0.6, 3, "best")
    table = Table(
        MARKUP, (Column("deletion", MARKUP, False),), {MARKUP: {"deletion": cell}}, {MARKUP: {}}, {MARKUP: 1.0}
    )
    for name, shown in ((MARKUP, e), (MARKUP, make_signed())):
        root = written(tmp_path, (name, shown), classes=[MARKUP] * 9, table=table)
        plain = " ".join(MARKUP.split())
        assert root.all("script") == []
        assert plain in root.text
        assert "{{ 7 * 6 }}" in root.text
        assert len(root.all("img")) == 3 * len(shown)
        assert all(image.attributes["src"].startswith("data:image/png;base64,") for image in root.all("img"))


def test_lone_surrogates_do_not_stop_a_page(tmp_path: Path) -> None:
    written(tmp_path, ("caf\udce9", replace(make((1, 1, 4, 4)), settings={"eps": 0.1, "name": "\ud800"})))


def test_the_content_policy_forbids_scripts(page: Path) -> None:
    root, _ = read(page.read_text(encoding="utf-8"))
    policy = [m for m in root.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert [m.attributes["content"] for m in policy] == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_pictures_show_the_values(tmp_path: Path) -> None:
    """Pixels are enlarged without blending, and the brightest place of the map has the largest score."""
    e = make((1, 1, 4, 4), groups=16)
    root = written(tmp_path, ("some", e))
    found = [Image.open(BytesIO(b64decode(i.attributes["src"].partition(",")[2]))) for i in root.all("img")]
    shown = np.asarray(found[0])[::56, ::56]
    assert found[0].size == (224, 224)
    assert np.abs(shown - 255 * e.x[0, 0].numpy()).max() <= 0.5
    assert int(np.asarray(found[1].convert("L"))[28::56, 28::56].argmax()) == int(e.scores.argmax())


def test_nan_is_shown_as_unknown(tmp_path: Path) -> None:
    scores = torch.full((1, 5), math.nan)
    over = Overlap(
        torch.tensor([math.nan]), torch.full((1, 5), math.nan), torch.tensor([math.nan]), torch.tensor([0]), True
    )
    for guarantee in ("certified", "sampled", "none"):
        root = written(tmp_path, ("nothing", make((1, 1, 4, 4), scores=scores, overlap=over, guarantee=guarantee)))
        assert "Not proven" in root.text
        assert "No score is above zero." in root.all("img")[1].attributes["alt"]


def test_an_infinite_bound_guarantees_nothing(tmp_path: Path) -> None:
    e = make((1, 1, 4, 4), overlap=bounds(torch.rand(1, 5), torch.tensor([math.inf])))
    assert "Nothing: the bound is infinite." in written(tmp_path, ("vacuous", e)).text


def test_files_made_alike_share_a_record(tmp_path: Path) -> None:
    a, b = make((1, 1, 4, 4)), make((2, 1, 4, 4))
    root = written(tmp_path, ("a", a), ("b", b), ("c", replace(a, settings={**a.settings, "eps": 0.5})))
    records = [section for section in root.all("section") if "records" in section.attributes["class"]]
    assert [heading.text for heading in records[0].all("h3")] == ["EVA: a and 1 more", "EVA: c"]


def test_a_long_setting_is_cut(tmp_path: Path) -> None:
    long = np.linspace(0.01, 0.02, 999).tolist()
    text = written(tmp_path, ("a", replace(make((1, 1, 4, 4)), settings={"eps": long, "norm": "inf"}))).text
    assert f"({len(json.dumps(long))} characters; complete in the file)" in text
    assert "at most the radius in its record" in text


def test_columns_of_a_table_are_bars(tmp_path: Path) -> None:
    model, e = tabular()
    root = written(tmp_path, ("patient", e), model=model)
    best = int(e.scores.argmax())
    assert root.all("img") == []
    figure = root.all("figure")[0]
    assert figure.all("tbody")[0].all("th")[0].text == f"column {best}"
    assert figure.all("rect")[0].attributes["width"] == "100.00%"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"classes": CLASSES[:2]}, "got 2 names for the classes, expected one for class 2 of some too"),
        ({"model": pm.zoo.cifar_cnn()}, "give the model that was explained"),
    ],
)
def test_mismatched_arguments_are_refused(options: dict[str, object], reason: str, tmp_path: Path) -> None:
    with pytest.raises(pm.ProofmapError, match=reason):
        report(tmp_path / "page.html", [("some", make((3, 3, 32, 32)))], **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_class_below_zero_has_no_name(tmp_path: Path) -> None:
    """A negative index would select the last name of a Python list."""
    e = replace(make((1, 1, 4, 4)), predicted=torch.tensor([-1]))
    with pytest.raises(InputError, match="expected one for class -1 of some too"):
        report(tmp_path / "page.html", [("some", e)], classes=CLASSES)


def test_nothing_and_too_much_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got no explanation and no run"):
        report(tmp_path / "page.html", [])
    with pytest.raises(InputError, match="got 501 explained samples, expected at most 500"):
        report(tmp_path / "page.html", [("many", make((501, 1, 1, 1), groups=1))])


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(FileError, match="cannot write"):
        report(tmp_path / "page.html", [("some", make())])
