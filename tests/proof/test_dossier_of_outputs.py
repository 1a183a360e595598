"""Dossiers about outputs and labels: every page follows from the certificates, and a forgery is refused and named."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from proofmap.dossier.page_texts import templates
from proofmap.proof import check as checker
from tests.proof.dossiers import (
    MODEL,
    POINTS,
    SETTING,
    Members,
    derived,
    dumped,
    sealed,
    small_dossier_of_outputs,
)
from tests.proof.making import members_of, mlp_file, npy, sufficient_members, write


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return small_dossier_of_outputs(tmp_path_factory.mktemp("made"))


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Members], tuple[int, list[str]]]:
    """The exit status and the lines of a check."""

    def run(members: Members) -> tuple[int, list[str]]:
        return checker.main([str(write(tmp_path / "dossier.zip", members))]), capsys.readouterr().out.splitlines()

    return run


def certificate(members: Members, row: int) -> Members:
    """The members of a certificate."""
    with ZipFile(BytesIO(members[f"certificates/{row}.proof"])) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(members: Members) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def changed(row: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[Members], Members]:
    """A forgery: the claim of a certificate is another one, and everything follows."""

    def forge(members: Members) -> Members:
        inner = certificate(members, row)
        claim = json.loads(inner["claim.json"])
        change(claim["statement"])
        inner["claim.json"] = json.dumps(claim).encode()
        return derived({**members, f"certificates/{row}.proof": zipped(inner)})

    return forge


def replaced(name: str, old: str, new: str) -> Callable[[Members], Members]:
    def forge(members: Members) -> Members:
        assert old.encode() in members[name]
        return sealed({**members, name: members[name].replace(old.encode(), new.encode())})

    return forge


def _tighter(members: Members) -> Members:
    inner = certificate(members, 0)
    inner["upper.npy"] = npy(checker.read_array(inner["upper.npy"]) / 2)
    return derived({**members, "certificates/0.proof": zipped(inner)})


def _of_decisions(members: Members) -> Members:
    """The pages of a dossier about decisions: no limit is printed there as what it is."""
    return derived({**members, **templates("decisions")})


def _labelled(members: Members) -> Members:
    samples = json.loads(members["samples.json"])
    samples["samples"][0].update(label=1, predicted=1)
    return derived({**members, "samples.json": dumped(samples)})


FORGERIES: dict[str, tuple[Callable[[Members], Members], str]] = {
    "a narrower limit in the table": (
        replaced("claims.csv", "output 1 is between ", "output 1 is between 0.0999 and "),
        "claims.csv does not follow from the certificates: line 2 ",
    ),
    "a proven label in claims.json": (
        replaced("claims.json", '"statement_proven": false', '"statement_proven": true'),
        "claims.json does not follow",
    ),
    "the verdict of the page": (replaced("report.html", "2 of 4 statements", "4 of 4 statements"), "report.html does"),
    "a limit on the page": (replaced("report.html", "is between", "is exactly between"), "report.html does not follow"),
    "a text of a page": (replaced("templates/report.html", "A limit holds", "It holds"), "templates/report.html is"),
    "the texts about decisions": (_of_decisions, "certificates/0.proof: it is about outputs, and the texts"),
    "a class of a sample": (_labelled, "certificates/0.proof: samples.json states a class of sample 0, and outputs"),
    "a narrower limit in the certificate": (_tighter, "certificates/0.proof: AO(B) <= "),
    "another centre": (changed(0, lambda s: s.update(centre="0.2")), "certificates/0.proof: AO(B) <= "),
    "another output": (changed(0, lambda s: s.update(entries=[0])), "certificates/0.proof: AO(B) <= "),
    "the other state of a label": (changed(1, lambda s: s.update(on=not s["on"])), "certificates/1.proof: "),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_and_named(
    honest: Members, told: Callable[[Members], tuple[int, list[str]]], name: str
) -> None:
    forge, why = FORGERIES[name]
    code, lines = told(forge(honest))
    assert code == 1
    assert lines[-1].startswith(f"rejected: {why}")


def test_an_honest_dossier_counts_statements_and_states_limits(
    honest: Members, told: Callable[[Members], tuple[int, list[str]]]
) -> None:
    code, lines = told(honest)
    assert code == 0
    assert (
        lines[-1]
        == f"2 of 4 statements about outputs proven, 2 not proven; model SHA-256 {checker.hash_of(honest[MODEL])}"
    )
    assert lines[0].startswith("certificates/0.proof: Proven: output 1 is between ")
    claims = json.loads(honest["claims.json"])
    assert [one["statement_proven"] for one in claims].count(True) == 2
    low, high = claims[0]["statement"].removeprefix("output 1 is between ").split(" and ")
    assert float(low) <= 0.1 - claims[0]["row_at_most"] < 0.1 + claims[0]["row_at_most"] <= float(high)
    page = honest["report.html"].decode()
    assert claims[0]["statement"] in page
    for name in ("report.html", "evidence.html", "evidence.md", "README.txt"):
        text = honest[name].decode()
        assert "$" not in text
        for word in ("Decision proven", "classified otherwise", "another class"):
            assert word not in text


@pytest.mark.parametrize("of_set", [False, True])
def test_certificates_of_another_kind_are_refused(
    honest: Members, told: Callable[[Members], tuple[int, list[str]]], tmp_path: Path, of_set: bool
) -> None:
    model = mlp_file(tmp_path / "net.onnx", (4, 6, 5, 3), 7)
    x, mask = np.array(POINTS[1], np.float32), np.array([0, 1, 1, 2])
    still = checker.Question(x, {**SETTING, "eps": "0"}, None, 0, checker.Decision(0, [1, 2]))
    target = int(checker.Prover(checker.read_network(model, (4,)), still, x[None]).lower[-1].argmax())
    about = {"kind": "decision", "target": target, "rivals": [c for c in range(3) if c != target], "classes": None}
    made = sufficient_members(model, x, mask, about, SETTING) if of_set else members_of(model, x, mask, 0, SETTING)
    code, lines = told(sealed({**honest, "certificates/1.proof": zipped(made)}))
    kind = "sets" if of_set else "decisions"
    assert (code, lines[-1]) == (
        1,
        f"rejected: certificates/1.proof: it is about {kind}, and the texts of this dossier are about outputs",
    )


def test_the_checker_knows_the_texts_of_the_pages() -> None:
    """If a text was changed on purpose, put these hashes into TEXTS_OF_OUTPUTS in proof/check.py."""
    hashes = {name: checker.hash_of(data) for name, data in templates("outputs").items()}
    assert hashes == checker.TEXTS_OF_OUTPUTS
