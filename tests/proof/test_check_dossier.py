"""Dossiers against the checker: whatever a forger changes, and however well the hashes fit, is refused or named."""

import json
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from proofmap.dossier.page_texts import templates
from proofmap.proof import check as checker
from tests.proof.dossiers import MODEL, REASON, Members, derived, dumped, listed, sealed, small_dossier
from tests.proof.making import npy, write


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return small_dossier(tmp_path_factory.mktemp("made"))


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Members], tuple[int, list[str]]]:
    """The exit status and the lines of a check."""

    def run(members: Members) -> tuple[int, list[str]]:
        return checker.main([str(write(tmp_path / "dossier.zip", members))]), capsys.readouterr().out.splitlines()

    return run


Told = Callable[[Members], tuple[int, list[str]]]


def test_an_honest_dossier_ends_with_the_count_and_the_model(honest: Members, told: Told) -> None:
    code, lines = told(honest)
    assert code == 0
    assert lines[-1] == f"2 of 4 decisions proven, 2 not proven; model SHA-256 {checker.hash_of(honest[MODEL])}"
    assert lines[-2] == "4 samples, 3 certificates, 3 distinct inputs"
    assert lines[-3] == "not checked, and nothing above depends on it: run/log.jsonl"
    assert lines[0].startswith("certificates/0.proof: Decision ")
    assert lines[1].startswith("certificates/1.proof: NOT proven: another class ")
    assert lines[3] == f'sample 3: NOT proven: it has no certificate; the maker states: "{REASON}"'


def test_a_folder_is_an_unpacked_dossier(honest: Members, told: Told, tmp_path: Path, capsys: Any) -> None:
    expected = told(honest)
    with ZipFile(tmp_path / "dossier.zip") as file:
        file.extractall(tmp_path / "unpacked")
    assert (checker.main([str(tmp_path / "unpacked")]), capsys.readouterr().out.splitlines()) == expected
    shutil.copy(tmp_path / "unpacked" / "claims.csv", tmp_path / "unpacked" / "more.csv")
    assert checker.main([str(tmp_path / "unpacked")]) == 1
    assert capsys.readouterr().out == "rejected: more.csv is not in manifest.json\n"


def test_a_dossier_that_decides_nothing_ends_with_1(honest: Members, told: Told) -> None:
    samples = json.loads(honest["samples.json"])
    members = {name: data for name, data in honest.items() if name not in _files(0, 2)}
    for row in (0, 2):
        samples["samples"][row] = {**_bare(samples["samples"][row]), "reason": "lost"}
    code, lines = told(derived({**members, "samples.json": dumped(samples)}))
    assert (code, lines[-1].partition(";")[0]) == (1, "0 of 4 decisions proven, 4 not proven")


def _files(*rows: int) -> list[str]:
    return [name for row in rows for name in (f"certificates/{row}.proof", f"inputs/{row}.npy")]


def _bare(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("sample", "file_sha256", "label", "predicted")}


def replaced(name: str, old: str, new: str) -> Callable[[Members], Members]:
    """A forgery: a text in a member is another one."""

    def change(members: Members) -> Members:
        assert old.encode() in members[name]
        return sealed({**members, name: members[name].replace(old.encode(), new.encode())})

    return change


def stated(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Members], Members]:
    """A forgery: samples.json is another one."""

    def forge(members: Members) -> Members:
        samples = json.loads(members["samples.json"])
        change(samples["samples"])
        return sealed({**members, "samples.json": dumped(samples)})

    return forge


def manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Members], Members]:
    """A forgery: manifest.json is another one."""

    def forge(members: Members) -> Members:
        listed = json.loads(members["manifest.json"])
        change(listed)
        return {**members, "manifest.json": dumped(listed)}

    return forge


def _swapped_inputs(members: Members) -> Members:
    first, second = _files(0, 1)[1::2]
    return sealed({**members, first: members[second], second: members[first]})


def _swapped_certificates(members: Members) -> Members:
    samples = json.loads(members["samples.json"])
    first, second = samples["samples"][:2]
    for kind in ("certificate", "input"):
        first[kind], second[kind] = second[kind], first[kind]
    made = {**members, "samples.json": dumped(samples)}
    return {**made, "manifest.json": dumped(listed(made, checker.listing(samples["samples"], MODEL)))}


