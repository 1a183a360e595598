"""Runs store the standard errors of scores that are means over random draws."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import proofmap as pm
from proofmap.errors import InputError
from proofmap.runs import Results, run
from proofmap.runs.run_job import seed_of
from tests.runs.setting import EPS, Digits, digits_model, job, nan_digit

COUNT = 6
FAILED = (1, 4, 5)  # one failed sample beside an explained one, and a chunk of failed samples
SAMPLES = 8
SETTINGS = {"samples": SAMPLES}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("smooth")
    digits = Digits(COUNT, {k: nan_digit() for k in FAILED})
    run(digits, digits_model(), job(method="smooth", settings=SETTINGS, chunk=2), folder, progress=False)
    return Results.open(folder)


def test_errors_are_those_of_the_library(results: Results) -> None:
    results.check()
    assert "errors" in results.names
    ball, groups = pm.Ball(EPS, domain=(0.0, 1.0)), pm.groups.grid(4)
    for number, rows in ((0, [0]), (1, [2, 3])):
        smooth = pm.SmoothEVA(digits_model().network, ball, groups=groups, seed=seed_of(0, number), samples=SAMPLES)
        e = smooth.explain(Digits().images[rows])
        assert e.errors is not None
        assert (e.errors > 0).any()
        np.testing.assert_allclose(results["errors"][rows], e.errors, rtol=0, atol=1e-5)
    assert np.isnan(results["errors"][[*FAILED]]).all()
    assert results["errors"].shape == results["scores"].shape


def test_tables_and_arrays_have_errors(results: Results, tmp_path: Path) -> None:
    for name in ("r.csv", "r.npz", "r.zarr", "r.parquet"):
        results.export(tmp_path / name)
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(rows[2][f"score_{k}_standard_error"]) for k in range(16)] == results["errors"][2].tolist()
    group: Any = zarr.open_group(str(tmp_path / "r.zarr"), mode="r")
    assert group["errors"].attrs["is"] == "score_standard_error"
    with np.load(tmp_path / "r.npz") as arrays:
        np.testing.assert_array_equal(arrays["errors"], results["errors"])
    np.testing.assert_array_equal(group["errors"][:], results["errors"])


def test_methods_without_errors_store_none() -> None:
    """A run of a method without standard errors; its files are like those of older versions."""
    old = Results.open(Path(__file__).parent / "old")
    assert "errors" not in old.names
    with pytest.raises(InputError, match="got the array 'errors', expected one of"):
        old["errors"]


def test_empty_groups_have_the_error_0(tmp_path: Path) -> None:
    """An empty group has the score 0 and the standard error 0."""
    chosen = job(method="smooth", settings=SETTINGS, groups=pm.groups.superpixels(9), chunk=2)
    run(Digits(4), digits_model(), chosen, tmp_path, progress=False)
    results = Results.open(tmp_path)
    scores, errors = results["scores"], results["errors"]
    assert scores.shape == errors.shape
    assert np.isfinite(errors).all()
    absent = [(row, u) for row in range(4) for u in range(scores.shape[1]) if not (results["mask"][row] == u).any()]
    assert all(errors[row, u] == 0 for row, u in absent)
