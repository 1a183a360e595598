"""The dossier put together: refused where a part is missing or changed, re-proven by the checker before it is there."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from proofmap.bar import Bar
from proofmap.digest import hash_file, versions
from proofmap.dossier.archive import Check, Content, pack
from proofmap.dossier.certificates import Certificates, Claimed, values_sha256
from proofmap.dossier.claims import as_csv, as_json, member
from proofmap.dossier.evidence import pages
from proofmap.dossier.facts import Facts
from proofmap.errors import FileError
from proofmap.records import whole
from proofmap.resume import inside
from proofmap.runs import Results
from proofmap.runs.manifest import INDEX, MANIFEST, MASK
from proofmap.show import report
from proofmap.show.records import day

__all__ = ["checker", "dossier"]

_KEPT = (MANIFEST, MASK, INDEX, "totals.json", "means.safetensors", "log.jsonl")  # of a run, beside its chunks


def dossier(
    folder: Path, out: Path, *, by: str | None = None, date: date | None = None, progress: bool = True
) -> Facts:
    """Write the run in `folder` with its certificates to the zip `out`, whole or not at all, and say what is in it.

    The same run, arguments and machine give the same bytes. by: who makes it. date: of the dossier, by default today.
    """
    results = _finished(folder)
    certificates = Certificates.open(results)
    results.check()
    _compare(results, certificates)
    when = datetime.now().astimezone().date() if date is None else date
    facts = Facts.of(results, certificates)
    checks = [_check(claimed, facts) for claimed in certificates.claimed]
    members: dict[str, Content] = {
        **{f"run/{name}": folder / name for name in _kept(results)},
        **{check["certificate"]: one.certificate for check, one in zip(checks, certificates.claimed, strict=True)},
        **{check["input"]: one.input for check, one in zip(checks, certificates.claimed, strict=True)},
        facts.member: certificates.model,
        "check.py": checker(),
        "claims.csv": as_csv(results, certificates),
        "claims.json": as_json(results, certificates),
        "environment.json": _environment(results, folder, out),
        "report.html": _report(folder, results, by, when),
        **pages(facts, checks[0], _signed(by, when)),
    }
    with whole(out) as beside:
        with Bar(len(members), "packing", show=progress, unit="file") as bar:
            pack(beside, members, checks, bar.advance)
        with Bar(len(checks), "checking", show=progress, unit="certificate") as bar:
            _prove(beside, folder, bar)
    return facts


def checker() -> Path:
    """The file of the checker."""
    found = find_spec("proofmap.proof.check")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def _finished(folder: Path) -> Results:
    results = Results.open(folder)
    if not results.complete:
        raise FileError(
            f"{folder} is a run that is not finished, expected all of its {results.about['data']['samples']} samples: "
            "start it again with the same arguments, and it goes on"
        )
    return results


def _compare(results: Results, certificates: Certificates) -> None:
    """Refuse a model that is not the one of the certificates and of the run, and claims that are not about its rows."""
    stated = results.manifest.model.files
    hashes = {file.sha256 for file in stated}
    if not certificates.exported and certificates.sha256 not in hashes:
        raise _changed(certificates.model, certificates.sha256, f"the run was made with {' and '.join(sorted(hashes))}")
    for file in stated:
        if Path(file.path).is_file() and (now := hash_file(Path(file.path))) != file.sha256:
            raise _changed(file.path, now, f"the run was made with {file.sha256}")
    targets, radii = results["target"], results["eps"]
    for one in certificates.claimed:
        if one.model != certificates.sha256:
            raise _changed(certificates.model, certificates.sha256, f"{one.certificate.name} is about {one.model}")
        about: dict[str, tuple[Any, Any]] = {"input": (one.sha256, values_sha256(one.input))}
        about |= {"target": (one.target, targets[one.row]), "eps": (one.eps, radii[one.row])}
        for name, (claimed, found) in about.items():
            if claimed != found:
                raise FileError(
                    f"{one.certificate} is about the {name} {claimed}, and row {one.row} of the run has {found}: run "
                    "again, into a new folder"
                )


def _changed(model: object, now: str, then: str) -> FileError:
    return FileError(f"the model {model} has changed: its SHA-256 is {now}, and {then}; put it back, or run again")


def _check(claimed: Claimed, facts: Facts) -> Check:
    names = {"certificate": member("certificates", claimed), "input": member("inputs", claimed)}
    return {**names, "model": facts.member}


def _kept(results: Results) -> Iterator[str]:
    """The files of the run itself."""
    yield from (name for name in _KEPT if inside(results.folder, name).is_file())
    yield from (entry.file for entry in results.manifest.chunks.values())


def _environment(results: Results, folder: Path, out: Path) -> bytes:
    """With what the run was made, and the dossier; the hashes of all files are in the manifest."""
    made: dict[str, Any] = {
        "run": {"model": results.manifest.model.json(), **{k: results.about[k] for k in ("job", "data", "versions")}},
        "dossier": {
            "command": ["proofmap", "dossier", str(folder), "--out", str(out)],
            "versions": {**versions(), "numpy": np.__version__},
            "platform": platform.platform(),
            "machine": platform.machine(),
        },
        "checker": {"sha256": hash_file(checker())},
    }
    return (json.dumps(made, indent=1) + "\n").encode()


def _report(folder: Path, results: Results, by: str | None, when: date) -> bytes:
    with TemporaryDirectory() as place:
        page = Path(place) / "report.html"
        report(page, [], runs=[(folder.resolve().name, results)], by=by, date=when)
        return page.read_bytes()


def _signed(by: str | None, when: date) -> str:
    return f"{'Made' if by is None else f'Made by {by}'} on {day(when)}"


def _prove(archive: Path, folder: Path, bar: Bar) -> None:
    """Run the checker on the archive as its reader will, in a process of its own; raise FileError where it refuses."""
    command = [sys.executable, "-I", str(checker()), str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            last = line.strip() or last
            if "certificates/" in line:
                bar.advance()
    if process.returncode:
        raise FileError(f"the certificates of {folder} do not hold, and no dossier is written: {last}")
