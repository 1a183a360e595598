"""Claims of runs: every sample's bounds as properties, written once, and only about the explained inputs."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.claims import run_claims
from proofmap.claims.claim import Which, claims_of, vnnlib_text
from proofmap.claims.run_claims import RunClaims, stored_inputs, verified_inputs
from proofmap.errors import FileError, InputError
from proofmap.explainers import File, Source
from proofmap.runs import Job, Results, run
from proofmap.sources import Model, Preparation, read_specification
from proofmap.storage.resumable_folder import write_piece_once

BALL = pm.Ball(0.05, domain=(0.0, 1.0))
MASK = torch.tensor([0, 0, 1, 2])
ROWS = 5
BAD = 3


@dataclass
class Drawn:
    """Five samples in a file, one of them unreadable."""

    sha256: str = "0" * 64
    labels: None = None
    columns: None = None

    def __post_init__(self) -> None:
        self.values = torch.rand(ROWS, 4, generator=torch.manual_seed(2))
        self.names = [f"folder/drawn.npz#{k}" for k in range(ROWS)]

    def __len__(self) -> int:
        return ROWS

    def read(self, index: int) -> Tensor:
        if index == BAD:
            raise FileError("cannot read it")
        return self.values[index]

    def source(self, index: int) -> Source:
        return Source(self.names[index], (File("drawn.npz", self.sha256),))


def model() -> Model:
    torch.manual_seed(3)
    return Model("net.py:make", nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), Preparation(shape=(4,)))


def explained(folder: Path, certified: bool = False, method: str = "eva", ball: pm.Ball = BALL) -> Results:
    job = Job(method, ball, MASK, chunk=2)
    run(Drawn(), model(), job, folder, progress=False, certified=certified)
    return Results.open(folder)


def written(results: Results, out: Path, which: Which = "all", samples: Drawn | None = None) -> int:
    inputs = verified_inputs(results, samples or Drawn())
    names = [f"drawn-{k}" for k in range(ROWS)]
    return RunClaims(results, model(), inputs, names, which).write(out, progress=False)


def times(folder: Path) -> dict[str, int]:
    """Return the time at which each property and network was written."""
    return {path.name: path.stat().st_mtime_ns for part in ("onnx", "vnnlib") for path in (folder / part).iterdir()}


def test_every_sample_claims_what_its_explanation_does(tmp_path: Path) -> None:
    """The boxes and forms are those of single explanations, with the thresholds of the run."""
    results = explained(tmp_path / "run")
    assert written(results, tmp_path / "out") == 4 * (1 + 3)
    with (tmp_path / "out" / "instances.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 4 * (1 + 3)
    for k in (0, 1, 2, 4):
        x = Drawn().values[k : k + 1]
        e = pm.EVA(model().network, BALL, groups=MASK).explain(x)
        for _, claim in claims_of(e, f"{k:06d}-drawn-{k}", 3, "all"):
            group = None if claim.name.endswith(f"drawn-{k}") else int(claim.name.rpartition("u")[2])
            value = float(results["full"][k] if group is None else results["frozen"][k, group])
            assert value == pytest.approx(claim.value, abs=1e-5)
            net, question, _ = rows[[place for _, place, _ in rows].index(f"vnnlib/{claim.name}.vnnlib")]
            assert net == f"onnx/net-{int(results['target'][k])}.onnx"
            text = (tmp_path / "out" / question).read_text(encoding="utf-8")
            expected = vnnlib_text(replace(claim, value=value), net, [])
            assert [line for line in text.splitlines() if line.startswith("(")] == [
                line for line in expected.splitlines() if line.startswith("(")
            ]
    assert not any(f"{BAD:06d}" in question for _, question, _ in rows)
    assert {net for net, _, _ in rows} == {f"onnx/net-{c}.onnx" for c in {*results["target"].tolist()} - {-1}}


def test_a_radius_of_its_own_is_that_of_the_box(tmp_path: Path) -> None:
    """With a proven radius for each sample."""
    results = explained(tmp_path / "run", ball=replace(BALL, eps="auto", domain=None))
    written(results, tmp_path / "out", "none")
    (question,) = (tmp_path / "out" / "vnnlib").glob("000002-*")
    (region,) = read_specification(question, Preparation(shape=(4,)))
    radius = (region.upper.double() - region.lower.double()).flatten() / 2
    assert radius.tolist() == pytest.approx([float(results["eps"][2])] * 4, rel=1e-6)


def test_it_goes_on_where_it_was_killed_and_repairs_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, out = explained(tmp_path / "run"), tmp_path / "out"
    count = [0]

    def killed(folder: Path, name: str, piece: bytes) -> None:
        count[0] += 1
        if count[0] == 7:
            raise KeyboardInterrupt
        write_piece_once(folder, name, piece)

    monkeypatch.setattr(run_claims, "write_piece_once", killed)
    with pytest.raises(KeyboardInterrupt):
        written(results, out)
    assert not (out / "instances.csv").exists()
    monkeypatch.undo()
    first = times(out)
    changed = next((out / "vnnlib").iterdir())
    content = changed.read_bytes()
    changed.write_bytes(content[:-9])
    assert written(results, out) == 16
    assert changed.read_bytes() == content
    after = times(out)
    assert [name for name in first if first[name] != after[name]] == [changed.name]
    assert len(after) == 16 + len({*results["target"].tolist()} - {-1})


def test_another_run_is_not_written_over_it(tmp_path: Path) -> None:
    written(explained(tmp_path / "run"), tmp_path / "out")
    other = explained(tmp_path / "other", ball=replace(BALL, eps=0.06))
    with pytest.raises(FileError, match=r"holds claims of another run \(run.job.ball.eps was 0.05 and is 0.06\)"):
        written(other, tmp_path / "out")
    with pytest.raises(FileError, match="groups was 'all' and is 'none'"):
        written(Results.open(tmp_path / "run"), tmp_path / "out", "none")


def test_a_run_with_certificates_has_its_inputs(tmp_path: Path) -> None:
    results = explained(tmp_path / "run", certified=True)
    inputs = stored_inputs(results)
    assert inputs is not None
    assert torch.equal(inputs(2), Drawn().values[2])
    names = [f"drawn-{k}" for k in range(ROWS)]
    assert RunClaims(results, model(), inputs, names, "none").write(tmp_path / "out", progress=False) == 4
    assert stored_inputs(explained(tmp_path / "bare")) is None
    changed = tmp_path / "run" / "certificates" / "000002.npy"
    np.save(changed, np.load(changed) + np.float32(1e-5))
    with pytest.raises(InputError, match=r"drawn.npz#2 have SHA-256 "):
        RunClaims(results, model(), inputs, names, "none").write(tmp_path / "other", progress=False)


def test_other_data_is_refused(tmp_path: Path) -> None:
    results = explained(tmp_path / "run")
    with pytest.raises(InputError, match=r"drawn.npz#0 has SHA-256 111111111111…, and the run explains one with 0000"):
        written(results, tmp_path / "out", samples=Drawn("1" * 64))
    moved = Drawn()
    moved.names[2] = "else.npz#2"
    with pytest.raises(InputError, match=r"explains 'folder/drawn.npz#2', and the given inputs have 'else.npz#2'"):
        written(results, tmp_path / "out", samples=moved)
    slightly = Drawn()
    slightly.values = slightly.values.clone()
    slightly.values[1, 2] += 1e-5  # less than the overlap shows
    with pytest.raises(InputError, match=r"values of folder/drawn.npz#1 have SHA-256 [0-9a-f]{64}, and "):
        written(results, tmp_path / "slightly", samples=slightly)
    scaled = Drawn()
    scaled.values = scaled.values * 0.5
    with pytest.raises(InputError, match=r"drawn.npz#0 have SHA-256 .*: give the data and the options that"):
        written(results, tmp_path / "out", samples=scaled)


def test_what_claims_nothing_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    sampled = explained(tmp_path / "sampled", method="empirical")
    with pytest.raises(InputError, match="is sampled, expected a run of certified explanations"):
        written(sampled, tmp_path / "out")
    with pytest.raises(InputError, match="got a ball of norm 2, expected norm inf"):
        written(explained(tmp_path / "round", ball=pm.Ball(0.05, norm=2)), tmp_path / "out")
    results = explained(tmp_path / "run")
    other = Model("net.py:make", nn.Linear(4, 3), Preparation(shape=(4,)))
    claims = RunClaims(results, other, verified_inputs(results, Drawn()), ["x"] * ROWS, "all")
    with pytest.raises(InputError, match="give the model that was explained"):
        claims.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert np.isnan(results["full"][BAD])
