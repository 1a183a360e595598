"""Runs of sufficient sets: chunks hold all of each set, so that tables, totals and pages follow from them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from pyarrow import parquet
from safetensors.numpy import load_file, save_file

import proofmap as pm
from proofmap.errors import FileError
from proofmap.report import report
from proofmap.runs import Results, run
from proofmap.runs.chunk import Array
from proofmap.runs.sets.reason_results import REASON_POINTS, ReasonTotals, read_reason, reason_faults
from proofmap.runs.totals import total
from proofmap.sources import Model, Preparation
from tests.report.markup import faults
from tests.runs.setting import Digits, Interrupted, contents, job

COUNT, FAILED = 5, 2
ROWS = [0, 1, 3, 4]  # that are explained; a failed row comes before another one of its chunk
BALL = pm.Ball(0.2, domain=(0.0, 1.0))


def small_model() -> Model:
    torch.manual_seed(0)
    first, last = torch.nn.Linear(16, 6), torch.nn.Linear(6, 10)
    with torch.no_grad():
        first.weight *= 3
        last.weight *= 3
    network = torch.nn.Sequential(torch.nn.AvgPool2d(7), torch.nn.Flatten(), first, torch.nn.ReLU(), last)
    return Model("small", pm.trace(network, torch.zeros(1, 1, 28, 28)), Preparation(shape=(1, 28, 28)))


def start(out: Path, **more: Any) -> None:
    task = job(method="sufficient", ball=BALL, settings={"seconds": 20}, chunk=2)
    run(Digits(COUNT, bad={FAILED: None}), small_model(), task, out, progress=False, **more)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("run") / "out"
    start(out)
    return Results.open(out)


@pytest.fixture(scope="module")
def explained() -> pm.Explanation:
    images = pm.data.digits()[0][ROWS]
    return pm.Sufficient(
        small_model().graph(images[:1]), BALL, groups=pm.groups.grid(4), seconds=20, progress=False
    ).explain(images)


def test_a_row_is_the_set_of_its_sample(results: Results, explained: pm.Explanation) -> None:
    results.check()
    assert explained.reason is not None
    assert bool(explained.necessary.any(1).all())
    for k, row in enumerate(ROWS):
        found, own = results.reason(row), explained[k].reason
        assert found is not None
        assert own is not None
        for name, tensor in found.tensors.items():
            if name != "seconds":
                torch.testing.assert_close(tensor, own.tensors[name])
        assert float(found.seconds) > 0
    assert results.reason(FAILED) is None
    assert results["kept"][ROWS].tolist() == explained.kept.tolist()
    assert not results["kept"][FAILED].any()
    assert results["reason_size"].tolist()[FAILED] == -1
    assert results["reason_size"][ROWS].tolist() == explained.kept.sum(1).tolist()
    assert np.isnan(results["reason_seconds"][FAILED])


def test_a_run_that_was_stopped_writes_the_same_bytes(results: Results, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        start(out, engine=Interrupted(1))
    assert len(Results.open(out)) == 2
    start(out)
    assert contents(out) == contents(results.folder)


def test_totals_count_sets(results: Results, explained: pm.Explanation) -> None:
    found = total(results)
    assert found.reason is not None
    assert found.reason.count == COUNT - 1
    assert found.reason.sizes.tolist() == explained.kept.sum(1).tolist()
    record = found.json()["reason"]
    assert record["mean_size"] == pytest.approx(found.reason.sizes.mean())
    assert record["subset_minimal"] == found.reason.minimal == COUNT - 1
    assert record["undecided_share"] == 0
    assert "seconds" not in json.dumps(record)  # totals.json is the same in every execution
    assert f"sufficient sets: mean {record['mean_size']:.1f}, from" in found.text()
    whole = (results["full"] < 0) | (results["reason_size"] == 0)
    assert found.certified == int(whole.sum())


def test_undecided_and_smallest_sets_are_counted() -> None:
    sizes, undecided, least = np.array([3, 4, 0]), np.array([0, 2, 0]), np.array([3, 1, 0])
    found = ReasonTotals("cell", sizes, undecided, least, np.array([1.0, np.nan, 2.0]))
    assert (found.minimal, found.smallest, found.mean_seconds) == (2, 2, None)
    assert found.undecided_share == pytest.approx(2 / 7)
    assert "no sufficient set has fewer than 1.3 on average" in found.lines()[0]


def test_tables_have_columns_of_sets(results: Results, tmp_path: Path) -> None:
    results.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["reason_size"] for row in rows] == [str(size) for size in results["reason_size"].tolist()]
    assert float(rows[0]["free_overlap_upper_proven"]) == results["reason_bound"][0] < 0
    assert rows[0]["reason_no_set_smaller_than"] == "0"
    assert float(rows[0]["reason_seconds"]) > 0
    assert rows[FAILED]["free_overlap_upper_proven"] == ""
    results.export(tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table["kept"].to_pylist() == results["kept"].tolist()
    assert table["necessary"].to_pylist() == results["necessary"].tolist()
    results.export(tmp_path / "out.zarr")
    group: Any = zarr.open_group(str(tmp_path / "out.zarr"))
    np.testing.assert_array_equal(group["kept"][:], results["kept"])
    results.export(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as held:
        np.testing.assert_array_equal(held["reason_undecided"], results["reason_undecided"])
    frame = results.to_frame()
    assert frame["reason_size"].tolist() == results["reason_size"].tolist()


def test_the_report_shows_sizes_and_kept_cells(results: Results, tmp_path: Path) -> None:
    report(tmp_path / "page.html", [], runs=[("digits", results)])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert faults(page) == []
    assert 'id="reasons"' in page
    sizes = [size for size in results["reason_size"].tolist() if size >= 0]
    for size, name in zip(sizes, ("digit-0.png", "digit-1.png"), strict=False):
        assert f"{name}: {size} cell" in page


def held(results: Results) -> dict[str, Array]:
    return {name: array.copy() for name, array in results.parts[0].held.items()}


def free_a_necessary_group(arrays: dict[str, Array]) -> None:
    row, group = arrays["reason_point_of"][0]
    arrays["kept"][row, group] = False


def drop_a_point(arrays: dict[str, Array]) -> None:
    for name in REASON_POINTS[1:]:
        arrays[name] = arrays[name][1:]


def raise_the_bound(arrays: dict[str, Array]) -> None:
    arrays["reason_bound"][0] = arrays["reason_limit"][0]


def claim_a_larger_minimum(arrays: dict[str, Array]) -> None:
    arrays["reason_least"][0] = arrays["kept"][0].sum() + 1


def move_another_kept_group(arrays: dict[str, Array]) -> None:
    row, group = arrays["reason_point_of"][0]
    other = next(int(u) for u in np.flatnonzero(arrays["kept"][row]) if u != group)
    mask = pm.groups.grid(4)((1, 28, 28)).numpy()
    arrays["reason_points"][0][mask == other] += 0.01


def lose_the_points(arrays: dict[str, Array]) -> None:
    del arrays["reason_points"]


CHANGES = {
    free_a_necessary_group: "a group is necessary and free",
    drop_a_point: "necessary groups and stored points differ",
    raise_the_bound: "a bound of the free groups is not below its limit",
    claim_a_larger_minimum: "a sufficient set has fewer groups than any set can have",
    move_another_kept_group: "moves another kept group",
    lose_the_points: "only a part of its sufficient sets, without reason_points",
}


@pytest.mark.parametrize(("change", "why"), CHANGES.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_changed_sets_are_noticed(results: Results, change: Any, why: str) -> None:
    part = results.parts[0]
    arrays = held(results)
    assert list(reason_faults(arrays, part.explained, part["mask"], (1, 28, 28))) == []
    change(arrays)
    assert any(why in found for found in reason_faults(arrays, part.explained, part["mask"], (1, 28, 28)))


def test_a_damaged_point_is_an_error_of_the_file(results: Results, tmp_path: Path) -> None:
    part = results.parts[0]
    arrays = load_file(part.file)
    drop_a_point(arrays)
    save_file(arrays, tmp_path / "chunk.safetensors")
    row = int(part["necessary"].any(1).argmax())
    with pytest.raises(FileError, match="cannot read the sufficient set"):
        read_reason(tmp_path / "chunk.safetensors", row, arrays, 1.0)


def test_other_runs_have_no_sets(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(Digits(2), small_model(), job(ball=BALL), out, progress=False)
    found = Results.open(out)
    assert "kept" not in found.names
    assert found.reason(0) is None
    assert total(found).reason is None
    assert "reason" not in total(found).json()
