"""A dossier is complete and reproducible, and is not written if a check fails."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zipfile import ZipFile

import numpy as np
import pytest

from proofmap.dossier import dossier
from proofmap.errors import FileError
from proofmap.explainers import File, Source
from proofmap.proof.check import TEXTS, read_claim
from proofmap.runs import Results
from proofmap.runs.manifest import Manifest
from tests.dossier.making import BAD, CHECKER, COUNT, EPS, GROUPS, REASON, put, without

DAY = date(2026, 3, 1)


@pytest.fixture(autouse=True)
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a fake checker, which takes no time."""
    path = tmp_path / "check.py"
    path.write_text(CHECKER)
    monkeypatch.setattr("proofmap.dossier.assemble.checker", lambda: path)


def made(folder: Path, **changes: Any) -> ZipFile:
    out = folder.parent / "dossier.zip"
    dossier(folder, out, date=DAY, progress=False, **changes)
    return ZipFile(out)


def claims(file: ZipFile) -> list[dict[str, str]]:
    return [*csv.DictReader(StringIO(file.read("claims.csv").decode()))]


def test_everything_that_the_reader_needs(certified: Path) -> None:
    with made(certified) as file:
        names = file.namelist()
        rows = [row for row in range(COUNT) if row != BAD]
        assert {name for name in names if name.startswith("certificates/")} == {
            f"certificates/{row:06d}.proof" for row in rows
        }
        for row in rows:
            assert file.read(f"inputs/{row:06d}.npy") == (certified / f"certificates/{row:06d}.npy").read_bytes()
        pages = {"README.txt", "check.py", "evidence.html", "evidence.json", "evidence.md", "report.html"}
        pages |= {"claims.csv", "claims.json", "environment.json", "samples.json", "model/network.onnx"}
        assert pages | {*TEXTS} <= {*names}
        assert file.read("run/manifest.json") == (certified / "manifest.json").read_bytes()
        file.extractall(certified.parent / "unpacked", [name for name in names if name.startswith("run/")])
    again = Results.open(certified.parent / "unpacked" / "run")
    again.check()
    assert np.array_equal(again["full"], Results.open(certified)["full"])


def test_the_manifest_names_every_member_and_what_belongs_together(certified: Path) -> None:
    with made(certified) as file:
        manifest = json.loads(file.read("manifest.json"))
        hashes = {name: sha256(file.read(name)).hexdigest() for name in file.namelist() if name != "manifest.json"}
    assert (manifest["format"], manifest["version"]) == ("proofmap-dossier", 2)
    assert manifest["files"] == hashes
    assert manifest["certificates"][BAD] == {
        "certificate": f"certificates/{BAD + 1:06d}.proof",
        "model": "model/network.onnx",
        "input": f"inputs/{BAD + 1:06d}.npy",
    }
    assert len(manifest["certificates"]) == COUNT - 1


def test_the_same_run_gives_the_same_bytes(certified: Path) -> None:
    made(certified).close()
    first = (certified.parent / "dossier.zip").read_bytes()
    for path in certified.rglob("*"):
        if path.is_file():
            shutil.copyfile(path, path.with_suffix(".copy"))  # other times on the files
            path.with_suffix(".copy").replace(path)
    with made(certified) as file:
        assert [entry.date_time for entry in file.infolist()] == [(1980, 1, 1, 0, 0, 0)] * len(file.infolist())
        assert file.namelist()[:-1] == sorted(file.namelist()[:-1])
    assert (certified.parent / "dossier.zip").read_bytes() == first


def test_claims_are_those_of_the_certificates(certified: Path) -> None:
    results = Results.open(certified)
    with made(certified) as file:
        table, whole = claims(file), json.loads(file.read("claims.json"))
    assert [int(line["row"]) for line in table] == [*range(COUNT)]
    for row, (line, entry) in enumerate(zip(table, whole, strict=True)):
        assert (line["sample"], int(line["label"])) == (results.samples[row], results["label"][row])
        if row == BAD:
            assert line["no_certificate"] == REASON
            assert (line["ao_at_most"], line["certificate"], line["decision_proven"]) == ("", "", "no")
            continue
        files = [certified / "certificates" / name for name in (f"{row:06d}.proof", "network.onnx", f"{row:06d}.npy")]
        most = read_claim(*files).ends[0][0].tolist()
        assert float(line["ao_at_most"]) == entry["ao_at_most"] == most[0]
        assert line["decision_proven"] == ("yes" if most[0] < 0 else "no")
        assert (line["ao_at_least"], float(line["eps"]), line["domain"]) == ("", EPS, "0.0 1.0")
        assert entry["ao_at_most_group_frozen"] == most[1:]
        assert len(most) == 1 + GROUPS
    assert {line["decision_proven"] for line in table} == {"yes", "no"}


def test_an_input_that_comes_twice_counts_once(certified: Path) -> None:
    def twice(index: dict[str, Any]) -> None:
        index["samples"][4] = {**index["samples"][1], "row": 4}

    put(certified, twice)
    with made(certified) as file:
        again = json.loads(file.read("claims.json"))[4]
        listed = json.loads(file.read("manifest.json"))["certificates"]
    assert (again["decision_proven"], again["no_certificate"]) == (False, "the input of sample 1 again")
    assert len(listed) == COUNT - 2


def test_a_name_that_a_spreadsheet_would_compute_is_text(certified: Path) -> None:
    put(certified, without(BAD, "=1+1"))
    with made(certified) as file:
        assert claims(file)[BAD]["no_certificate"] == "'=1+1"
        assert json.loads(file.read("claims.json"))[BAD]["no_certificate"] == "=1+1"


