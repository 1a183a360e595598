"""proofmap report: pages from files, and errors in one sentence."""

from pathlib import Path

import numpy as np
import pytest

import proofmap as pm
from tests.cli.invoke import called
from tests.report.markup import faults, read


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with maps of two digits from proofmap explain, and a table from compare."""
    here = tmp_path_factory.mktemp("work")
    images, _ = pm.data.digits()
    np.save(here / "digits.npy", images[:2].numpy())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        done = called("explain", "zoo:mnist_mlp", "digits.npy", "--eps", 0.015, "--groups", "grid:7")
    assert done.exit_code == 0, done.stderr
    compare = f"compare zoo:mnist_mlp {here}/digits.npy --methods saliency,first-order --metrics deletion --json"
    table = called(*compare.split(), "--out", here / "tables")
    assert table.exit_code == 0, table.stderr
    (here / "table.json").write_text(table.stdout)
    (here / "names.txt").write_text("\n".join(f"the digit <{k}>" for k in range(10)))
    (here / "few.txt").write_text("the only name")
    return here


def test_files_of_explain_and_compare_become_a_page(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has both bounds of the overlap, because the model is given, and the names of the classes."""
    monkeypatch.chdir(work)
    words = "report pages/report.html out --model zoo:mnist_mlp --classes names.txt --table table.json"
    done = called(*words.split())
    assert (done.exit_code, done.stdout) == (0, "wrote pages/report.html\n"), done.stderr
    page = (work / "pages" / "report.html").read_text(encoding="utf-8")
    assert faults(page) == []
    root, _ = read(page)
    assert len(root.all("article")) == 2
    assert "“the digit <7>”" in root.text
    assert "found by an attack" in root.text
    assert "zoo:mnist_mlp on digits.npy, 2 samples" in root.text
    assert len(root.all("img")) == 6


def test_single_files_and_a_csv_will_do(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    files = sorted((work / "out").glob("*.proofmap"))
    done = called(
        *("report", "one.HTML", files[0], "--table", "tables/table.csv", "--by", "Ada"), "--date", "2026-03-01"
    )
    assert done.exit_code == 0, done.stderr
    root, _ = read((work / "one.HTML").read_text(encoding="utf-8"))
    assert len(root.all("article")) == 1
    assert "first-order" in root.text
    assert "zoo:mnist_mlp on digits.npy, 2 samples" in root.text
    assert "1 March 2026 Made by Ada" in root.all("header")[0].text
    assert "found by an attack" not in root.text


def test_a_run_becomes_a_page(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    run = "run digits.npy --model zoo:mnist_mlp --out results --eps 0.015 --groups grid:7"
    for arguments in (run, "report run.html results out"):
        done = called(*arguments.split())
        assert done.exit_code == 0, done.stderr
    page = (work / "run.html").read_text(encoding="utf-8")
    assert faults(page) == []
    root, _ = read(page)
    assert "Data set: results" in [heading.text for heading in root.all("h2")]
    assert len(root.all("article")) == 2


def wrong(work: Path, *arguments: object) -> str:
    """Return the error of a refused report, which writes no file."""
    before = sorted(work.rglob("*"))
    done = called("report", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sorted(work.rglob("*")) == before
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_damaged_file_is_one_sentence(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    whole = next((work / "out").glob("*.proofmap")).read_bytes()
    damaged = tmp_path / "damaged.proofmap"
    for content, reason in (
        (whole[:-5], "damaged"),
        (whole[:50] + b"<b>" + whole[53:], "damaged"),
        (b"", "not a safetensors file"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "does not have the digest"),
    ):
        damaged.write_bytes(content)
        said = wrong(work, "page.html", damaged)
        assert "damaged.proofmap" in said
        assert reason in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("out/digits.proofmap out", "expected a name that ends in .html"),
        ("page.html .", "has no .proofmap file in it"),
        ("page.html missing.proofmap", "No such file"),
        ("page.html out --mean 0.5", "without --model"),
        ("page.html out --date 1.3.2026", "got --date 1.3.2026, expected a day such as 2026-03-01"),
        ("page.html out --model zoo:mnist_mlp --mean 0.5", "give the model that was explained"),
        ("page.html out --table names.txt", "expected the head"),
        ("page.html out --classes few.txt", "got 1 name for the classes"),
    ],
)
def test_bad_inputs_are_one_sentence(work: Path, arguments: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    assert reason in wrong(work, *arguments.split())
