"""The data set panel: its totals are those of the run, and a damaged folder is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proofmap.errors import FileError
from proofmap.report import report
from proofmap.runs import Results, run
from proofmap.runs.manifest import manifest_digest
from proofmap.runs.totals import total
from proofmap.text.wording import share
from tests.report.conftest import SAMPLES
from tests.report.markup import Element, faults, read
from tests.runs.setting import Digits, digits_model, job


def page_of(out: Path, *folders: Path) -> Element:
    report(out, [], runs=[(folder.name, Results.open(folder)) for folder in folders])
    page = out.read_text(encoding="utf-8")
    assert faults(page) == []
    return read(page)[0]


def test_the_sums_are_those_of_the_run(ran: Path, tmp_path: Path) -> None:
    root = page_of(tmp_path / "page.html", ran)
    found = total(Results.open(ran))
    assert found.certified is not None
    (counts,) = (element for element in root.all("ul") if element.attributes.get("class") == "counts")
    assert found.certified_correct is not None
    assert found.correct is not None
    expected = [
        *(share(n, SAMPLES, "sample") for n in (found.certified,)),
        share(found.certified_correct, SAMPLES, "labelled sample"),
        *(share(n, SAMPLES, "sample") for n in (found.explained - found.certified, 1)),
        share(found.correct, SAMPLES, "labelled sample"),
    ]
    assert [item.all("b")[0].text for item in counts.all("li")] == expected
    assert "proven for ε = 0.015 in L∞, values within [0, 1]" in counts.text
    assert f"For {share(found.certified, SAMPLES, 'sample')}: no input in the sample's ball changes" in root.text
    assert "rounding is not covered" not in counts.text
    bars = root.all("figure")[0].all("details")[0].all("tbody")[0].all("tr")
    assert sum(int(row.all("td")[1].text) for row in bars) == 11
    assert len(root.all("img")) == len(found.classes)
    rows = root.all("figure")[1].all("tbody")[0].all("tr")
    assert [int(row.all("td")[0].text) for row in rows] == [entry.count for entry in found.classes]


def test_failures_and_provenance_are_on_the_page(ran: Path, tmp_path: Path) -> None:
    text = page_of(tmp_path / "page.html", ran).text
    results = Results.open(ran)
    about = results.about
    assert list(results.reasons) == [3]
    assert results.samples[3] in text
    assert results.reasons[3] in text
    for said in (about["model"]["sha256"], about["data"]["names"], about["versions"]["torch"], "Grid(rows=7"):
        assert said in text
    assert "is not finished" not in text


@pytest.mark.parametrize(
    ("changes", "heading", "noun", "caption"),
    [
        ({}, "Adversarial overlap of all explained samples, for ε", "overlap", "samples; proven for ε"),
        (
            {"method": "empirical", "settings": {"samples": 2}},
            "Adversarial overlap of all",
            "overlap",
            "samples; for ε",
        ),
        (
            {"settings": {"objective": "mean", "rigorous": False}},
            "Mean lead of the other classes of all",
            "value",
            "samples; for ε",
        ),
    ],
)
def test_headings_name_the_bounded_value(
    changes: dict[str, Any], heading: str, noun: str, caption: str, tmp_path: Path
) -> None:
    """The word "proven" appears only for methods that can prove something."""
    run(Digits(2), digits_model(), job(**changes), tmp_path / "run", progress=False)
    root = page_of(tmp_path / "page.html", tmp_path / "run")
    plain = changes.get("settings", {}).get("rigorous") is False
    assert ("Floating-point rounding is not covered" in root.text) == plain
    overlaps, classes = root.all("figure")
    assert overlaps.all("h3")[0].text.startswith(heading)
    assert f"The number of samples per range of {noun}s." in overlaps.text
    assert caption in classes.all("caption")[0].text
    assert f"Mean {noun}" in classes.text


def test_several_runs_stand_side_by_side(ran: Path, tmp_path: Path) -> None:
    root = page_of(tmp_path / "page.html", ran, ran)
    assert [h.text for h in root.all("h2")][1:] == ["Data set: digits", "Data set: digits"]


def test_a_run_without_explained_samples_has_a_panel(tmp_path: Path) -> None:
    run(Digits(2, {0: None, 1: None}), digits_model(), job(), tmp_path / "run", progress=False)
    root = page_of(tmp_path / "page.html", tmp_path / "run")
    assert "Nothing: no sample could be explained." in root.text
    assert "digit-1.png" in root.text
    assert root.all("img") == []


def broken(folder: Path, to: Path, change: Any) -> Path:
    """Return a copy of a run with a changed manifest and a matching digest."""
    shutil.copytree(folder, to)
    said = json.loads((to / "manifest.json").read_text())
    change(said)
    said["digest"] = manifest_digest(said)
    (to / "manifest.json").write_text(json.dumps(said))
    return to


def test_markup_in_a_manifest_stays_text(ran: Path, tmp_path: Path) -> None:
    def change(said: Any) -> None:
        said["run"]["model"]["classes"] = ["<script>x</script>"] * 10
        said["model"]["name"] = "<b>"
        said["run"]["<i>"] = ["</td>"]

    root = page_of(tmp_path / "page.html", broken(ran, tmp_path / "other", change))
    assert root.all("script", "b", "i") == root.all("b")
    assert "<script>x</script>" in root.text


def test_an_unfinished_run_is_marked(tmp_path: Path) -> None:
    """Such a run was killed after its first chunk."""
    run(Digits(3), digits_model(), job(chunk=2), tmp_path / "run", progress=False)

    def change(said: Any) -> None:
        last = said["chunks"].pop("1")
        (tmp_path / "other" / last["file"]).unlink()

    (broken(tmp_path / "run", tmp_path / "other", change) / "log.jsonl").write_text('{"event": "chunk", "nu')
    assert "This run is not finished." in page_of(tmp_path / "page.html", tmp_path / "other").text


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", None), ("model", 5), ("model", {}), ("job", None), ("job", []), ("job", {}), ("mask", 5), ("mask", [])],
)
def test_an_impossible_manifest_is_refused(key: str, value: Any, ran: Path, tmp_path: Path) -> None:
    def change(said: Any) -> None:
        said["run"][key] = value

    other = broken(ran, tmp_path / "other", change)
    with pytest.raises(FileError):
        report(tmp_path / "page.html", [], runs=[("other", Results.open(other))])
    assert not (tmp_path / "page.html").exists()


def test_a_damaged_chunk_is_refused(ran: Path, tmp_path: Path) -> None:
    other = broken(ran, tmp_path / "other", lambda said: None)
    chunk = next((other / "chunks").iterdir())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\0")
    with pytest.raises(FileError, match="is damaged"):
        report(tmp_path / "page.html", [], runs=[("other", Results.open(other))])
