"""Dossiers with changes, whose lists of hashes are made to fit again: what is still accepted has to be true.

An accepted dossier is read here a second time. Every certificate has to be true (see forgeries.py). The verdict and the
tables have to count the certificates that prove their decisions. A page may differ only where the maker's statements or
the certificates do. The checker has to name every other member that differs as not checked.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import proofmap as pm
from fuzz.checker import wire
from fuzz.checker.forgeries import CHANGES as CERTIFICATE_CHANGES
from fuzz.checker.forgeries import LEAVES, Bundle, change_array, into, lie, paths, sealed, zipped
from fuzz.checker.trial import Finding, Trial
from fuzz.hunting.draw import Draw
from proofmap.dossier import dossier
from proofmap.proof import check as checker
from proofmap.runs import Job, run
from proofmap.sources import Model, Preparation
from tests.proof.making import npy
from tests.runs.setting import Digits

Members = dict[str, bytes]
_VERDICT = re.compile(
    r"(\d+) of (\d+) (?:decisions|statements about outputs) proven, (\d+) not proven; model SHA-256 ([0-9a-f]{64})"
)
_OBJECTIVES = ("margin", "margin", pm.objectives.Output(1, "both"), pm.objectives.Label(2))  # half are about decisions
_STATED = ("samples.json", "environment.json", "manifest.json")


class Tiny(Digits):
    """Three inputs of six numbers."""

    def __post_init__(self) -> None:
        whole = np.random.default_rng(5).integers(0, 9, (self.count, 1, 2, 3))
        self.images = torch.tensor(whole / 8, dtype=torch.float32)
        self.labels = [0, 1, 2][: self.count]


@cache
def base(objective: Any = "margin") -> Members:
    """An honest dossier: a decision that is proven, others that are not; or one about an output or a label."""
    random = np.random.default_rng(8)
    layers = [torch.nn.Flatten(), torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)]
    network = torch.nn.Sequential(*layers).eval()
    for parameter in network.parameters():
        parameter.data = torch.tensor(random.normal(size=tuple(parameter.shape)), dtype=torch.float32)
    model = Model("tiny", pm.trace(network, torch.zeros(1, 1, 2, 3)), Preparation(shape=(1, 2, 3)))
    job = Job(ball=pm.Ball(0.06, domain=(0.0, 1.0)), groups=None, chunk=4, settings={"objective": objective})
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        run(Tiny(3), model, job, here / "run", certified=True, progress=False)
        dossier(here / "run", here / "d.zip", by="Ada", date=date(2026, 3, 1), progress=False)
        with zipfile.ZipFile(here / "d.zip") as file:
            return {name: file.read(name) for name in file.namelist()}


# --- changes ---


def _json(draw: Draw, members: Members, name: str) -> None:
    content = json.loads(members[name])
    every = paths(content)
    path = draw.pick(every)
    part, kind = into(content, path[:-1]), draw.whole(0, 4)
    if kind < 2:
        old = part[path[-1]]
        near = [not old] if isinstance(old, bool) else [old + 1, old - 1, -old] if isinstance(old, (int, float)) else []
        part[path[-1]] = draw.pick([*near, *near, *LEAVES])
    elif kind == 2:
        part[path[-1]] = into(content, draw.pick(every))
    elif kind == 3:
        del part[path[-1]]
    elif isinstance(part, list):
        part.insert(draw.whole(0, len(part)), draw.pick(part))
    else:
        part["more"] = draw.pick(LEAVES)
    members[name] = (json.dumps(content, indent=1, ensure_ascii=draw.chance(0.5)) + "\n").encode()


def table(draw: Draw, members: Members) -> None:
    """A cell of claims.csv, a row more or less."""
    rows = list(csv.reader(io.StringIO(members["claims.csv"].decode())))
    row, column, kind = draw.whole(1, len(rows) - 1), draw.whole(0, len(rows[0]) - 1), draw.whole(0, 3)
    if kind < 2:
        rows[row][column] = draw.pick(["yes", "no", "-9", "0", "", "1", rows[draw.whole(0, len(rows) - 1)][column]])
    elif kind == 2:
        del rows[row]
    else:
        rows.append(rows[row])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    members["claims.csv"] = out.getvalue().encode()


def any_json(draw: Draw, members: Members) -> None:
    _json(draw, members, draw.pick([name for name in members if name.endswith(".json")]))


def stated(draw: Draw, members: Members) -> None:
    _json(
        draw, members, draw.pick(["samples.json", "manifest.json", "environment.json", "run/certificates/index.json"])
    )


def text(draw: Draw, members: Members) -> None:
    """Words or figures of a page, or of a template and the page that it makes."""
    names = [name for name in members if name.endswith((".html", ".md", ".txt", ".json", ".csv"))]
    name = draw.pick(names)
    swaps = [
        ("Undecided", "Proven"),
        ("NOT proven", "proven"),
        ("not proven", "proven"),
        ("no", "yes"),
        ("false", "true"),
    ]
    swaps += [("1 of", "3 of"), ("2 of", "3 of"), ("-0.", "-9."), ("0.06", "0.6"), ("samples", "samples, all of them,")]
    old, new = draw.pick([pair for pair in swaps if pair[0].encode() in members[name]])
    some = [name, f"templates/{name}"] if f"templates/{name}" in members and draw.chance(0.5) else [name]
    for one in some:
        members[one] = members[one].replace(old.encode(), new.encode(), draw.pick([1, -1]))


def raw(draw: Draw, members: Members) -> None:
    name = draw.pick(sorted(members))
    data = bytearray(members[name])
    at = draw.whole(0, len(data) - 1)
    data[at] ^= 1 << draw.whole(0, 7)
    members[name] = draw.pick([bytes(data), members[name] + b" ", members[name][:-1], b""])


def swapped(draw: Draw, members: Members) -> None:
    """Two members of one kind change places, or one takes the place of another."""
    kind = draw.pick(["certificates/", "inputs/", ""])
    names = [name for name in members if name.startswith(kind)]
    one, two = draw.pick(names), draw.pick(names)
    kept = members[one]
    members[one] = members[two]
    if draw.chance(0.5):
        members[two] = kept


def missing(draw: Draw, members: Members) -> None:
    del members[draw.pick(sorted(members))]


def added(draw: Draw, members: Members) -> None:
    name = draw.pick(
        ["more.txt", "certificates/000003.proof", "report2.html", "run/more", "templates/more", "inputs/a.npy"]
    )
    members[name] = members[draw.pick(sorted(members))]


def renamed(draw: Draw, members: Members) -> None:
    old = draw.pick(sorted(members))
    members[draw.pick(["odd", old.upper(), "run/" + old, "./" + old])] = members.pop(old)


def fewer_samples(draw: Draw, members: Members) -> None:
    """A sample that is not listed any more, or a certificate that is listed for all."""
    for name, key in (("samples.json", "samples"), ("manifest.json", "certificates")):
        if draw.chance(0.8):
            content = json.loads(members[name])
            rows = content[key]
            content[key] = draw.pick([rows[1:], rows[:-1], [rows[0]] * len(rows), rows[::-1], []])
            members[name] = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def certificate(draw: Draw, members: Members) -> None:
    """A certificate, its model or its input, sealed with its own hashes again."""
    row = draw.whole(0, 2)
    proof, given = f"certificates/{row:06d}.proof", f"inputs/{row:06d}.npy"
    with zipfile.ZipFile(io.BytesIO(members[proof])) as file:
        parts = [(name, file.read(name)) for name in file.namelist()]
    one = Bundle(parts, members["model/network.onnx"], members[given])
    name = draw.pick(sorted({*CERTIFICATE_CHANGES} - {"other_files"}))
    one = CERTIFICATE_CHANGES[name](draw, one)
    one = one if one.packed or draw.chance(0.2) else sealed(one)
    members[proof], members["model/network.onnx"], members[given] = one.proof(), one.model, one.x


def tightened(draw: Draw, members: Members) -> None:
    """A certificate says more, and the tables say so too."""
    row = draw.whole(0, 2)
    proof = f"certificates/{row:06d}.proof"
    with zipfile.ZipFile(io.BytesIO(members[proof])) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    old = checker.read_array(parts["upper.npy"])
    new = old - draw.pick([1e-9, 1e-3, 1.0, 10.0])
    parts["upper.npy"] = npy(new)
    members[proof] = zipped(list(parts.items()))
    for name in ("claims.csv", "claims.json", "report.html", "evidence.json"):
        for before, after in zip(old.tolist(), new.tolist(), strict=True):
            members[name] = members[name].replace(repr(before).encode(), repr(after).encode())


def model(draw: Draw, members: Members) -> None:
    members["model/network.onnx"] = wire.changed(draw, members["model/network.onnx"])[0]


def array(draw: Draw, members: Members) -> None:
    name = draw.pick([name for name in members if name.endswith(".npy")])
    members[name] = npy(change_array(draw, checker.read_array(members[name])))


CHANGES: dict[str, Callable[[Draw, Members], None]] = {
    change.__name__: change
    for change in (
        *(table, any_json, stated, text, raw, swapped, missing, added, renamed, fewer_samples, certificate, tightened),
        *(model, array),
    )
}


def objective_of(seed: int) -> Any:
    """What the dossier of a seed is about."""
    return _OBJECTIVES[seed % len(_OBJECTIVES)]


def forged(seed: int) -> tuple[Members, tuple[str, ...]]:
    """The base with one to three changes, mostly with its list of hashes in order."""
    draw = Draw("dossier", seed)
    members, names = dict(base(objective_of(seed))), list[str]()
    count = draw.pick([1, 1, 2, 3])
    while len(names) < count:
        name = draw.pick(sorted(CHANGES))
        before = dict(members)
        try:
            CHANGES[name](draw, members)
        except Exception:  # the change does not fit what earlier ones left
            members = before
            if names:
                break
            continue
        names.append(name)
    if draw.chance(0.9):
        _reseal(members)
    return members, tuple(names)


def _reseal(members: Members) -> None:
    try:
        manifest = json.loads(members["manifest.json"])
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != "manifest.json"}
        manifest["files"] = hashes
        members["manifest.json"] = (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()
        environment = json.loads(members["environment.json"])
        if environment["model"]["sha256"] != hashes["model/network.onnx"]:
            environment["model"]["sha256"] = hashes["model/network.onnx"]
            members["environment.json"] = (json.dumps(environment, indent=1) + "\n").encode()
            hashes["environment.json"] = hashlib.sha256(members["environment.json"]).hexdigest()
            members["manifest.json"] = (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()
    except Exception:  # what it would be sealed with is damaged or not there
        return


# --- the truth ---


def judged(seed: int) -> Trial:
    """Whether an accepted dossier is true."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        members, names = forged(seed)
        path, said = Path(folder) / "d.zip", io.StringIO()
        path.write_bytes(zipped(list(members.items())))
        try:
            with redirect_stdout(said):
                verdict, proven = checker.check_dossier(path)
            why = false_statement(members, base(objective_of(seed)), verdict, proven, said.getvalue())
        except checker.Rejected as error:
            return Trial({"dossiers": 1, "rejected": 1}, str(error))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why:
            finding = Finding(seed, "false", why, names, {"dossier.zip": path.read_bytes()})
            return Trial({"dossiers": 1, "wrong": 1}, "", finding)
    return Trial({"dossiers": 1, "accepted": 1}, f"accepted: {', '.join(names)}")


