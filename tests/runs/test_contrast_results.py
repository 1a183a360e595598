"""Runs of contrastive sets: chunks hold all sets with their points, and tables, totals and pages follow from them."""

import csv
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from pyarrow import parquet

import proofmap as pm
from proofmap.dossier.dossier_certificates import RunCertificates
from proofmap.errors import FileError
from proofmap.proof.check import read_claim
from proofmap.proof.make_certificate import certify, certify_changes
from proofmap.report import report
from proofmap.runs import Results, run
from proofmap.runs.chunk import Array
from proofmap.runs.sets.contrast_results import CONTRAST_POINTS, ContrastTotals, contrast_faults, join_sets
from proofmap.runs.totals import total
from tests.report.markup import faults
from tests.runs.setting import Digits, job
from tests.runs.test_reason_results import BALL, COUNT, FAILED, ROWS, small_model


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("run") / "out"
    task = job(method="contrastive", ball=BALL, settings={"seconds": 20, "sets": 2}, chunk=2)
    run(Digits(COUNT, bad={FAILED: None}), small_model(), task, out, progress=False)
    return Results.open(out)


@pytest.fixture(scope="module")
def explained() -> pm.Explanation:
    images = pm.data.digits()[0][ROWS]
    method = pm.Contrastive(
        small_model().graph(images[:1]), BALL, groups=pm.groups.grid(4), seconds=20, sets=2, progress=False
    )
    return method.explain(images)


def test_a_row_has_the_sets_of_its_sample(results: Results, explained: pm.Explanation) -> None:
    results.check()
    assert explained.contrast is not None
    assert bool(explained.contrast.found.any())
    for k, row in enumerate(ROWS):
        found, own = results.contrast(row), explained[k].contrast
        assert found is not None
        assert own is not None
        for name, tensor in found.tensors.items():
            if name != "seconds":
                torch.testing.assert_close(tensor, own.tensors[name])
        assert float(found.seconds) > 0
    assert results.contrast(FAILED) is None
    assert results["contrast_size"].tolist()[FAILED] == -1
    assert results["contrast_size"][ROWS].tolist() == explained.contrast.size.tolist()
    assert results["changed"][ROWS].tolist() == explained.contrast.moved.tolist()


