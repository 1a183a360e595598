"""The statements of a run follow from its rows: changed manifests are refused, and shares name their totals."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from matplotlib.figure import Figure
from PIL import Image
from pyarrow import parquet
from torch import nn

import proofmap as pm
from proofmap.errors import FileError, InputError
from proofmap.report import report
from proofmap.runs import Results, run
from proofmap.runs.totals import total
from proofmap.sources import open_samples, read_model
from proofmap.text.wording import share
from tests.cli.invoke import called
from tests.runs.setting import COUNT, EPS, Digits, digits_model, job
from tests.sources.files import GREY

FAILED = {5: None, 6: None}
PROMISES = ("_proven", "_upper_probable", "_sampled", "_estimate")
BALL = f"ε = {EPS} in L∞, values within [0, 1]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a run with two failed samples and one wrong label."""
    out = tmp_path_factory.mktemp("run") / "out"
    samples = Digits(bad=dict(FAILED))
    assert samples.labels is not None
    samples.labels[0] = 3
    run(samples, digits_model(), job(), out, progress=False)
    return out


def changed(folder: Path, to: Path, change: Callable[[Any], object], *, sealed: bool) -> Path:
    """Return a copy with a changed manifest; sealed: with a matching digest."""
    from proofmap.runs.manifest import manifest_digest

    shutil.copytree(folder, to)
    said = json.loads((to / "manifest.json").read_text())
    change(said)
    if sealed:
        said["digest"] = manifest_digest(said)
    (to / "manifest.json").write_text(json.dumps(said))
    return to


def test_a_manifest_that_was_changed_by_hand_is_refused_with_both_values(folder: Path, tmp_path: Path) -> None:
    """A radius that is changed from 0.015 to 0.5 must be refused."""
    to = tmp_path / "other"
    shutil.copytree(folder, to)
    text = (to / "manifest.json").read_text()
    assert f'"eps": {EPS}' in text
    (to / "manifest.json").write_text(text.replace(f'"eps": {EPS}', '"eps": 0.5'))
    with pytest.raises(FileError, match=r"job.ball.eps is 0.5 in the manifest and 0.015 in chunks/000000.safetensors"):
        report(tmp_path / "page.html", [], runs=[("run", Results.open(to))])
    for words in (["report", tmp_path / "page.html", to], ["export", to, tmp_path / "r.csv"]):
        found = called(*words)
        assert found.exit_code == 2
        assert "0.5 in the manifest and 0.015" in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_the_digest_covers_values_that_no_row_repeats(folder: Path, tmp_path: Path) -> None:
    """Only the manifest has class names."""

    def change(said: Any) -> None:
        said["run"]["model"]["classes"] = [f"class {k}" for k in range(10)]

    to = changed(folder, tmp_path / "other", change, sealed=False)
    with pytest.raises(FileError, match=r"manifest.json has the digest [0-9a-f]{12}…, and what it says has [0-9a-f]"):
        Results.open(to)


def put(value: Any, *way: str) -> Callable[[Any], object]:
    def change(said: Any) -> None:
        for key in way[:-1]:
            said = said[key]
        said[way[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(0.5, "run", "job", "ball", "eps"), r"job.ball.eps is 0.5 in the manifest and 0.015 in chunks/000000"),
        (put(2.0, "run", "job", "ball", "norm"), r"job.ball.norm is 2.0 in the manifest and 'inf' in chunks/000000"),
        (put([0, 9], "run", "job", "ball", "domain"), r"job.ball.domain is \[0, 9\] in the manifest and \[0.0, 1.0\]"),
        (put("gradcam", "run", "job", "method"), r"job.method is 'gradcam' in the manifest and 'eva' in chunks"),
        (put("f" * 64, "run", "model", "sha256"), r"model.sha256 is 'ff.*in the manifest and '"),
        (put({"torch": "9"}, "run", "versions"), r"versions.* in the manifest and "),
        (put("0" * 64, "run", "data", "names"), r"data.names is '00.* in the manifest and '.* in the rows"),
        (put("0" * 64, "run", "data", "labels"), r"data.labels is '00.* in the manifest and '.* in the rows"),
    ],
)
def test_a_manifest_must_agree_with_the_rows(
    folder: Path, tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    to = changed(folder, tmp_path / "other", change, sealed=True)
    with pytest.raises(FileError, match=message):
        report(tmp_path / "page.html", [], runs=[("run", Results.open(to))])


def test_a_row_with_another_radius_is_refused_with_both(folder: Path, tmp_path: Path) -> None:
    """Even if the chunk's texts, its SHA-256 and the manifest were all changed to fit."""
    from safetensors import safe_open
    from safetensors.numpy import save

    to = tmp_path / "other"
    shutil.copytree(folder, to)
    path = to / "chunks" / "000001.safetensors"
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        words = file.metadata()
    arrays["eps"] = np.array([EPS, np.nan, np.nan, 0.001])
    path.write_bytes(save(arrays, words))
    shutil.rmtree(tmp_path / "again", ignore_errors=True)
    entry = sha256(path.read_bytes()).hexdigest()
    again = changed(to, tmp_path / "again", put(entry, "chunks", "1", "sha256"), sealed=True)
    with pytest.raises(FileError, match=r"job.ball.eps is 0.015 in the manifest and 0.001 in row 7, digit-7.png"):
        Results.open(again).check()


def test_a_folder_of_the_first_version_is_one_clear_sentence(folder: Path, tmp_path: Path) -> None:
    to = changed(folder, tmp_path / "other", put(1, "version"), sealed=False)
    message = r"version 1 of 'proofmap-run', expected 2 .*nothing vouches .*: run it again, into a new folder"
    with pytest.raises(FileError, match=message):
        Results.open(to)


def test_another_model_is_refused_for_runs_too(folder: Path, tmp_path: Path) -> None:
    other = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).eval()
    with pytest.raises(InputError, match=r"the model has the hash .*, and run explains one with .*: give the model"):
        report(tmp_path / "page.html", [], runs=[("run", Results.open(folder))], model=other)
    assert not (tmp_path / "page.html").exists()
    found = called("report", tmp_path / "page.html", folder, "--model", "zoo:cifar_cnn")
    assert found.exit_code == 2
    assert "give the model that was explained" in found.stderr
    found = called("report", tmp_path / "page.html", folder, "--model", "zoo:mnist_mlp")
    assert found.exit_code == 0, found.stderr
    assert "zoo:mnist_mlp was given to this report. It is the explained network" in (tmp_path / "page.html").read_text()


