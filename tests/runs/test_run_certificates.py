"""Certificates of a run: one per row, accepted by the checker, and computed only once."""

import json
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import proofmap as pm
from proofmap.errors import FileError, InputError
from proofmap.proof import check
from proofmap.proof.certificate import Certificate
from proofmap.proof.make_certificate import certify
from proofmap.runs import Job, Local, Results, run
from proofmap.runs.manifest import Manifest
from proofmap.sources import read_model
from tests.runs.setting import Digits, contents, digits_model, job, nan_digit
from tests.sources.files import write_linear

pytestmark = pytest.mark.usefixtures("without_drawings")


def certified(out: Path, work: Job | None = None, samples: Any = None) -> dict[str, Any]:
    run(samples or Digits(), digits_model(), work or job(), out, progress=False, limit=3, certified=True)
    index: dict[str, Any] = json.loads((out / "certificates" / "index.json").read_text())
    return index


def test_every_row_has_a_certificate_that_is_proven(tmp_path: Path) -> None:
    index = certified(tmp_path)
    assert (index["format"], index["version"], index["model"]) == ("proofmap-certificates", 1, "network.onnx")
    folder, results = tmp_path / "certificates", Results.open(tmp_path)
    assert [entry["row"] for entry in index["samples"]] == [0, 1, 2]
    for entry in index["samples"]:
        proof = folder / entry["certificate"]
        assert sha256(proof.read_bytes()).hexdigest() == entry["sha256"]
        assert check.check(proof, folder / index["model"], folder / entry["input"])
    said = (folder / "index.json").read_bytes()
    assert Manifest.load(tmp_path).certificates == sha256(said).hexdigest()
    results.check()


def test_only_missing_certificates_are_made(tmp_path: Path) -> None:
    run(Digits(), digits_model(), job(), tmp_path, progress=False, limit=3)
    assert Manifest.load(tmp_path).certificates is None
    certified(tmp_path)
    whole = contents(tmp_path)
    (tmp_path / "certificates" / "000001.proof").unlink()
    with patch("proofmap.runs.run_certificates.certify", wraps=certify) as made:
        certified(tmp_path)
    assert made.call_count == 1
    assert contents(tmp_path) == whole
    run(Digits(), digits_model(), job(), tmp_path, progress=False, limit=3)
    assert contents(tmp_path) == whole


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_only_damaged_files_are_written_again(tmp_path: Path) -> None:
    """A changed certificate and a changed input are written again with the same bytes."""
    certified(tmp_path)
    whole, folder = contents(tmp_path), tmp_path / "certificates"
    flipped(folder / "000001.proof")
    np.save(folder / "000002.npy", np.load(folder / "000000.npy"))
    flipped(folder / "network.onnx")
    (tmp_path / "log.jsonl").unlink()
    with patch("proofmap.runs.run_certificates.certify", wraps=certify) as made:
        certified(tmp_path)
    assert made.call_count == 1
    assert contents(tmp_path) == whole


def test_a_run_that_is_killed_between_certificates_keeps_them(tmp_path: Path) -> None:
    """Without an index the log identifies unchanged certificates; a truncated line is ignored."""
    made: list[Certificate] = []

    def killed(*args: Any) -> Certificate:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(certify(*args))
        return made[-1]

    with patch("proofmap.runs.run_certificates.certify", killed), pytest.raises(KeyboardInterrupt):
        certified(tmp_path)
    assert not (tmp_path / "certificates" / "index.json").exists()
    flipped(tmp_path / "certificates" / "000000.proof")
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"event": "certificate", "row": 1, "sha2')
    with patch("proofmap.runs.run_certificates.certify", wraps=certify) as again:
        index = certified(tmp_path)
    assert again.call_count == 2
    assert [entry["sha256"] for entry in index["samples"][:2]] == [sha256(one.content).hexdigest() for one in made]


def test_a_certificate_is_about_the_sample_that_was_explained(tmp_path: Path) -> None:
    """A file that changes after its explanation ends the run without a certificate."""
    samples = Digits()
    run(samples, digits_model(), job(), tmp_path, progress=False, limit=2)
    samples.images = samples.images.clone()
    samples.images[1, 0, 3, 3] += 0.25
    with pytest.raises(FileError, match=r"^digit-1.png has changed since it was explained: .* is [0-9a-f]{64}; put"):
        run(samples, digits_model(), job(), tmp_path, progress=False, limit=2, certified=True)
    assert not (tmp_path / "certificates" / "000001.proof").exists()


