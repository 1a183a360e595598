"""Results as arrays, totals and exports, and changed files."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from safetensors import safe_open
from safetensors.numpy import save

import proofmap as pm
from proofmap.errors import FileError, InputError
from proofmap.runs import Results, run
from proofmap.runs.chunk import ChunkTexts, pack_chunk
from proofmap.runs.manifest import manifest_digest
from proofmap.runs.results import ChunkResults
from proofmap.runs.totals import Distribution, total
from tests.runs.setting import COUNT, Digits, contents, digits_model, job

FAILED = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a run with one failed sample."""
    out = tmp_path_factory.mktemp("run") / "out"
    run(Digits(bad={FAILED: None}), digits_model(), job(), out, progress=False)
    return out


@pytest.fixture
def results(folder: Path) -> Results:
    return Results.open(folder)


def test_arrays_are_read_chunk_by_chunk(results: Results) -> None:
    assert len(results) == COUNT
    assert [len(part) for part in results.parts] == [4, 4, 4, 2]
    for name in results.names:
        whole = results[name]
        if name != "mask":
            np.testing.assert_array_equal(whole, np.concatenate([part[name] for part in results.parts]))
            assert len(whole) == COUNT
    with pytest.raises(InputError, match="got the array 'score', expected one of index, label, target"):
        results["score"]


def test_an_unfinished_run_has_its_finished_chunks(folder: Path, tmp_path: Path) -> None:
    copied(folder, tmp_path)
    changed(tmp_path, lambda found: found["chunks"].pop("1"))
    results = Results.open(tmp_path)
    assert not results.complete
    assert list(results["index"]) == [*range(4), *range(8, COUNT)]
    assert results.reasons == {}


def test_the_same_results_give_the_same_bytes() -> None:
    """Packed several times, because safetensors orders metadata at random."""
    words = ChunkTexts("certified", ["a", "b"], {1: "x", 0: "y"}, [None, None], {"mask": None})
    index, scores = np.arange(2), np.ones((2, 3), dtype=np.float32)
    there = {pack_chunk(words, {"index": index, "scores": scores}) for _ in range(8)}
    assert there == {pack_chunk(words, {"scores": scores, "index": index})}


def test_samples_without_a_label_are_no_mistakes(tmp_path: Path) -> None:
    samples = Digits(count=3)
    assert samples.labels is not None
    samples.labels[1] = -1
    totals = run(samples, digits_model(), job(), tmp_path, progress=False)
    assert (totals.labelled, totals.correct) == (2, 2)
    assert "predicted as labelled: 2 of 2 labelled samples (100.0 %)" in totals.text()