def test_totals_tables_and_the_report_follow(results: Results, explained: pm.Explanation, tmp_path: Path) -> None:
    assert explained.contrast is not None
    found = total(results)
    assert found.contrast is not None
    assert found.json()["contrast"]["proven_smallest"] == int(explained.contrast.smallest.sum())
    assert found.refuted == int(explained.contrast.found.sum())
    impossible = explained.contrast.impossible.numpy() | (explained.overlap.full < 0).numpy()
    assert found.certified == int(impossible.sum())
    assert "contrastive sets: found for" in found.text()
    results.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["contrast_size"] for row in rows] == [str(size) for size in results["contrast_size"].tolist()]
    assert {"contrast_no_set_smaller_than", "contrast_counted_by_solver"} <= rows[0].keys()
    results.export(tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet")["changed"].to_pylist() == results["changed"].tolist()
    report(tmp_path / "page.html", [], runs=[("digits", results)])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert faults(page) == []
    assert 'id="contrasts-1"' in page


def test_smallest_and_impossible_sets_are_counted() -> None:
    sizes, least = np.array([3, 4, 0, 0]), np.array([3, 1, -1, 2])
    found = ContrastTotals("cell", sizes, least, np.array([1.0, np.nan, 2.0, 1.0]))
    assert (found.smallest, found.impossible, found.mean_seconds) == (1, 1, None)
    assert found.lines()[0] == (
        "contrastive sets: found for 2 of 4 samples (50.0 %): mean 3.5, from 3 to 4 changed cells"
    )
    assert found.json()["found"] == 2
    none = ContrastTotals("cell", sizes[2:], least[2:], np.ones(2))
    assert none.json()["mean_size"] is None


def held(results: Results) -> dict[str, Array]:
    return {name: array.copy() for name, array in results.parts[0].held.items()}


def claim_another_set(arrays: dict[str, Array]) -> None:
    arrays["changed"][0] = ~arrays["changed"][0]


def lower_a_value(arrays: dict[str, Array]) -> None:
    arrays["contrast_values"][0] = arrays["contrast_limit"][0]


def claim_a_larger_minimum(arrays: dict[str, Array]) -> None:
    arrays["contrast_least"][0] = arrays["contrast_sets"][0].sum() + 1


def claim_that_none_exists(arrays: dict[str, Array]) -> None:
    arrays["contrast_least"][0] = -1


def change_another_group(arrays: dict[str, Array]) -> None:
    other = int(np.flatnonzero(~arrays["contrast_sets"][0])[0])
    mask = pm.groups.grid(4)((1, 28, 28)).numpy()
    arrays["contrast_points"][0][mask == other] += 0.01


def swap_owners(arrays: dict[str, Array]) -> None:
    arrays["contrast_owner"] = arrays["contrast_owner"][::-1]


def lose_the_points(arrays: dict[str, Array]) -> None:
    del arrays["contrast_points"]


CHANGES = {
    claim_another_set: "changed groups and stored sets differ",
    lower_a_value: "an input does not exceed its limit",
    claim_a_larger_minimum: "fewer groups than any set can have",
    claim_that_none_exists: "fewer groups than any set can have",
    change_another_group: "changes a group outside of its set",
    swap_owners: "do not fit together",
    lose_the_points: "only a part of its contrastive sets, without contrast_points",
}


@pytest.mark.parametrize(("change", "why"), CHANGES.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_changed_sets_are_noticed(results: Results, change: Any, why: str) -> None:
    part = results.parts[0]
    arrays = held(results)
    assert len({*arrays["contrast_owner"].tolist()}) == 2
    assert list(contrast_faults(arrays, part.explained, part["mask"], (1, 28, 28))) == []
    change(arrays)
    assert any(why in found for found in contrast_faults(arrays, part.explained, part["mask"], (1, 28, 28)))


def test_parts_are_joined_in_the_order_of_their_rows() -> None:
    def part(owner: list[int], groups: int, value: float) -> dict[str, Array]:
        count = len(owner)
        arrays: list[Array] = [np.full((2, 3), value, np.float32), np.ones((count, groups), bool), np.array(owner)]
        arrays += [np.full((count, 3), value, np.float32), np.arange(count), np.full(count, value)]
        return dict(zip(CONTRAST_POINTS, arrays, strict=True))

    whole = join_sets(5, (3,), [((3, 4), part([0, 1], 2, 1.0)), ((0, 2), part([0, 0, 1], 4, 2.0))])
    assert whole["contrast_owner"].tolist() == [0, 0, 2, 3, 4]
    assert whole["contrast_values"].tolist() == [2, 2, 2, 1, 1]
    assert whole["contrast_sets"].sum(1).tolist() == [4, 4, 4, 2, 2]
    assert np.isnan(whole["contrast_x"][1]).all()


@pytest.mark.parametrize("method", ["sufficient", "contrastive"])
def test_runs_write_certificates_of_sets(method: str, tmp_path: Path) -> None:
    def start(made: Any) -> Results:
        with patch(f"proofmap.runs.run_certificates.{made.__name__}", wraps=made) as counted:
            task = job(method=method, ball=BALL, settings={"seconds": 20}, chunk=2)
            run(Digits(2), small_model(), task, tmp_path / "out", progress=False, certified=True)
        calls.append(counted.call_count)
        return Results.open(tmp_path / "out")

    calls = list[int]()
    made = certify if method == "sufficient" else certify_changes
    results, folder = start(made), tmp_path / "out" / "certificates"
    for row in range(2):
        claim = read_claim(folder / f"{row:06d}.proof", folder / "network.onnx", folder / f"{row:06d}.npy")
        assert claim.decided(0)
        if method == "sufficient":
            assert claim.statement.free == np.flatnonzero(~results["kept"][row]).tolist()
        else:
            assert claim.statement.sets == [np.flatnonzero(results["changed"][row]).tolist()]
    start(made)
    assert calls == [2, 0]
    with pytest.raises(FileError, match=f"are about {method} sets, expected those of decisions"):
        RunCertificates.open(results)
