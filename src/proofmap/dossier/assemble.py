"""Assembly of a dossier: a zip with a run, its certificates and their checker, checked before it is written.

A run with missing or changed files is refused.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from proofmap.dossier.dossier_certificates import RunCertificates
from proofmap.dossier.page_texts import maker_statements, member, templates
from proofmap.errors import FileError, InputError
from proofmap.explainers.statements.explained_inputs import INPUTS
from proofmap.proof import check
from proofmap.runs import Results
from proofmap.runs.manifest import INDEX, MANIFEST, MASK
from proofmap.runs.totals import total
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.storage.hashing import hash_file, versions
from proofmap.storage.records import atomic_path
from proofmap.storage.resumable_folder import path_inside

_RUN_FILES = (MANIFEST, MASK, INDEX, "log.jsonl")  # files of a run beside its chunks
_LIST = "manifest.json"  # the member that lists all members with their hashes
_FORMAT = ("proofmap-dossier", 2)
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can store: the same for all members
_FILE_MODE = 0o100644 << 16  # a plain file that everybody may read
_PIECE_BYTES = 2**20  # files are copied into the zip in pieces of this size

Content: TypeAlias = "bytes | Path"
Check: TypeAlias = Mapping[str, str]  # the members "certificate", "model" and "input" that belong together


@dataclass(frozen=True)
class Summary:
    """The figures of a dossier that the command prints."""

    certified: int  # samples with a certificate
    proven: str  # "95 of 100 samples (95.0 %)"
    ball: str
    kind: str  # the verdict counts these: "decisions" or "statements about outputs"


def dossier(
    folder: Path, out: Path, *, by: str | None = None, date: date | None = None, progress: bool = True
) -> Summary:
    """Write the run in `folder` with its certificates to the zip `out`, or nothing if a check fails.

    The same run, arguments and machine give the same bytes.

    Args:
        by: The name of the maker.
        date: The date of the dossier, by default today.
    """
    results = _finished(folder)
    certificates = RunCertificates.open(results)
    results.check()
    _compare(results, certificates)
    when = datetime.now().astimezone().date() if date is None else date
    claimed, model = certificates.claimed, f"model/{certificates.model.name}"
    claims = {one.row: one.claim for one in claimed}
    said = maker_statements(results, certificates, by, when)
    words, samples = check.read_samples(said)
    members: dict[str, Content] = {
        **{f"run/{name}": folder / name for name in _run_files(results)},
        **{f"run/{name}": content for name, content in total(results).files.items()},  # computed again from the rows
        **{member("certificates", one): one.certificate for one in claimed},
        **{member("inputs", one): one.input for one in claimed},
        model: certificates.model,
        "check.py": checker(),
        "samples.json": said,
        **templates(certificates.kind),
        **check.derive_members(model, words, samples, claims, templates(certificates.kind)),
    }
    few = {name: _content(members[name]) for name in ("run/manifest.json", "check.py", model)}
    members["environment.json"] = _environment(few, [*claims.values()], len(samples), model, folder, out)
    with atomic_path(out) as beside:
        with ProgressBar(len(members), "packing", show=progress, unit="file") as bar:
            _write_zip(beside, members, check.listing(samples, model), bar.advance)
        with ProgressBar(len(claims), "checking", show=progress, unit="certificate") as bar:
            _prove(beside, folder, bar)
    counted = json.loads(_content(members["evidence.json"]))["figures"]
    return Summary(counted["certified"], counted["proven"], counted["ball"], check.COUNTED[certificates.kind])


def checker() -> Path:
    """Return the path of the checker's file."""
    found = find_spec("proofmap.proof.check")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def _finished(folder: Path) -> Results:
    results = Results.open(folder)
    if INPUTS in results.about["model"]:
        names = ", ".join(one["name"] for one in results.about["model"][INPUTS])
        raise InputError(
            f"{folder} is a run of several inputs ({names}), expected a run of one input: check its certificates one "
            "by one"
        )
    if not results.complete:
        raise FileError(
            f"{folder} is a run that is not finished, expected all of its {results.about['data']['samples']} samples: "
            "start it again with the same arguments, and it goes on"
        )
    return results


def _compare(results: Results, certificates: RunCertificates) -> None:
    """Raise FileError if the model or a claim of the certificates differs from the run."""
    stated = results.manifest.model.files
    hashes = {file.sha256 for file in stated}
    if not certificates.exported and certificates.sha256 not in hashes:
        raise _changed(certificates.model, certificates.sha256, f"the run was made with {' and '.join(sorted(hashes))}")
    for file in stated:
        if Path(file.path).is_file() and (now := hash_file(Path(file.path))) != file.sha256:
            raise _changed(file.path, now, f"the run was made with {file.sha256}")
    targets, radii, inputs = results["target"], results["eps"], results.inputs
    for one in certificates.claimed:
        eps, statement = one.claim.stated["eps"], one.claim.statement
        kind = check.kind_of(one.claim)
        if kind not in check.COUNTED or kind != certificates.kind:
            raise FileError(
                f"{one.certificate} is about {kind}, expected {certificates.kind} as the first: run again, "
                "into a new folder"
            )
        about: dict[str, tuple[Any, Any]] = {}
        if isinstance(statement, check.Decision):
            about["target"] = statement.target, targets[one.row]
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


def _run_files(results: Results) -> Iterator[str]:
    """Yield the names of the run's own files."""
    yield from (name for name in _RUN_FILES if path_inside(results.folder, name).is_file())
    yield from (entry.file for entry in results.manifest.chunks.values())


def _content(member: Content) -> bytes:
    return member if isinstance(member, bytes) else member.read_bytes()


def _environment(
    members: dict[str, bytes], claims: list[check.Claim], samples: int, model: str, folder: Path, out: Path
) -> bytes:
    """Return environment.json: the run, model and checker as the checker derives them, and the maker's software."""
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


def _prove(archive: Path, folder: Path, bar: ProgressBar) -> None:
    """Run the checker on the archive in a separate process, as readers do; raise FileError if it refuses."""
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
    if process.returncode not in (0, 1) or " proven, " not in last:  # it is 1 also if no decision is proven
        raise FileError(f"the certificates of {folder} do not hold, and no dossier is written: {last}")


def _write_zip(out: Path, members: Mapping[str, Content], checks: Sequence[Check], advance: Callable[[], None]) -> None:
    """Write a zip whose bytes depend on its members alone: sorted by name, and their list last."""
    hashes = {}
    with ZipFile(out, "x") as file:
        for name in sorted(members):
            hashes[name] = _add_member(file, name, members[name])
            advance()
        listed = {
            "format": _FORMAT[0],
            "version": _FORMAT[1],
            "certificates": [dict(one) for one in checks],
            "files": hashes,
        }
        _add_member(file, _LIST, (json.dumps(listed, indent=1, sort_keys=True) + "\n").encode())


def _add_member(file: ZipFile, name: str, content: Content) -> str:
    """Add one member piece by piece, and return its SHA-256."""
    info = ZipInfo(name, _ZIP_EPOCH)
    info.compress_type, info.external_attr, info.create_system = ZIP_DEFLATED, _FILE_MODE, 3
    seen = sha256()
    if isinstance(content, bytes):
        seen.update(content)
        file.writestr(info, content)
        return seen.hexdigest()
    info.file_size = content.stat().st_size
    with content.open("rb") as source, file.open(info, "w") as target:
        while piece := source.read(_PIECE_BYTES):
            seen.update(piece)
            target.write(piece)
    return seen.hexdigest()
