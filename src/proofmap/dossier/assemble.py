"""The dossier put together: refused where a part is missing or changed, re-proven by the checker before it is there."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from proofmap.dossier.archive import Content, pack
from proofmap.dossier.dossier_certificates import Certificates
from proofmap.dossier.evidence import templates
from proofmap.dossier.maker_statements import member, stated
from proofmap.errors import FileError
from proofmap.proof import check
from proofmap.runs import Results
from proofmap.runs.manifest import INDEX, MANIFEST, MASK
from proofmap.runs.totals import total
from proofmap.runtime.progress_bar import Bar
from proofmap.storage.hashing import hash_file, versions
from proofmap.storage.records import whole
from proofmap.storage.resumable_folder import inside

__all__ = ["Summary", "checker", "dossier"]

_KEPT = (MANIFEST, MASK, INDEX, "log.jsonl")  # of a run, beside its chunks


@dataclass(frozen=True)
class Summary:
    """What a dossier claims, in a few words."""

    certified: int  # samples with a certificate
    proven: str  # decisions: "95 of 100 samples (95.0 %)"
    ball: str


def dossier(
    folder: Path, out: Path, *, by: str | None = None, date: date | None = None, progress: bool = True
) -> Summary:
    """Write the run in `folder` with its certificates to the zip `out`, whole or not at all, and say what is in it.

    The same run, arguments and machine give the same bytes. by: who makes it. date: of the dossier, by default today.
    """
    results = _finished(folder)
    certificates = Certificates.open(results)
    results.check()
    _compare(results, certificates)
    when = datetime.now().astimezone().date() if date is None else date
    claimed, model = certificates.claimed, f"model/{certificates.model.name}"
    claims = {one.row: one.claim for one in claimed}
    said = stated(results, certificates, by, when)
    words, samples = check.read_samples(said)
    members: dict[str, Content] = {
        **{f"run/{name}": folder / name for name in _kept(results)},
        **{f"run/{name}": content for name, content in total(results).files.items()},  # summed up anew from the rows
        **{member("certificates", one): one.certificate for one in claimed},
        **{member("inputs", one): one.input for one in claimed},
        model: certificates.model,
        "check.py": checker(),
        "samples.json": said,
        **templates(),
        **check.derive_members(model, words, samples, claims, templates()),
    }
    few = {name: _content(members[name]) for name in ("run/manifest.json", "check.py", model)}
    members["environment.json"] = _environment(few, [*claims.values()], len(samples), model, folder, out)
    with whole(out) as beside:
        with Bar(len(members), "packing", show=progress, unit="file") as bar:
            pack(beside, members, check.listing(samples, model), bar.advance)
        with Bar(len(claims), "checking", show=progress, unit="certificate") as bar:
            _prove(beside, folder, bar)
    counted = json.loads(_content(members["evidence.json"]))["figures"]
    return Summary(counted["certified"], counted["proven"], counted["ball"])


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
    targets, radii, inputs = results["target"], results["eps"], results.inputs
    for one in certificates.claimed:
        eps = one.claim.stated["eps"]
        about: dict[str, tuple[Any, Any]] = {"target": (one.claim.target, targets[one.row])}
        about |= {"eps": (check.radius(eps), radii[one.row])} if isinstance(eps, str) else {}
        about |= {} if inputs[one.row] is None else {"input": (one.claim.input, inputs[one.row])}
        for name, (claimed, found) in about.items():
            if claimed != found:
                raise FileError(
                    f"{one.certificate} is about the {name} {claimed}, and row {one.row} of the run has {found}: run "
                    "again, into a new folder"
                )


def _changed(model: object, now: str, then: str) -> FileError:
    return FileError(f"the model {model} has changed: its SHA-256 is {now}, and {then}; put it back, or run again")


def _kept(results: Results) -> Iterator[str]:
    """The files of the run itself."""
    yield from (name for name in _KEPT if inside(results.folder, name).is_file())
    yield from (entry.file for entry in results.manifest.chunks.values())


def _content(member: Content) -> bytes:
    return member if isinstance(member, bytes) else member.read_bytes()


def _environment(
    members: dict[str, bytes], claims: list[check.Claim], samples: int, model: str, folder: Path, out: Path
) -> bytes:
    """The run, the model and the checker, as the checker derives them; and where the dossier was made."""
    made: dict[str, Any] = {
        **check.environment(members, claims, samples, model),
        "dossier": {
            "command": ["proofmap", "dossier", str(folder), "--out", str(out)],
            "versions": {**versions(), "numpy": np.__version__},
            "platform": platform.platform(),
            "machine": platform.machine(),
        },
    }
    return (json.dumps(made, indent=1) + "\n").encode()


def _prove(archive: Path, folder: Path, bar: Bar) -> None:
    """Run the checker on the archive as its reader will, in a process of its own; raise FileError where it refuses."""
    command = [sys.executable, "-I", "-X", "utf8", str(checker()), str(archive)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            last = line.strip() or last
            if line.startswith("certificates/"):
                bar.advance()
    if process.returncode not in (0, 1) or " decisions proven, " not in last:  # 1 too where no decision is proven
        raise FileError(f"the certificates of {folder} do not hold, and no dossier is written: {last}")