@pytest.mark.parametrize("when", ["before the first chunk", "before the first certificate"])
def test_a_model_file_that_is_replaced_during_a_run_changes_nothing(tmp_path: Path, when: str) -> None:
    """Certificates are about the file that the manifest names, and the folder stores this file."""
    file = write_linear(tmp_path / "net.onnx", (1, 28, 28), classes=10)
    content = file.read_bytes()
    other = write_linear(tmp_path / "other.onnx", (1, 28, 28), classes=10).read_bytes()[:-1]

    def replaced(*_: Any, **__: Any) -> Any:
        file.write_bytes(other)
        return sound(*_, **__)

    sound: Any = certify if "certificate" in when else Local.explain
    name = (
        "proofmap.runs.run_certificates.certify" if "certificate" in when else "proofmap.runs.dataset_run.Local.explain"
    )
    with patch(name, replaced):
        run(Digits(), read_model(str(file)), job(), tmp_path / "out", progress=False, limit=1, certified=True)
    folder, manifest = tmp_path / "out" / "certificates", Manifest.load(tmp_path / "out")
    assert file.read_bytes() == other
    assert [one.sha256 for one in manifest.model.files] == [sha256(content).hexdigest()]
    assert (folder / "model.onnx").read_bytes() == content
    assert check.check(folder / "000000.proof", folder / "model.onnx", folder / "000000.npy")


def test_a_foreign_certificate_is_replaced(tmp_path: Path) -> None:
    certified(tmp_path)
    folder = tmp_path / "certificates"
    right = (folder / "000001.proof").read_bytes()
    (folder / "000001.proof").write_bytes((folder / "000000.proof").read_bytes())
    certified(tmp_path)
    assert (folder / "000001.proof").read_bytes() == right


def test_a_row_without_an_explanation_has_a_reason(tmp_path: Path) -> None:
    index = certified(tmp_path, samples=Digits(bad={1: nan_digit()}))
    reasons = {entry["row"]: entry["reason"] for entry in index["samples"] if "reason" in entry}
    assert reasons == Results.open(tmp_path).reasons
    assert list(reasons) == [1]


def test_an_onnx_model_is_kept_as_it_is(tmp_path: Path) -> None:
    model = read_model(str(write_linear(tmp_path / "net.onnx", (1, 28, 28), classes=10)))
    run(Digits(), model, job(), tmp_path / "out", progress=False, limit=1, certified=True)
    folder = tmp_path / "out" / "certificates"
    assert (folder / "model.onnx").read_bytes() == (tmp_path / "net.onnx").read_bytes()
    assert check.check(folder / "000000.proof", folder / "model.onnx", folder / "000000.npy")


def test_models_without_certificates_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got certificates of empirical .* expected eva"):
        certified(tmp_path, replace(job(), method="empirical"))
    with pytest.raises(InputError, match=r"contrastive and the objective 'margin'"):
        certified(tmp_path, replace(job(), settings={"objective": "mean"}))
    assert not list(tmp_path.iterdir())


def test_certificates_of_a_searched_run_have_both_bounds(tmp_path: Path) -> None:
    work = replace(job(), settings={"bounds": pm.bounds.Exact(seconds=0.5)})
    run(Digits(), digits_model(), work, tmp_path, progress=False, limit=1, certified=True)
    folder = tmp_path / "certificates"
    assert check.check(folder / "000000.proof", folder / "network.onnx", folder / "000000.npy")
    with zipfile.ZipFile(folder / "000000.proof") as file:
        lower, upper = (float(check.read_array(file.read(f"{side}.npy"))[0]) for side in ("lower", "upper"))
        assert "tree.npy" in file.namelist()
    results = Results.open(tmp_path)
    assert lower <= upper <= float(results["full"][0]) + 0.5
    assert lower == pytest.approx(float(results["full_lower"][0]), abs=0.01)  # float32 may round it lower
