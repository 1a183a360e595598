"""Runs with lower and upper bounds: chunks, totals, exports and pages have intervals; other runs have none."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from pyarrow import parquet
from safetensors import safe_open

import proofmap as pm
from proofmap.explainers.methods import eva
from proofmap.explainers.statements.proven_ranks import ranks
from proofmap.report import report
from proofmap.runs import Results, run
from proofmap.runs.chunk import Array
from proofmap.runs.results import ChunkResults
from proofmap.runs.totals import total
from proofmap.verify.overlap import Overlap
from tests.runs.setting import EPS, Digits, digits_model, job

COUNT, FAILED, GAP = 6, 4, 0.0005
NEW = ["full_lower", "frozen_lower", "score_lower", "score_upper"]
DROP_BOUNDS = ["drop_lower", "drop_upper"]


def met(*arguments: Any) -> Overlap:
    """Simulate a search whose lower bounds are within the gap, and within a quarter of it for the ball."""
    over: Overlap = BOUNDED(*arguments)
    lower = torch.maximum(over.frozen - GAP, over.nominal[:, None])
    return replace(over, full_lower=over.full - GAP / 4, frozen_lower=lower)


BOUNDED: Any = vars(eva)["boxes_overlap"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("run") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eva, "boxes_overlap", met)
        run(Digits(COUNT, bad={FAILED: None}), digits_model(), job(), out, progress=False)
    return Results.open(out)


@pytest.fixture(scope="module")
def explained() -> pm.Explanation:
    images = pm.data.digits()[0][:FAILED]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eva, "boxes_overlap", met)
        ball = pm.Ball(EPS, domain=(0.0, 1.0))
        return pm.EVA(pm.zoo.mnist_mlp(), ball, groups=pm.groups.grid(4), progress=False).explain(images)


def test_rows_are_those_of_the_explanations(results: Results, explained: pm.Explanation) -> None:
    results.check()
    assert [name for name in results.names if name in (*NEW, *DROP_BOUNDS)] == NEW
    found = np.stack([results["score_lower"], results["score_upper"]], axis=2)
    np.testing.assert_allclose(found[:FAILED], explained.intervals.numpy(), atol=1e-5)
    assert np.isnan(found[FAILED]).all()
    np.testing.assert_allclose(results["full_lower"][:FAILED], explained.overlap.full_lower.numpy(), atol=1e-5)
    np.testing.assert_allclose(results["frozen_lower"][:FAILED], explained.overlap.frozen_lower.numpy(), atol=1e-5)


def test_totals_count_samples_with_proven_ranks(results: Results, explained: pm.Explanation) -> None:
    settled = [len(found.proven) == found.most for found in (ranks(explained, k) for k in range(FAILED))]
    ranked = np.concatenate([part.ranked for part in results.parts])
    assert ranked[:FAILED].tolist() == settled
    assert not ranked[FAILED]
    found = total(results)
    assert found.ranked == int(ranked.sum())
    assert found.json()["matters_most_proven"] == found.ranked
    assert f"proven which groups matter most: {found.ranked} of 6 samples" in found.text()


def test_an_attained_input_refutes(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    assert total(results).refuted == int((results["full_lower"] > 0).sum()) == 1
    rows = {"full_lower": np.array([-1, 2, 1, -3, np.nan, -1], dtype=np.float32)}
    get = Results.__getitem__
    monkeypatch.setattr(Results, "__getitem__", lambda self, name: rows.get(name, get(self, name)))
    assert total(results).refuted == 2
    assert "refuted, an input in the ball has another class: 2 of 6" in total(results).text()


def test_exports_have_the_intervals(results: Results, tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet", "t.npz", "t.zarr"):
        results.export(tmp_path / name)
    lower, upper = results["score_lower"], results["score_upper"]
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for k, row in enumerate(rows):
        assert (row["score_3_lower_proven"] == "") == (k == FAILED)
        if k != FAILED:
            assert float(row["score_3_lower_proven"]) == lower[k, 3]
            assert float(row["score_0_upper_proven"]) == upper[k, 0]
            assert float(row["overlap_lower_reached"]) == results["full_lower"][k]
    table = parquet.read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(np.array(table["score_upper_proven"].to_pylist()), upper)
    assert "overlap_frozen_lower_reached" in table.column_names
    with np.load(tmp_path / "t.npz") as arrays:
        np.testing.assert_array_equal(arrays["score_lower"], lower)
        assert str(arrays["full_lower_is"]) == "overlap_lower_reached"
    group: Any = zarr.open_group(str(tmp_path / "t.zarr"), mode="r")
    np.testing.assert_array_equal(group["score_upper"][...], upper)


def test_scores_that_were_bounded_themselves_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closer(*arguments: Any) -> Overlap:
        over = met(*arguments)
        ends = over.intervals
        return replace(over, drops=torch.stack([ends[..., 0], (0.75 * ends[..., 1]).maximum(ends[..., 0])], dim=2))

    monkeypatch.setattr(eva, "boxes_overlap", closer)
    run(Digits(5, bad={1: None}), digits_model(), job(), tmp_path, progress=False)
    results = Results.open(tmp_path)
    assert {"drop_lower", "drop_upper"} < set(results.names)
    np.testing.assert_array_equal(results["score_upper"], results["drop_upper"])
    known = results["index"] != 1
    assert (results["scores"][known] <= results["score_upper"][known] + 1e-6).all()
    over = results.parts[0]
    assert (over["full"][0] - over["frozen"][0] > over["score_upper"][0] + 1e-4).any()  # the bounds without a search
    results.export(tmp_path / "t.parquet")
    assert "drop_upper_proven" in parquet.read_table(tmp_path / "t.parquet").column_names


def test_a_page_states_the_proven_ranks(results: Results, tmp_path: Path) -> None:
    report(tmp_path / "page.html", [], runs=[("run", results)])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    ranked = total(results).ranked
    assert ranked
    assert f"For {ranked} of 6 samples" in page
    assert "the ten groups of values that matter most; half of the groups if there are fewer than twenty" in page
    assert "The files contain a proven interval for each score of a sample; the means have" in page


def test_files_without_a_search_are_unchanged(tmp_path: Path) -> None:
    run(Digits(2), digits_model(), job(), tmp_path, progress=False)
    results = Results.open(tmp_path)
    assert not set(NEW) & set(results.names)
    assert total(results).ranked is None
    assert "matters_most_proven" not in total(results).json()
    with safe_open(next((tmp_path / "chunks").iterdir()), framework="numpy") as file:
        assert not {*NEW, *DROP_BOUNDS} & set(file.keys())


def test_a_chunk_without_lower_bounds_uses_the_overlap_at_its_samples(results: Results, tmp_path: Path) -> None:
    """As in a run that an earlier release started."""
    run(Digits(2), digits_model(), job(), tmp_path, progress=False)
    (part,) = Results.open(tmp_path).parts
    np.testing.assert_array_equal(part["full_lower"], part["nominal"])
    assert part["frozen_lower"].shape == part["frozen"].shape
    assert (part["frozen_lower"] == part["nominal"][:, None]).all()
    mixed = Results(results.folder, results.manifest)
    mixed.__dict__["parts"] = (part, *results.parts)
    assert mixed["score_lower"].shape == (8, 16)
    assert (mixed["score_lower"][:2] == 0).all()
    assert (mixed["score_lower"][2:4] > 0).any()


def test_a_chunk_without_explained_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eva, "boxes_overlap", met)
    bad: dict[int, torch.Tensor | None] = dict.fromkeys(range(4))
    totals = run(Digits(6, bad=bad), digits_model(), job(), tmp_path, progress=False)
    results = Results.open(tmp_path)
    assert results["score_lower"].shape == (6, 16)
    assert np.isnan(results["score_upper"][:4]).all()
    assert totals.ranked is not None
    results.export(tmp_path / "t.csv")


class Narrow(ChunkResults):
    """A chunk whose samples have five groups."""

    def __getitem__(self, name: str) -> Array:
        values = super().__getitem__(name)
        return values % 5 if name == "mask" else values[:, :5] if values.ndim == 2 else values


def test_missing_groups_have_the_score_0(results: Results) -> None:
    part = results.parts[0]
    both = Results(results.folder, results.manifest)
    both.__dict__["parts"] = (part, Narrow(part.file, part.samples, part.shared))
    for name in ("scores", "score_lower", "score_upper"):
        assert (both[name][4:, 5:] == 0).all()
    np.testing.assert_array_equal(both["frozen_lower"][4:, 5:], np.repeat(part["full_lower"][:, None], 11, axis=1))
    np.testing.assert_array_equal(both["frozen"][4:, 5:], np.repeat(part["full"][:, None], 11, axis=1))


def test_a_run_of_an_earlier_release_is_read() -> None:
    results = Results.open(Path(__file__).parent / "old")
    results.check()
    assert (len(results), results.complete, results["scores"].shape) == (3, True, (3, 4))
    assert not set(NEW) & set(results.names)
    assert total(results).ranked is None
    np.testing.assert_array_equal(results.parts[0]["full_lower"], results.parts[0]["nominal"])
