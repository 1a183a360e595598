"""The networks of the report: totals by network and ball, labels, files, dates and the author."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

from proofmap.errors import InputError
from proofmap.explainers import Explanation, File, Origin, Source
from proofmap.report import report
from proofmap.storage.hashing import hash_tensor
from tests.explainers.making import bounds, make
from tests.report.markup import Element, faults, read

CLASSES = ("cat", "dog", "ship")


def explained(name: str, *said: int, full: float = -1.0, eps: float = 0.01, **changes: Any) -> Explanation:
    """Return explanations of the same pictures, with the predictions `said` and the labels 0, 1, 2, ..."""
    count = len(said)
    sources = tuple(Source(f"{k}.png", (File(f"pictures/{k}.png", f"{k}" * 64),)) for k in range(count))
    model = Source(f"nets/{name}.onnx", (File(f"nets/{name}.onnx", name[0] * 64),))
    origin = Origin(model, sources, tuple(range(count)), CLASSES, made="2026-03-01T10:00:00+01:00")
    scores = torch.rand(count, 5)
    predicted = torch.tensor(said)
    over = replace(bounds(scores, torch.full((count,), full)), target=predicted)
    settings = {"eps": eps, "norm": "inf", "domain": [0.0, 1.0], **changes}
    return make(
        (count, 1, 4, 4),
        scores=scores,
        overlap=over,
        target=predicted,
        predicted=predicted,
        settings=settings,
        model_hash=name[0] * 64,
        origin=origin,
    )


def one_group() -> Explanation:
    e = explained("alpha", 0)
    over = replace(e.overlap, frozen=e.overlap.frozen[:, :1], frozen_lower=e.overlap.frozen_lower[:, :1])
    return make((1, 1, 4, 4), 1, scores=e.scores[:, :1], overlap=over, origin=e.origin)


def page(path: Path, *files: tuple[str, Explanation], **options: Any) -> Element:
    report(path / "page.html", files, **options)
    text = (path / "page.html").read_text(encoding="utf-8")
    assert faults(text) == []
    return read(text)[0]


def part(root: Element, name: str) -> Element:
    """Return the section whose heading starts with the name."""
    (found,) = [s for s in root.all("section") if s.all("h2") and s.all("h2")[0].text.startswith(name)]
    return found


@pytest.fixture
def two(tmp_path: Path) -> Element:
    """A page about two networks with different predictions for the same pictures; one has two radii."""
    return page(
        tmp_path,
        ("a", explained("alpha", 2, 1)),
        ("b", explained("beta", 0, 1, full=0.5)),
        ("c", explained("beta", 0, 1, eps=0.005)),
    )


def test_labels_distinguish_inputs_of_two_networks(two: Element) -> None:
    """Both networks explain the same picture, so its name alone would name two landmarks."""
    names = [s.attributes["aria-labelledby"] for s in two.all("section") if s.attributes.get("class") == "input"]
    titles = {e.attributes["id"]: e.text for e in two.walk() if "id" in e.attributes}
    said = [" ".join(titles[part] for part in name.split()) for name in names]
    assert len(said) == len(set(said)) == 4


def test_every_input_names_its_network(two: Element) -> None:
    """In print, each input starts a page."""
    for name, digest in (("alpha", "a" * 12), ("beta", "b" * 12)):
        inputs = [s for s in part(two, f"Model {name}.onnx").all("section") if s.all("h3")]
        assert len(inputs) == 2
        assert all(f"{name}.onnx, digest {digest}…" in s.text for s in inputs)


def test_each_network_has_its_own_part(two: Element) -> None:
    alpha, beta = part(two, "Model alpha.onnx"), part(two, "Model beta.onnx")
    assert "nets/alpha.onnx" in alpha.text
    assert "a" * 64 in alpha.text
    assert "beta" not in alpha.text
    assert "The network says “ship”, but labelled “cat”" in alpha.text
    assert "The network says “cat”, as labelled" in beta.text
    assert "“ship”" not in beta.text
    assert [len(s.all("article")) for s in (alpha, beta)] == [2, 4]
    assert [h.text for h in beta.all("h3")][:2] == ["0.png", "1.png"]


def tallies(root: Element) -> list[str]:
    summary = part(root, "Summary")
    return [item.text for item in summary.all("li") if "count" in item.attributes.get("class", "")]


def test_counts_are_separate_for_networks_and_balls(two: Element) -> None:
    """No count is a sum over networks or radii, and each states its total."""
    summary = part(two, "Summary")
    assert [h.text for h in summary.all("h3")] == ["Model alpha.onnx", "Model beta.onnx"]
    balls = [h.text for h in summary.all("h4")]
    assert balls == [
        "For ε = 0.01 in L∞, values within [0, 1] (floating-point rounding is not covered)",
        "For ε = 0.01 in L∞, values within [0, 1] (floating-point rounding is not covered)",
        "For ε = 0.005 in L∞, values within [0, 1] (floating-point rounding is not covered)",
    ]
    assert [c for c in tallies(two) if "findings" in c] == [
        "2 ✓ Proven, of 2 findings",
        "2 ? Undecided, of 2 findings",
        "2 ✓ Proven, of 2 findings",
    ]


def test_certified_accuracy_is_beside_the_proven_share(two: Element) -> None:
    """It is the share of labelled inputs that are proven and right. A proof of a wrong decision does not count."""
    assert [c for c in tallies(two) if "labelled" in c] == [
        "1 of 2 labelled inputs (50.0 %) Certified accuracy, proven and predicted as labelled",
        "0 of 2 labelled inputs (0.0 %) Certified accuracy, proven and predicted as labelled",
        "2 of 2 labelled inputs (100.0 %) Certified accuracy, proven and predicted as labelled",
    ]


def test_every_badge_has_its_ball_beside_it(two: Element) -> None:
    for badge in (e for e in two.all("span") if e.attributes.get("class") == "badge proven"):
        assert badge.text in ("✓ Proven",)
    beside = [e.text for e in two.all("span") if "within" in e.attributes.get("class", "")]
    badges = [e for e in two.all("span") if e.attributes.get("class", "").startswith("badge")]
    assert len(beside) == len(badges) == 12  # in the summary, and over each finding
    kinds = {(badge.attributes["class"], ball) for badge, ball in zip(badges, beside, strict=True)}
    assert kinds == {
        ("badge proven", "ε = 0.01 in L∞, values within [0, 1] (floating-point rounding is not covered)"),
        ("badge undecided", "ε = 0.01 in L∞, values within [0, 1]"),
        ("badge proven", "ε = 0.005 in L∞, values within [0, 1] (floating-point rounding is not covered)"),
    }


def test_proofs_that_cover_rounding_are_counted_separately(tmp_path: Path) -> None:
    root = page(tmp_path, ("a", explained("alpha", 0, rigorous=False)), ("b", explained("alpha", 1, rigorous=True)))
    ball = "ε = 0.01 in L∞, values within [0, 1]"
    expected = [f"For {ball} (floating-point rounding is not covered)", f"For {ball}"]
    assert [h.text for h in part(root, "Summary").all("h4")] == expected
    assert [c for c in tallies(root) if "finding" in c] == ["1 ✓ Proven, of 1 finding"] * 2


def test_each_row_of_the_summary_has_the_true_class(two: Element) -> None:
    rows = [row for table in part(two, "Summary").all("table") for body in table.all("tbody") for row in body.all("tr")]
    said = [[cell.text for cell in row.all("td")][:1] for row in rows if row.all("th")]
    assert said == [
        ["“ship”, but labelled “cat”"],
        ["“dog”, as labelled"],
        ["“cat”, as labelled"],
        ["“dog”, as labelled"],
    ]


def test_hashes_state_their_content(two: Element) -> None:
    alpha = part(two, "Model alpha.onnx")
    facts = [(dt.text, dd.text) for dl in alpha.all("dl") for dt, dd in zip(dl.all("dt"), dl.all("dd"), strict=True)]
    said = dict(facts)
    assert "a" * 64 in said["SHA-256 of nets/alpha.onnx"]
    assert "as sha256sum prints it" in said["SHA-256 of nets/alpha.onnx"]
    assert "covers every byte of the file" in said["SHA-256 of nets/alpha.onnx"]
    assert "covers operations, shapes, all weights" in said["Digest of the network"]
    assert "0" * 64 in said["SHA-256 of pictures/0.png"]
    assert "covers type, shape and all values" in said["Digest of the values"]


def test_an_explanation_without_an_origin_says_so(tmp_path: Path) -> None:
    root = page(tmp_path, ("some", make((1, 1, 4, 4))))
    text = part(root, "A model without a name").text
    assert "The explanations do not name the file of the model." in text
    assert "The true class is not known." in text
    assert "accuracy" not in root.text


def test_the_limits_are_not_folded(two: Element) -> None:
    """The list of missing guarantees is visible without a click."""
    folded = " ".join(element.text for element in two.all("details"))
    assert "What this report does not guarantee" in two.text
    assert "guarantees" not in folded
    assert "That the network is right." not in folded


def test_the_date_and_the_author_are_on_the_page(tmp_path: Path) -> None:
    e = explained("alpha", 0)
    header = page(tmp_path, ("a", e), by="Ada <L>, Analytical", date=date(2026, 3, 2)).all("header")[0].text
    assert "2 March 2026" in header
    assert "Ada <L>, Analytical" in header
    assert "signature" not in header
    unsigned = page(tmp_path, ("a", e), date=date(2026, 3, 2)).all("header")[0].text
    assert "Made by Name, organisation and signature" in unsigned
    today = page(tmp_path, ("a", e))
    assert date.today().strftime("%B %Y") in today.all("header")[0].text
    assert "1 March 2026" in part(today, "How it was made").text  # when it was explained


def test_a_removed_final_layer_is_stated(tmp_path: Path) -> None:
    root = page(tmp_path, ("a", explained("alpha", 0, taken_off="softmax")))
    said = "The final softmax was removed from the network before bounding: it does not change which class is ahead"
    assert said in part(root, "Model alpha.onnx").text


def test_one_of_anything_is_singular(tmp_path: Path) -> None:
    root = page(tmp_path, ("a", one_group()))
    assert "1 finding about 1 input of 1 model" in root.text
    for wrong in ("1 findings", "1 inputs", "1 models", "1 scores", "1 samples", "1 groups", "1 largest"):
        assert wrong not in root.text


def test_a_table_keeps_its_columns_and_shows_the_values(tmp_path: Path) -> None:
    x = torch.tensor([[63.0, 1.72, 81.5]])
    origin = Origin(Source("net.onnx"), (Source("rows.csv#4", (File("rows.csv", "c" * 64),)),), (1,), None, ())
    origin = replace(origin, columns=("age", "height (m)", "weight"))
    e = make((1, 3), 3, scores=torch.tensor([[0.1, 0.3, 0.2]]), x=x, input_hash=hash_tensor(x), origin=origin)
    root = page(tmp_path, ("rows", e))
    rows = root.all("figure")[0].all("tbody")[0].all("tr")
    assert [[cell.text for cell in row.all("th", "td")][:3] for row in rows] == [
        ["height (m)", "1.72", "0.3"],
        ["weight", "81.5", "0.2"],
        ["age", "63", "0.1"],
    ]
    (values,) = [t for t in root.all("table") if t.all("caption")[0].text.startswith("The input’s values")]
    pairs = [[c.text for c in row.all("th", "td")] for row in values.all("tbody")[0].all("tr")]
    assert pairs == [["age", "63"], ["height (m)", "1.72"], ["weight", "81.5"]]


def test_the_digest_of_the_inputs_is_checked(tmp_path: Path) -> None:
    e = replace(explained("alpha", 0), input_hash="f" * 64)
    with pytest.raises(InputError, match=f"a says that its inputs have the digest {'f' * 64}, and they have"):
        page(tmp_path, ("a", e))


def test_contradictory_labels_are_refused(tmp_path: Path) -> None:
    e = explained("alpha", 0)
    assert e.origin is not None
    other = replace(e, origin=replace(e.origin, labels=(2,)))
    with pytest.raises(InputError, match=r"one input has the label 0 in a and 2 in b, expected one true class"):
        page(tmp_path, ("a", e), ("b", other))
    silent = replace(e, origin=replace(e.origin, labels=None))
    assert "as labelled" in part(page(tmp_path, ("a", silent), ("b", e)), "Model alpha.onnx").text


def test_names_of_classes_come_from_the_files(tmp_path: Path) -> None:
    """Each network has its own names, unless one list is given for all."""
    other = explained("beta", 0)
    assert other.origin is not None
    other = replace(other, origin=replace(other.origin, classes=("Katze", "Hund", "Schiff")))
    root = page(tmp_path, ("a", explained("alpha", 0)), ("b", other))
    assert "“cat”" in part(root, "Model alpha.onnx").text
    assert "“Katze”" in part(root, "Model beta.onnx").text
    assert "“x”" in page(tmp_path, ("a", explained("alpha", 0)), classes=["x", "y", "z"]).text