def test_every_share_names_its_total_and_failures_are_not_proven(folder: Path) -> None:
    results = Results.open(folder)
    found = total(results)
    proven = ~np.isnan(results["full"]) & (results["full"] < 0)
    right = results["label"] == results["predicted"]
    n = int(proven.sum())
    assert 0 < n < COUNT - 2
    assert (found.certified, found.labelled) == (n, COUNT)
    assert found.certified_correct == int((proven & right).sum()) == n - 1
    said = found.text().splitlines()
    assert said[0] == f"{COUNT} samples: {COUNT - 2} explained, 2 failed"
    proven_share = f"{n} of {COUNT} samples ({1000 * n // COUNT / 10:.1f} %), failures counted as not proven"
    assert f"proven for {BALL}: {proven_share}" in said
    both = f"{n - 1} of {COUNT} labelled samples ({1000 * (n - 1) // COUNT / 10:.1f} %)"
    assert f"certified accuracy, proven and predicted as labelled: {both}" in said
    assert f"predicted as labelled: {share(int(right.sum()), COUNT, 'labelled sample')}" in said
    saved = json.loads((folder / "totals.json").read_text())
    assert saved["certified_share"] == n / COUNT
    assert saved["certified_accuracy"] == (n - 1) / COUNT
    assert (saved["ball"]["eps"], saved["ball"]["norm"], saved["ball"]["domain"]) == (EPS, "inf", [0.0, 1.0])


def test_counts_stand_at_whole_numbers(folder: Path) -> None:
    (panel,) = total(Results.open(folder)).plot(panels="overlaps").axes
    assert list(panel.get_yticks()) == [round(tick) for tick in panel.get_yticks()]
    title = " ".join(panel.get_title().split())
    assert BALL in title
    assert f"of {COUNT} samples" in title