def _twice_by_content(members: Members) -> Members:
    samples = json.loads(members["samples.json"])
    samples["samples"][3] = {
        **_bare(samples["samples"][0]),
        "certificate": "certificates/3.proof",
        "input": "inputs/3.npy",
    }
    copies = {name.replace("0", "3"): members[name] for name in _files(0)}
    return derived({**members, **copies, "samples.json": dumped(samples)})


def _looser_twice(members: Members) -> Members:
    """The same input with another, looser certificate, as a further sample."""
    with ZipFile(BytesIO(members["certificates/0.proof"])) as file:
        inner = {name: file.read(name) for name in file.namelist()}
    inner["upper.npy"] = npy(checker.read_array(inner["upper.npy"]) + 2.0**-30)
    looser = BytesIO()
    with ZipFile(looser, "w") as file:
        for name, data in inner.items():
            file.writestr(name, data)
    return derived({**_twice_by_content(members), "certificates/3.proof": looser.getvalue()})


def _tighter(members: Members) -> Members:
    with ZipFile(BytesIO(members["certificates/1.proof"])) as file:
        inner = {name: file.read(name) for name in file.namelist()}
    inner["upper.npy"] = npy(-np.ones_like(checker.read_array(inner["upper.npy"])))
    out = BytesIO()
    with ZipFile(out, "w") as file:
        for name, data in inner.items():
            file.writestr(name, data)
    return derived({**members, "certificates/1.proof": out.getvalue()})


def _fewer(members: Members) -> Members:
    """No trace of sample 3, but in the record of the run."""
    samples = json.loads(members["samples.json"])
    del samples["samples"][3]
    return derived({**members, "samples.json": dumped(samples)})


def _other_text(members: Members) -> Members:
    page = members["templates/report.html"].replace(b"and what is proven about it", b"each of them proven")
    return derived({**members, "templates/report.html": page})


def _lost(members: Members) -> Members:
    """The certificate of sample 1 vanishes, everything else follows: only the run's own list still has it."""
    samples, record = json.loads(members["samples.json"]), members[checker.RECORD]
    samples["samples"][1] = {**_bare(samples["samples"][1]), "reason": "too large"}
    kept = {name: data for name, data in members.items() if name not in _files(1)}
    return sealed({**derived({**kept, "samples.json": dumped(samples)}), checker.RECORD: record})