def test_the_sums_are_those_of_the_arrays(folder: Path, results: Results) -> None:
    totals = total(results)
    fine = np.array([k != FAILED for k in range(COUNT)])
    full, target = results["full"][fine], results["target"][fine]
    assert (totals.count, totals.explained) == (COUNT, COUNT - 1)
    assert totals.failed == [(f"digit-{FAILED}.png", results.reasons[FAILED])]
    assert totals.certified == int((full < 0).sum()) > 0
    assert totals.correct == int((results["label"] == results["predicted"])[fine].sum())
    assert totals.overlap is not None
    assert totals.overlap.quantiles["0.5"] == pytest.approx(np.median(full))
    assert totals.overlap.mean == pytest.approx(full.mean(), rel=1e-5)
    assert sum(totals.overlap.counts) == COUNT - 1
    assert sum(entry.count for entry in totals.classes) == COUNT - 1
    for entry, found in zip(totals.classes, totals.maps, strict=True):
        own = results["attributions"][fine][target == entry.number]
        np.testing.assert_allclose(found, own.mean(axis=0), rtol=1e-5, atol=1e-6)
        assert entry.overlap == pytest.approx(full[target == entry.number].mean(), rel=1e-5)
    saved = json.loads((folder / "totals.json").read_text())
    assert saved == json.loads(json.dumps(totals.json()))
    assert saved["certified_share"] == totals.certified / COUNT
    assert (folder / "totals.png").read_bytes().startswith(b"\x89PNG")
    with safe_open(folder / "means.safetensors", framework="numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("classes"), [entry.number for entry in totals.classes])
        np.testing.assert_array_equal(file.get_tensor("scores"), totals.means)
    text = totals.text()
    assert text.startswith(f"{COUNT} samples: {COUNT - 1} explained, 1 failed\npredicted as labelled: ")
    proven = f"{totals.certified} of {COUNT} samples ("
    assert f"proven for ε = 0.015 in L∞, values within [0, 1]: {proven}" in text
    assert saved["rigorous"] is True
    assert f"failed: digit-{FAILED}.png: cannot read" in text


def test_proofs_without_rounding_are_marked(tmp_path: Path) -> None:
    totals = run(Digits(2), digits_model(), job(settings={"rigorous": False}), tmp_path, progress=False)
    note = "(floating-point rounding is not covered)"
    assert f"proven for ε = 0.015 in L∞, values within [0, 1] {note}: " in totals.text()
    assert totals.json()["rigorous"] is False


@pytest.mark.parametrize("values", [[-1.0, 0.0, 2.5, np.inf], [3.0, 3.0], [0.0], [-0.1, 0.1]])
def test_no_bar_of_the_histogram_lies_across_zero(values: list[float]) -> None:
    from proofmap.runs.totals import _distribution

    found = _distribution(np.array(values))
    assert isinstance(found, Distribution)
    assert sum(found.counts) == np.isfinite(values).sum()
    assert all(low >= 0 or high <= 0 for low, high in zip(found.edges[:-1], found.edges[1:], strict=True))


def test_a_bound_of_another_objective_certifies_nothing(tmp_path: Path) -> None:
    totals = run(Digits(2), digits_model(), job(settings={"objective": "mean"}), tmp_path, progress=False)
    assert totals.overlap is not None
    assert totals.certified is None
    assert "proven for" not in totals.text()


def test_an_objective_that_decides_nothing_refutes_nothing(tmp_path: Path) -> None:
    """The output of one class alone does not decide which class wins."""
    work = job(method="blend", settings={"samples": 4, "attack_steps": 1, "steps": 1})
    totals = run(Digits(2), digits_model(), work, tmp_path, progress=False)
    assert (totals.objective, totals.refuted) == ("class", None)
    assert "the objective 'class', the largest that samples reached" in totals.text()
    assert "AO" not in totals.text()


def test_totals_without_explained_samples(tmp_path: Path) -> None:
    totals = run(Digits(2, {0: None, 1: None}), digits_model(), job(), tmp_path, progress=False)
    assert (totals.explained, totals.overlap, totals.certified) == (0, None, 0)
    assert totals.text().startswith("2 samples: 0 explained, 2 failed")
    assert np.isnan(Results.open(tmp_path)["attributions"]).all()
    assert totals.maps.shape == (0, 1, 28, 28)


def test_tables_equal_the_arrays(results: Results, tmp_path: Path) -> None:
    for suffix in ("csv", "parquet"):
        results.export(tmp_path / f"r.{suffix}")
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == results.samples
    assert rows[FAILED]["reason"] == results.reasons[FAILED]
    assert rows[FAILED]["overlap_upper_proven"] == rows[FAILED]["score_15"] == ""
    assert float(rows[3]["overlap_upper_proven"]) == results["full"][3]
    assert [float(rows[3][f"score_{k}"]) for k in range(16)] == results["scores"][3].tolist()
    frame = results.to_frame()
    assert list(frame.columns) == list(rows[0])
    assert frame["name"].tolist() == results.samples
    np.testing.assert_array_equal(frame["overlap_upper_proven"].to_numpy(np.float32), results["full"])
    np.testing.assert_array_equal(frame[[f"score_{k}" for k in range(16)]].to_numpy(np.float32), results["scores"])
    assert frame["score_15"].isna().tolist() == [k == FAILED for k in range(COUNT)]
    table = parquet.read_table(tmp_path / "r.parquet")
    assert table["name"].to_pylist() == results.samples
    assert table["reason"].to_pylist()[FAILED] == results.reasons[FAILED]
    assert table["reason"].null_count == COUNT - 1
    frozen = np.array(table["overlap_frozen_upper_proven"].to_pylist(), dtype=np.float32)
    np.testing.assert_array_equal(frozen, results["frozen"])
    np.testing.assert_array_equal(table["overlap_upper_proven"].to_numpy(), results["full"])
    np.testing.assert_array_equal(table["overlap_at_input"].to_numpy(), results["nominal"])
    assert {rows[3][name] for name in ("norm", "domain")} == {"inf", "[0.0, 1.0]"}


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_an_export_collects_the_reasons_once(
    suffix: str, results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collecting them for every sample takes quadratic time."""
    calls, collected = list[Results](), vars(Results)["reasons"]

    def counted(self: Results) -> Any:
        calls.append(self)
        return collected.fget(self)

    monkeypatch.setattr(Results, "reasons", property(counted))
    results.export(tmp_path / f"out{suffix}")
    assert len(results) > 3
    assert len(calls) <= 1


def test_arrays_are_exported_unchanged(results: Results, tmp_path: Path) -> None:
    results.export(tmp_path / "r.npz")
    results.export(tmp_path / "r.zarr")
    group: Any = zarr.open_group(str(tmp_path / "r.zarr"), mode="r")
    with np.load(tmp_path / "r.npz", allow_pickle=False) as archive:
        assert list(archive["name"]) == list(group.attrs["name"]) == results.samples
        assert archive["guarantee"] == group.attrs["guarantee"] == "certified"
        for name in results.names:
            if name != "attributions":
                np.testing.assert_array_equal(archive[name], results[name])
                np.testing.assert_array_equal(group[name][:], results[name])
    assert group.attrs["reason"] == {str(FAILED): results.reasons[FAILED]}
    with pytest.raises(FileError, match="is there already, expected a new folder"):
        results.export(tmp_path / "r.zarr")


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet", "zarr"])
def test_an_export_reads_every_row_a_few_times(results: Results, tmp_path: Path, suffix: str) -> None:
    """The work is linear in the number of rows."""
    sound = ChunkResults.texts.fget  # type: ignore[attr-defined]
    count = [0]

    def counted(part: ChunkResults) -> ChunkTexts:
        count[0] += 1
        return sound(part)  # type: ignore[no-any-return]

    with patch.object(ChunkResults, "texts", property(counted)):
        results.export(tmp_path / f"r.{suffix}")
    assert 0 < count[0] <= 10 * COUNT


def test_own_masks_are_exported_too(tmp_path: Path) -> None:
    run(Digits(3), digits_model(), job(groups=pm.groups.superpixels(9), chunk=2), tmp_path / "run", progress=False)
    results = Results.open(tmp_path / "run")
    for name in ("r.zarr", "r.csv", "r.parquet"):
        results.export(tmp_path / name)
    group: Any = zarr.open_group(str(tmp_path / "r.zarr"), mode="r")
    np.testing.assert_array_equal(group["mask"][:], results["mask"])
    np.testing.assert_array_equal(group["scores"][:], results["scores"])


def test_an_export_is_written_atomically(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"expected one that ends in .csv, .parquet, .npz, .zarr"):
        results.export(tmp_path / "r.xlsx")
    with pytest.raises(FileError, match="cannot write"):
        results.export(tmp_path / "none" / "r.csv")

    def broken(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("proofmap.runs.results_export.with_missing_groups", broken)
    with pytest.raises(KeyboardInterrupt):
        results.export(tmp_path / "r.csv")
    assert list(tmp_path.iterdir()) == []


def copied(folder: Path, out: Path) -> None:
    for name, content in contents(folder).items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(content)


def changed(folder: Path, change: Callable[[Any], object]) -> None:
    found = json.loads((folder / "manifest.json").read_text())
    change(found)
    found["digest"] = manifest_digest(found)
    (folder / "manifest.json").write_text(json.dumps(found))


def renamed(name: str) -> Callable[[Any], object]:
    return lambda found: found["chunks"]["0"].update(file=name)


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "chunks/../../secret",
        "//secret",
        "link",
        "chunks\\..\\..\\secret",
        "C:secret",
        "",
        "a\0b",
    ],
)
def test_a_manifest_does_not_lead_out_of_its_folder(folder: Path, tmp_path: Path, name: str) -> None:
    """Neither readers nor a resumed run accept it."""
    out = tmp_path / "run"
    out.mkdir()
    copied(folder, out)
    (tmp_path / "secret").write_bytes((folder / "chunks" / "000000.safetensors").read_bytes())
    (out / "link").symlink_to(tmp_path / "secret")
    changed(out, renamed(name))
    with pytest.raises(FileError, match="as a file of its own, expected one inside it"):
        Results.open(out)
    with pytest.raises(FileError, match="as a file of its own, expected one inside it"):
        run(Digits(bad={FAILED: None}), digits_model(), job(), out, progress=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.update(format="other"), "is version 2 of 'other', expected 2 of 'proofmap-run'$"),
        (lambda found: found.update(version=3), "is version 3 of"),
        (lambda found: found.pop("run"), r"is no manifest of a run \(KeyError"),
        (lambda found: found["run"].pop("data"), r"is no manifest of a run \(KeyError"),
        (lambda found: found["run"]["job"].update(chunk=0), "its entries contradict each other"),
        (lambda found: found["chunks"].update({"x": found["chunks"]["0"]}), r"is no manifest of a run \(ValueError"),
        (lambda found: found["chunks"].update({"9": found["chunks"]["0"]}), "its entries contradict each other"),
        (lambda found: found["chunks"]["0"].update(samples="4"), "its entries contradict each other"),
        (lambda found: found["chunks"]["0"].update(more=1), r"is no manifest of a run \(TypeError"),
        (lambda found: found.update(chunks=[]), r"is no manifest of a run \(AttributeError"),
    ],
)
def test_foreign_manifests_fail(folder: Path, tmp_path: Path, change: Callable[[Any], object], message: str) -> None:
    copied(folder, tmp_path)
    changed(tmp_path, change)
    with pytest.raises(FileError, match=message):
        Results.open(tmp_path)


def test_other_files_are_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*manifest.json: No such file.*; give the folder of a run"):
        Results.open(tmp_path)
    for text in ("{", "[]", "[" * 100_000, "\xff"):
        (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
        with pytest.raises(FileError, match="is no manifest of a run"):
            Results.open(tmp_path)


INDEX = {"index": np.arange(4)}
WORDS = {
    "format": "proofmap-chunk",
    "version": 2,
    "guarantee": "certified",
    "names": list("abcd"),
    "reasons": {},
    "files": [None] * 4,
    "about": {},
    "taken_off": None,
}


def stated(shape: list[int]) -> bytes:
    """A chunk whose index has this shape, with any number of axes."""
    content = {"index": {"dtype": "I64", "shape": shape, "data_offsets": [0, 32]}}
    header = json.dumps({"__metadata__": {"chunk": json.dumps(WORDS)}, **content}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(32)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no results"),
        (b"\x08" + bytes(7) + b"{}      ", "holds no results: KeyError"),
        (save(INDEX, {"chunk": "{"}), "holds no results: JSONDecodeError"),
        (save(INDEX, {"chunk": json.dumps({**WORDS, "version": 1})}), "is version 1 of proofmap-chunk, expected 2"),
        (save(INDEX, {"chunk": json.dumps({**WORDS, "names": ["a"]})}), "does not hold the 4 samples"),
        (save(INDEX, {"chunk": json.dumps({**WORDS, "reasons": {"4": ""}})}), "does not hold the 4 samples"),
        (save(INDEX, {"chunk": json.dumps({**WORDS, "guarantee": "firm"})}), "does not hold the 4 samples"),
        (
            save({"index": np.arange(3)}, {"chunk": json.dumps(WORDS)}),
            r"index in .* is int64 \(3,\), expected int64 with 4",
        ),
        (save({"index": np.ones(4)}, {"chunk": json.dumps(WORDS)}), "is float64"),
        (stated([4] + [1] * 70), "cannot read index in"),
    ],
)
def test_a_foreign_chunk_is_refused(folder: Path, tmp_path: Path, content: bytes, message: str) -> None:
    copied(folder, tmp_path)
    (tmp_path / "chunks" / "000000.safetensors").write_bytes(content)
    with pytest.raises(FileError, match=message):
        Results.open(tmp_path)["index"]


@pytest.fixture(scope="module")
def torn(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that serves many examples."""
    out = tmp_path_factory.mktemp("torn")
    copied(folder, out)
    return out


@given(data=st.data())
def test_changed_files_are_read_or_refused(folder: Path, torn: Path, data: st.DataObject) -> None:
    """Random bytes in any file raise FileError alone, and nothing outside the folder is read."""
    name = data.draw(st.sampled_from(["manifest.json", "chunks/000000.safetensors", "mask.npy"]))
    whole = (folder / name).read_bytes()
    start = data.draw(st.integers(0, min(len(whole), 3000)))
    stop = data.draw(st.integers(start, start + 8))
    put = data.draw(
        st.binary(max_size=8) | st.sampled_from([b'"', b"0", b"9" * 30, b"-1", b"null", b"BF16", b"[]", b"{"])
    )
    content = whole[:start] + put + whole[stop:]
    if name.startswith("chunks") and data.draw(st.booleans()):  # a header with the stated length
        length = int.from_bytes(whole[:8], "little") + len(put) - (stop - start)
        content = length.to_bytes(8, "little") + content[8:] if start >= 8 else content
    (torn / name).write_bytes(content)
    try:
        results = Results.open(torn)
        for array in results.names:
            assert isinstance(results[array], np.ndarray)
        assert len(results.samples) == len(results)
        results.check()
    except FileError:
        pass
    finally:
        (torn / name).write_bytes(whole)


def test_foreign_groups_are_refused(folder: Path, tmp_path: Path) -> None:
    copied(folder, tmp_path)
    (tmp_path / "mask.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(FileError, match=r"mask.npy is damaged: run again to make it anew"):
        Results.open(tmp_path).check()
    run(Digits(bad={FAILED: None}), digits_model(), job(), tmp_path, progress=False)
    assert contents(tmp_path) == contents(folder)