def test_totals_are_drawn_into_given_axes(folder: Path) -> None:
    found = total(Results.open(folder))
    figure = Figure()
    panel = figure.subplots()
    assert found.plot(ax=panel, panels="overlaps", title="mine") is figure
    assert panel.get_title() == "mine"
    assert len(panel.patches) == len(found.plot(panels="overlaps").axes[0].patches)
    assert [len(side.axes) > 0 for side in found.plot(cmap="cividis").subfigs] == [True, True]
    with pytest.raises(InputError, match="mean maps need a figure"):
        found.plot(ax=panel)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, "adversarial overlap AO(B)"),
        ({"settings": {"objective": "apart"}}, "adversarial overlap AO(B)"),
        ({"settings": {"objective": "mean"}}, "largest objective 'mean' in B"),
        ({"method": "smooth", "settings": {"samples": 4}}, "largest objective 'class' in B"),
        ({"method": "path", "settings": {"attack_steps": 2, "steps": 2}}, "adversarial overlap AO(B)"),
        ({"method": "probable", "ball": pm.Ball(0.25, norm=2)}, "overlap AO(B) of the smoothed classifier"),
    ],
)
def test_the_axis_names_the_bounded_value(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    """Zero is marked only if it decides the class."""
    (panel,) = run(Digits(1), digits_model(), job(**changes), tmp_path, progress=False).plot(panels="overlaps").axes
    assert panel.get_xlabel() == named
    assert len(panel.lines) == ("AO(B)" in named)


def test_without_labels_there_is_no_accuracy(tmp_path: Path) -> None:
    samples = Digits(2)
    samples.labels = None
    found = run(samples, digits_model(), job(), tmp_path, progress=False)
    assert (found.labelled, found.correct, found.certified_correct) == (0, None, None)
    assert "accuracy" not in found.text()
    assert "labelled" not in found.text()


def test_a_sample_of_another_class_is_refuted(tmp_path: Path) -> None:
    found = run(Digits(3), digits_model(), job(target=0), tmp_path, progress=False)
    assert (found.certified, found.refuted) == (0, 3)
    assert "refuted, the input itself has another class: 3 of 3 samples (100.0 %)" in found.text()


@pytest.mark.parametrize(
    ("method", "settings", "name"),
    [
        ("eva", {}, "overlap_upper_proven"),
        ("eva", {"objective": "mean"}, "objective_mean_upper_proven"),
        ("empirical", {"samples": 5}, "overlap_lower_sampled"),
        ("hybrid", {"samples": 5, "split": "2"}, "overlap_estimate"),
        ("probable", {"samples": 64}, "smoothed_overlap_upper_probable"),
    ],
)
def test_column_names_state_the_kind_of_bound(method: str, settings: dict[str, Any], name: str, tmp_path: Path) -> None:
    """A lower bound by samples never has the name of a proven upper bound."""
    work = job(method=method, settings=settings)
    if method == "probable":
        work = replace(work, ball=pm.Ball(EPS, norm=2))
    totals = run(Digits(2), digits_model(), work, tmp_path / "run", progress=False)
    assert totals.json().get("level") == (0.999 if method == "probable" else None)
    assert method != "probable" or totals.refuted is None
    assert ("with probability 99.9 %: least" in totals.text()) == (method == "probable")
    results = Results.open(tmp_path / "run")
    for suffix in ("csv", "parquet", "npz", "zarr"):
        results.export(tmp_path / f"r.{suffix}")
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table(tmp_path / "r.parquet")
    for columns in (rows[0], table.column_names):
        assert [c for c in columns if c.endswith(PROMISES) and "frozen" not in c] == [name]
        assert ("level" in columns) == (method == "probable")
        assert "full" not in columns
        assert "frozen" not in columns
    assert [float(row[name]) for row in rows] == results["full"].tolist() == table[name].to_pylist()
    assert {row["guarantee"] for row in rows} == set(table["guarantee"].to_pylist()) == {results.guarantee}
    frozen = name.replace("overlap", "overlap_frozen").replace("objective_mean", "objective_mean_frozen")
    np.testing.assert_array_equal(np.array(table[frozen].to_pylist(), dtype=np.float32), results["frozen"])
    group: Any = zarr.open_group(str(tmp_path / "r.zarr"), mode="r")
    with np.load(tmp_path / "r.npz", allow_pickle=False) as archive:
        assert archive["guarantee"] == group.attrs["guarantee"] == results.guarantee
        assert archive["full_is"] == group["full"].attrs["is"] == name


def test_a_run_stores_the_sha256_of_its_files(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for k, image in enumerate((pm.data.digits()[0][:2, 0] * 255).byte().numpy()):
        Image.fromarray(image).save(pictures / f"{k}.png")
    (pictures / "2.png").write_bytes(b"no picture")
    model = read_model("zoo:mnist_mlp")
    run(open_samples([pictures], GREY), model, job(), tmp_path / "run", progress=False)
    results = Results.open(tmp_path / "run")
    expected = [sha256((pictures / f"{k}.png").read_bytes()).hexdigest() for k in range(3)]
    assert results.files == expected
    results.export(tmp_path / "r.csv")
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        assert [row["file_sha256"] for row in csv.DictReader(file)] == expected
    weights = Path(pm.zoo.__file__).with_name("mnist_mlp.safetensors")
    assert results.manifest.model.name == "zoo:mnist_mlp"
    assert [file.sha256 for file in results.manifest.model.files] == [sha256(weights.read_bytes()).hexdigest()]


def test_a_removed_final_layer_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pm.EVA._record

    monkeypatch.setattr(pm.EVA, "_record", lambda self, *of: {**plain(self, *of), "taken_off": "softmax"})
    found = run(Digits(2), digits_model(), job(), tmp_path / "run", progress=False)
    said = "final softmax was removed from the network before bounding"
    assert said in found.text()
    report(tmp_path / "page.html", [], runs=[("run", Results.open(tmp_path / "run"))])
    assert said in (tmp_path / "page.html").read_text()
