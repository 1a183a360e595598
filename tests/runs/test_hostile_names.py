"""Samples with file names that are difficult for formats or readers, through every output."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from pyarrow import parquet

import proofmap as pm
from proofmap.runs import Results
from tests.cli.invoke import called
from tests.sources.files import write_linear
from tests.storage.test_exported_tables import read_back

pytestmark = pytest.mark.usefixtures("without_drawings")

LONG = 240 * "n" + ".npy"
NAMES = [
    b"-1+1.npy",
    b"=HYPERLINK(1).npy",
    b"@a.npy",
    b"back\\slash.npy",
    b"caf\xe9.npy",  # Latin-1
    b"i<b>&.npy",
    b"line\n(assert (<= X_0 0)).npy",
    LONG.encode(),
]
BAD = b"=bad\xff.npy"  # no sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run over these files, with its data and model."""
    place = tmp_path_factory.mktemp("hostile")
    data = os.fsencode(place / "data")
    os.mkdir(data)
    images, _ = pm.data.digits()
    for name, image in zip(NAMES, images, strict=False):
        with open(os.path.join(data, name), "wb") as file:
            np.save(file, image.numpy())
    with open(os.path.join(data, BAD), "wb") as file:
        file.write(b"no array")
    model = write_linear(place / "net.onnx", (1, 28, 28))
    words = ["run", place / "data", "--model", model, "--eps", "0.01", "--groups", "grid:2", "--out", place / "run"]
    found = called(*words, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["explained"] == len(NAMES)
    return place / "run"


@pytest.fixture(scope="module")
def names() -> list[str]:
    return sorted(os.fsdecode(name) for name in (*NAMES, BAD))


def test_tables_and_arrays_read_back(folder: Path, names: list[str], tmp_path: Path) -> None:
    results = Results.open(folder)
    assert results.samples == names
    reason = next(iter(results.reasons.values()))
    for suffix in ("csv", "parquet", "npz", "zarr"):
        found = called("export", folder, tmp_path / f"r.{suffix}")
        assert found.exit_code == 0, found.output
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [read_back(row["name"].removeprefix("'")) for row in rows] == names
    assert not any(row[column][:1] in set("=+-@") for row in rows for column in ("name", "reason"))
    table = parquet.read_table(tmp_path / "r.parquet").to_pydict()
    group: Any = zarr.open_group(str(tmp_path / "r.zarr"), mode="r")
    with np.load(tmp_path / "r.npz") as arrays:
        held = [table["name"], group.attrs["name"], arrays["name"].tolist()]
        reasons = [*filter(None, table["reason"]), *group.attrs["reason"].values(), *filter(None, arrays["reason"])]
    assert all([*map(read_back, one)] == names for one in held)
    assert {read_back(str(one)) for one in reasons} == {reason}
    assert [*map(read_back, results.to_frame()["name"])] == names


def test_names_add_nothing_to_claims(folder: Path, tmp_path: Path) -> None:
    """A name with a line break adds no assertion to the file."""
    words = ["claim", folder, "--data", folder.parent / "data", "--out", tmp_path / "claims", "--groups", "all"]
    found = called(*words)
    assert found.exit_code == 0, found.output
    questions = sorted((tmp_path / "claims" / "vnnlib").iterdir())
    assert len(questions) == len(NAMES) * (1 + 4)
    for question in questions:
        text = question.read_text(encoding="utf-8")
        assert text.count("\n(assert (<= X_0 ") == 1
        assert all(line.startswith((";", "(declare-const ", "(assert ")) for line in text.splitlines())


def test_a_page_is_written(folder: Path, tmp_path: Path) -> None:
    found = called("report", tmp_path / "page.html", folder)
    assert found.exit_code == 0, found.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "=bad" in page
    assert "i<b>" not in page


def test_explanations_of_long_names_are_saved_and_claimed(folder: Path, tmp_path: Path) -> None:
    place = folder.parent
    found = called(
        *("explain", place / "net.onnx", place / "data" / LONG, place / "data" / "@a.npy", "--eps", "0.01"),
        *("--groups", "grid:2", "--out", tmp_path / "maps"),
    )
    assert found.exit_code == 0, found.output
    saved = tmp_path / "maps" / f"{235 * 'm'}.proofmap"
    next(iter((tmp_path / "maps").glob("nnn*.proofmap"))).rename(saved)
    found = called("claim", place / "net.onnx", tmp_path / "maps", "--groups", "all", "--out", tmp_path / "claims")
    assert found.exit_code == 0, found.output
    assert len(list((tmp_path / "claims" / "vnnlib").iterdir())) == 2 * (1 + 4)