def test_a_reason_can_be_read_back(certified: Path) -> None:
    """Bytes of file names that are not UTF-8 are escaped, so that a backslash is doubled."""
    put(certified, without(BAD, "no caf\udce9 in C:\\x\nhere"))
    with made(certified) as file:
        assert json.loads(file.read("samples.json"))["samples"][BAD]["reason"] == r"no caf\xe9 in C:\\x\nhere"


def test_the_environment_says_with_what_it_was_made(certified: Path) -> None:
    with made(certified) as file:
        environment = json.loads(file.read("environment.json"))
        checker = sha256(file.read("check.py")).hexdigest()
    assert environment["run"]["versions"] == Results.open(certified).about["versions"]
    assert environment["run"]["job"]["ball"]["eps"] == EPS
    assert environment["dossier"]["command"][:2] == ["proofmap", "dossier"]
    assert environment["dossier"]["versions"]["numpy"] == np.__version__
    assert environment["checker"]["sha256"] == checker


def _unfinished(folder: Path) -> None:
    manifest = Manifest.load(folder)
    replace(manifest, chunks={0: manifest.chunks[0]}).save(folder)


def _uncertified(folder: Path) -> None:
    replace(Manifest.load(folder), certificates=None).save(folder)


def _other_input(folder: Path) -> None:
    np.save(folder / "certificates" / "000000.npy", np.zeros((1, 28, 28), dtype=np.float32))


def _index(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: put(folder, lambda index: index.update(changes))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "has no certificates, expected a run that wrote them": _uncertified,
    "cannot read .*index.json": lambda f: shutil.rmtree(f / "certificates"),
    "index.json is not as the run left it": lambda f: (f / "certificates" / "index.json").write_text("{}"),
    f"is not finished, expected all of its {COUNT} samples": _unfinished,
    "about another model": lambda f: (f / "certificates" / "network.onnx").write_bytes(b"another"),
    "about another input": _other_input,
    "is not as the run left it": lambda f: (f / "certificates" / "000001.proof").write_bytes(b"another"),
    "is no list of certificates": _index(version=2),
    "does not name the 5 samples": _index(samples=[]),
    "expected one inside it": _index(model="../../secret"),
    "none of the 5 samples": _index(samples=[{"row": row, "reason": "too deep"} for row in range(COUNT)]),
    "is damaged": lambda f: (f / "chunks" / "000000.safetensors").write_bytes(b"another"),
}


@pytest.mark.parametrize("sentence", DAMAGE)
def test_what_is_amiss_is_said_and_nothing_is_written(certified: Path, sentence: str) -> None:
    DAMAGE[sentence](certified)
    with pytest.raises(FileError, match=sentence):
        made(certified)
    assert not (certified.parent / "dossier.zip").exists()


def test_claims_about_another_row_are_refused(certified: Path) -> None:
    def swapped(index: dict[str, Any]) -> None:
        first, second = index["samples"][:2]
        index["samples"][:2] = [{**second, "row": 0}, {**first, "row": 1}]

    put(certified, swapped)
    with pytest.raises(FileError, match="is about the target"):
        made(certified)


def test_a_certificate_of_values_that_were_not_explained_is_refused(certified: Path) -> None:
    """Even with equal classes and radii, because the run recorded the values of every row."""
    others = ["0" * 64, *Results.open(certified).inputs[1:]]
    with patch.object(Results, "inputs", others), pytest.raises(FileError, match=r"is about the input .* has 0{64}: "):
        made(certified)


def test_sums_in_the_archive_are_those_of_the_rows(certified: Path) -> None:
    """The totals are computed again, whatever the run's file contains."""
    sound = (certified / "totals.json").read_bytes()
    (certified / "totals.json").write_bytes(sound.replace(b'"certified": ', b'"certified": 99'))
    assert made(certified).read("run/totals.json") == sound


def test_an_onnx_file_that_the_run_did_not_see_is_refused(certified: Path) -> None:
    (certified / "certificates" / "network.onnx").rename(certified / "certificates" / "model.onnx")
    put(certified, lambda index: index.update(model="model.onnx"))
    with pytest.raises(FileError, match="has changed"):
        made(certified)


def test_a_model_file_that_changed_since_the_run_is_refused(certified: Path) -> None:
    own = certified.parent / "net.pt"
    own.write_bytes(b"weights")
    replace(Manifest.load(certified), model=Source("net.py:make", (File.of(own),))).save(certified)
    made(certified).close()
    own.write_bytes(b"other weights")
    with pytest.raises(FileError, match=r"the model .*net\.pt has changed"):
        made(certified)
    own.unlink()  # a file that is elsewhere now says nothing
    made(certified).close()


@pytest.mark.parametrize("last", ["rejected: certificates/000001.proof: AO(B) <= -1 is not proven", "Killed"])
def test_what_the_checker_refuses_is_not_written(certified: Path, last: str) -> None:
    (certified.parent / "check.py").write_text(f"import sys; sys.exit(print({last!r}) or 1)")
    with pytest.raises(FileError, match="do not hold, and no dossier is written: ") as caught:
        made(certified)
    assert str(caught.value).endswith(last)
    assert sorted(path.name for path in certified.parent.iterdir()) == ["check.py", "results"]


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="give the folder of a run"):
        dossier(tmp_path, tmp_path / "dossier.zip", progress=False)