def false_statement(members: Members, honest: Members, verdict: str, proven: int, said: str) -> str:
    """The first statement of an accepted dossier that is false, or nothing."""
    listed = json.loads(members["manifest.json"])["certificates"]
    samples = json.loads(members["samples.json"])["samples"]
    decided = 0
    for one in listed:
        with zipfile.ZipFile(io.BytesIO(members[one["certificate"]])) as file:
            parts = [(name, file.read(name)) for name in file.namelist()]
        bundle = Bundle(parts, members[one["model"]], members[one["input"]])
        why = lie(bundle)
        if why:
            return f"{one['certificate']}: {why}"
        claim = json.loads(bundle.member("claim.json"))
        upper = np.load(io.BytesIO(bundle.member(claim["claims"]["upper"])))
        stated_kind = claim["statement"]["kind"] if claim["version"] == 5 else "decision"
        if stated_kind == "decision":
            decided += bool(upper[0] < 0) and len(claim["rivals"]) == 2
        else:
            decided += bool(upper[0] < (0 if stated_kind == "label" else np.inf)) and claim["ball"]["half"] is None
    if len({one["certificate"] for one in listed}) != len(listed):
        return "a certificate is listed twice"
    found = _VERDICT.fullmatch(verdict)
    sealed_as = hashlib.sha256(members["model/network.onnx"]).hexdigest()
    stated_counts = (str(decided), str(len(samples)), str(len(samples) - decided), sealed_as)
    if found is None or found.groups() != stated_counts or proven != decided:
        return f"the verdict is {verdict!r}, the certificates say {stated_counts}"
    rows = list(csv.DictReader(io.StringIO(members["claims.csv"].decode())))
    columns = ("decision_proven", "statement_proven")
    in_tables = sum(row.get(name) == "yes" for row in rows for name in columns)
    also = sum(bool(row.get(name)) for row in json.loads(members["claims.json"]) for name in columns)
    if (in_tables, also, len(rows)) != (decided, decided, len(samples)):
        return f"the tables have {len(rows)} rows, {in_tables} and {also} decisions proven: there are {decided}"
    return _unnamed(members, honest, said)


def _unnamed(members: Members, honest: Members, said: str) -> str:
    """A member that is new or differs, although nothing that it follows from does, and that no line names."""
    changed = [name for name in members if members[name] != honest.get(name)]
    sources = [
        name for name in changed if name.startswith(("certificates/", "inputs/", "model/")) or name in _STATED[:2]
    ]
    named = [line for line in said.splitlines() if line.startswith(("not checked", "stated by the maker"))]
    for name in changed:
        follows = bool(sources) and name in honest and not name.startswith(("run/", "templates/", "check.py"))
        said_so = any(re.search(rf"(^| ){re.escape(name)}( |,|$)", line) for line in named)
        if name not in (*_STATED, *sources) and not follows and not said_so:
            return f"{name} differs, and nothing says that it is not checked"
    return ""