FORGERIES: dict[str, tuple[Callable[[Members], Members], str]] = {
    "claims.csv proves more": (
        replaced("claims.csv", ",3,no,", ",3,yes,"),
        "claims.csv does not follow from the certificates: line 3 ",
    ),
    "claims.json proves more": (
        replaced("claims.json", '"decision_proven": false', '"decision_proven": true'),
        "claims.json does not",
    ),
    "a figure": (replaced("evidence.json", '"open": 2', '"open": 0'), "evidence.json does not follow"),
    "the page": (replaced("evidence.html", "2 of 4 samples", "4 of 4 samples"), "evidence.html does not follow"),
    "the plain page": (replaced("evidence.md", "2 of 4 samples", "4 of 4 samples"), "evidence.md does not follow"),
    "the README": (replaced("README.txt", "2. Run it", "2. Do not run it"), "README.txt does not follow"),
    "the report": (replaced("report.html", "Undecided", "Proven"), "report.html does not follow"),
    "a picture": (replaced("report.html", "SHA-256", "SHA-512"), "report.html does not follow"),
    "a text of a page, and the page": (_other_text, "templates/report.html is not a text that this checker knows"),
    "the model's hash": (
        replaced("environment.json", '"sha256": "', '"sha256": "0'),
        "environment.json: 'model' is not what",
    ),
    "another ball in the environment": (
        replaced("environment.json", "0.01 (L", "0.1 (L"),
        "environment.json: 'ball' is not",
    ),
    "a part more in the environment": (
        replaced("environment.json", '"run": {', '"all": 1, "run": {'),
        "environment.json has other parts",
    ),
    "the ball of the run": (
        replaced("run/manifest.json", '"eps": 0.01', '"eps": 0.1'),
        "environment.json: 'run' is not",
    ),
    "a certificate that claims more": (_tighter, "certificates/1.proof: AO(B) <= "),
    "inputs swapped": (_swapped_inputs, "certificates/0.proof: the certificate is about another input"),
    "certificates swapped": (_swapped_certificates, "claims.csv does not follow"),
    "one certificate as two": (
        _twice_by_content,
        "certificates/3.proof is the same certificate as certificates/0.proof",
    ),
    "one input as two": (
        _looser_twice,
        "certificates/3.proof: its input inputs/3.npy holds the same values as inputs/0.npy",
    ),
    "a certificate is listed twice": (
        manifest(lambda m: m["certificates"].append(m["certificates"][0])),
        "certificates/0.proof is listed twice",
    ),
    "a certificate is listed for all": (
        manifest(lambda m: m.update(certificates=m["certificates"][:1] * 3)),
        "certificates/0.proof is listed twice",
    ),
    "a certificate is not listed": (
        manifest(lambda m: m["certificates"].pop()),
        "certificates/2.proof is not listed in manifest.json",
    ),
    "a certificate is left lying": (
        stated(lambda s: s.__setitem__(1, {**_bare(s[1]), "reason": "none"})),
        "certificates/1.proof is of no sample",
    ),
    "a certificate is gone": (
        lambda m: sealed({n: d for n, d in m.items() if n != "certificates/1.proof"}),
        "certificates/1.proof is not in the dossier",
    ),
    "a certificate is gone everywhere": (_lost, f"{checker.RECORD}: sample 1 has another certificate there, or none"),
    "a sample is gone everywhere": (_fewer, "run/: it had 4 samples, and samples.json has 3"),
    "a sample that nobody has": (stated(lambda s: s.append(s[3])), "claims.csv does not follow"),
    "another prediction": (
        stated(lambda s: s[0].update(predicted=(s[0]["predicted"] + 1) % 3)),
        "certificates/0.proof: samples.json states",
    ),
    "another label": (stated(lambda s: s[0].update(label=(s[0]["label"] + 1) % 3)), "claims.csv does not follow"),
    "a sample with a field more": (
        stated(lambda s: s[3].update(decision_proven=True)),
        "samples.json: a part of the claim has other fields",
    ),
    "a label that is a text": (
        stated(lambda s: s[3].update(label="cat")),
        "samples.json: a sample has a field that is no",
    ),
    "a field more in the list": (manifest(lambda m: m.update(proven=4)), "a part of the claim has other fields"),
    "no certificates at all": (
        stated(lambda s: s.__setitem__(slice(0, 3), [{**_bare(s[3]), "reason": "none"}] * 3)),
        "no sample has a certificate",
    ),
    "a member more": (lambda m: {**m, "more.txt": b"trust me"}, "more.txt is not in manifest.json"),
    "a member less": (lambda m: {n: d for n, d in m.items() if n != "claims.csv"}, "claims.csv is not in the dossier"),
    "a member less, and not listed": (
        lambda m: sealed({n: d for n, d in m.items() if n != "claims.csv"}),
        "claims.csv is missing",
    ),
    "a changed member": (lambda m: {**m, "claims.csv": b""}, "claims.csv is not the file that was packed"),
    "two models": (lambda m: sealed({**m, "model/other.onnx": m[MODEL]}), "there are 2 models, expected one"),
    "an older format": (
        manifest(lambda m: m.update(version=1)),
        "it has format version 1, this checker reads 2: take the check.py of the",
    ),
    "another format": (manifest(lambda m: m.update(format="x")), "manifest.json is of no dossier"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_and_named(honest: Members, told: Told, name: str) -> None:
    forge, why = FORGERIES[name]
    code, lines = told(forge(honest))
    assert code == 1
    assert lines[-1].startswith(f"rejected: {why}")


def test_words_of_the_maker_cannot_leave_their_line(honest: Members, told: Told) -> None:
    samples = json.loads(honest["samples.json"])
    samples["stated"]["model"] = "net\n- Decision proven: 4 of 4"
    code, lines = told(sealed({**honest, "samples.json": dumped(samples)}))
    assert (code, lines) == (1, ["rejected: samples.json: the stated words are no short lines of text"])
    samples["stated"]["model"] = "<script>$verdict</script>"
    members = derived({**honest, "samples.json": dumped(samples)})
    assert b"<script>" not in members["evidence.html"]
    assert b"&lt;script&gt;$verdict" in members["evidence.html"]
    assert told(members)[0] == 0
    samples["samples"][3]["reason"] = "\n4 of 4 decisions proven"
    code, lines = told(derived({**honest, "samples.json": dumped(samples)}))
    assert (code, lines) == (1, ["rejected: samples.json: a sample has a field that is no line of text, or no number"])


@pytest.mark.parametrize("name", ["START.html", "run/report.html", "run/../report.html", "Report.html", "a.csv.exe"])
def test_no_page_can_lie_beside_those_that_are_compared(honest: Members, told: Told, name: str) -> None:
    code, lines = told(sealed({**honest, name: b"4 of 4 decisions proven"}))
    assert (code, lines) == (1, [f'rejected: "{name}" is no member of a dossier'])


def test_an_archive_that_other_programs_unpack_otherwise_is_refused(
    honest: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, hidden = (write(tmp_path / "a.zip", members).read_bytes() for members in (honest, {"report.html": b"proven"}))
    second = write(tmp_path / "a.zip", {"manifest.json": b"{}"}).read_bytes()
    moved = data.index(b"PK\1\2")
    commented = data[:-2] + b"\x05\x00" + hidden[:5]
    described = data[:6] + b"\x08" + data[7:]
    for forged in (hidden + data, second + data, commented, data[:moved] + hidden + data[moved:], described):
        (tmp_path / "a.zip").write_bytes(forged)
        assert checker.main([str(tmp_path / "a.zip")]) == 1
        assert capsys.readouterr().out.startswith("rejected: ")
    for forged in (hidden + data, commented, described):  # which Python itself reads
        with pytest.raises(checker.Rejected, match="the zip has bytes beside its members"):
            checker.check_archive(forged)
    checker.check_archive(data)


def test_another_checker_in_the_dossier_is_named(honest: Members, told: Told) -> None:
    code, lines = told(derived({**honest, "check.py": b"print('4 of 4 decisions proven')"}))
    assert code == 0
    assert lines[-3].endswith("run/log.jsonl, check.py (it is another file than this checker)")


def test_the_checker_knows_the_texts_of_the_pages() -> None:
    """If a text was changed on purpose, put these hashes into TEXTS in proof/check.py."""
    assert {name: checker.hash_of(data) for name, data in templates().items()} == checker.TEXTS


# Members whose change cannot be noticed, as no certificate says what has to be in them.
STATED = {"samples.json", "run/log.jsonl", "check.py", "environment.json", "run/manifest.json", checker.RECORD}


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=pytest.mark.whole)])
def test_random_changes_with_true_hashes_prove_nothing_more(
    honest: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """A flipped bit, a cut or another digit somewhere; manifest.json has the hashes of the changed members."""
    random, names = np.random.default_rng(count), sorted(honest)
    members = {"manifest.json": json.loads(honest["manifest.json"])["certificates"]}
    accepted = 0
    for _ in range(count):
        name = names[random.integers(len(names))]
        data = bytearray(honest[name])
        if not data:
            continue
        at = int(random.integers(len(data)))
        kind = random.integers(3)
        if kind == 0:
            data[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del data[at : at + int(random.integers(1, 9))]
        else:
            digits = [place for place, byte in enumerate(data) if 48 <= byte < 58]
            data[digits[int(random.integers(len(digits)))]] = 48 + int(random.integers(10))
        changed = {**honest, name: bytes(data)}
        if changed[name] == honest[name]:
            continue
        if name != "manifest.json":
            changed["manifest.json"] = dumped(listed(changed, members["manifest.json"]))
        code = checker.main([str(write(tmp_path / "changed.zip", changed))])
        last = capsys.readouterr().out.splitlines()[-1]
        if last.startswith("rejected: "):
            assert code == 1
            continue
        if name == "manifest.json":  # a blank less says the same
            assert json.loads(changed[name]) == json.loads(honest[name])
            continue
        accepted += 1
        assert name in STATED, name
        assert last.startswith("2 of 4 decisions proven, 2 not proven; model SHA-256 ")
    assert accepted < count / 2
