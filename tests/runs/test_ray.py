"""A run on a real Ray cluster of two workers, one of which is killed in the middle of a chunk."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from torch import Tensor

from proofmap.errors import InputError, ModelError, ProofmapError
from proofmap.runs import Ray, run
from proofmap.runs.manifest import Manifest
from proofmap.runs.worker import ChunkTask, ExplainedChunk, Worker
from proofmap.sources import open_samples, read_model
from tests.runs.setting import EPS, Digits, contents, digits_model, job

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.slow  # a cluster starts and ends

PATIENCE = 60  # seconds; longer waits mean that something is broken


# Ray gives its workers the lowest priority but four. Beside busy tests, a worker then takes a minute to import torch.
# No workers are started in advance, so that only used workers exist.
SETTINGS = {"RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster with room for two workers; offline, without a dashboard."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in this process."""
    out = tmp_path_factory.mktemp("run") / "local"
    run(Digits(bad={5: None}), digits_model(), job(), out, progress=False)
    return out


def workers(out: Path) -> dict[int, int]:
    """Return the process that computed each chunk."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return {line["number"]: int(line["worker"].rpartition(":")[2]) for line in lines if line["event"] == "chunk"}


@dataclass
class Killing(Digits):
    """A data set that kills the worker of chunk 1 when its last sample is read."""

    stage: Path = Path()
    killed: list[int] = field(default_factory=list)

    def read(self, index: int) -> Tensor:
        if index == self.count - 1 and not self.killed:
            started = time.monotonic()
            while not list(self.stage.glob("at-*")):
                assert time.monotonic() - started < PATIENCE
                time.sleep(0.02)
            (victim,) = self.stage.glob("at-*")
            self.killed.append(int(victim.name.removeprefix("at-")))
            assert psutil.Process(self.killed[0]).name().startswith("ray::")
            os.kill(self.killed[0], signal.SIGKILL)
            (self.stage / "killed").touch()
        return super().read(index)


def test_a_killed_worker_does_not_change_the_bytes(
    cluster: str, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers start together. One waits in chunk 1 until it is killed; the other computes the rest meanwhile."""
    stage = tmp_path / "stage"
    stage.mkdir()

    class Waiting(Worker):  # classes inside a function are sent to the workers by value
        def explain(self, work: ChunkTask) -> ExplainedChunk:
            (stage / f"here-{os.getpid()}").touch()
            while len(list(stage.glob("here-*"))) < 2:
                time.sleep(0.02)
            if work.number == 1 and not (stage / "killed").exists():
                (stage / f"at-{os.getpid()}").touch()
                time.sleep(PATIENCE)
            return super().explain(work)

    monkeypatch.setattr("proofmap.runs.cluster.Worker", Waiting)
    samples = Killing(bad={5: None}, stage=stage)
    run(samples, digits_model(), job(), tmp_path / "ray", progress=False, engine=Ray())
    assert len(samples.killed) == 1
    done = workers(tmp_path / "ray")
    assert sorted(done) == [0, 1, 2, 3]
    assert done[1] != samples.killed[0]
    assert len(list(stage.glob("here-*"))) >= 2
    assert contents(tmp_path / "ray") == contents(local)


# another chunk waits after it, or was finished before it
@pytest.mark.parametrize("deadly", [2, pytest.param(3, marks=pytest.mark.whole)])
def test_a_sample_that_kills_every_worker_ends_the_run(
    cluster: str, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadly: int
) -> None:
    class Mortal(Worker):
        def explain(self, work: ChunkTask) -> ExplainedChunk:
            if work.number == deadly:
                os._exit(1)
            return super().explain(work)

    samples = Digits(bad={5: None})
    with monkeypatch.context() as patch:
        patch.setattr("proofmap.runs.cluster.Worker", Mortal)
        patch.setattr("proofmap.runs.cluster._MAX_LOST_WORKERS", 1)
        with pytest.raises(ProofmapError, match=rf"chunk {deadly}, alone at a worker, lost it 2 times .*: what is"):
            run(samples, digits_model(), job(), tmp_path, progress=False, engine=Ray(workers=1))
    assert sorted((tmp_path / "chunks").iterdir())
    samples.asked.clear()
    run(samples, digits_model(), job(), tmp_path, progress=False)
    assert len(set(samples.asked)) < len(samples)
    assert contents(tmp_path) == contents(local)


def test_threads_of_workers_wait_passively(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = tmp_path / "policy"

    class Telling(Worker):
        def explain(self, work: ChunkTask) -> ExplainedChunk:
            stage.write_text(os.environ.get("OMP_WAIT_POLICY", "none"))
            return super().explain(work)

    monkeypatch.setattr("proofmap.runs.cluster.Worker", Telling)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    run(Digits(count=1), digits_model(), job(), tmp_path / "out", progress=False, engine=Ray(workers=1))
    assert stage.read_text() == "PASSIVE"


def test_errors_keep_their_type(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Worker):
        def explain(self, work: ChunkTask) -> ExplainedChunk:
            raise ModelError("this model makes no sense")

    class Stillborn(Worker):
        def __init__(self, setup: Any) -> None:
            raise RuntimeError("no GPU is left here")

    class Older(Worker):
        def ready(self) -> tuple[str, dict[str, str]]:
            return "elsewhere:1", {"proofmap": "0.0.1"}

    monkeypatch.setattr("proofmap.runs.cluster._MAX_LOST_WORKERS", 0)
    for kind, error, message in (
        (Wrong, ModelError, "this model makes no sense"),
        (Stillborn, ProofmapError, "1 workers in a row died while they started: .*no GPU is left here"),
        (Older, ProofmapError, "the worker elsewhere:1 has {'proofmap': '0.0.1'}, expected .*: install the same there"),
    ):
        monkeypatch.setattr("proofmap.runs.cluster.Worker", kind)
        with pytest.raises(error, match=message):
            run(Digits(2), digits_model(), job(), tmp_path, progress=False, engine=Ray(workers=1))


def local_run(folder: Path, count: int, chunk: int) -> list[str]:
    """Run some digits here, into `local`; return the command for the same run by Ray, into `ray`."""
    data, model = folder / "digits.npz", read_model("zoo:mnist_mlp")
    np.savez(data, images=Digits().images[:count].numpy())
    run(open_samples([data], model.preparation), model, job(chunk=chunk), folder / "local", progress=False)
    command = [sys.executable, "-m", "proofmap", "run", str(data), "--model", "zoo:mnist_mlp", "--chunk", str(chunk)]
    return [*command, "--eps", str(EPS), "--groups", "grid:4", "--out", str(folder / "ray"), "--engine", "ray"]


def test_the_command_joins_a_cluster_and_goes_on(cluster: str, tmp_path: Path) -> None:
    """A cluster that completes a partial run gives the same files as one uninterrupted run."""
    command = local_run(tmp_path, 6, 2)
    keep_first_chunk(tmp_path / "local", tmp_path / "ray")
    command += ["--address", cluster, "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(workers(tmp_path / "ray")) == [1, 2]
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_the_command_alone_starts_a_cluster_of_this_machine(tmp_path: Path) -> None:
    command = local_run(tmp_path, 2, 1)
    alone = {**os.environ, **SETTINGS, "RAY_ADDRESS": "local"}  # a cluster that no other test uses
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert os.getpid() not in workers(tmp_path / "ray").values()
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def keep_first_chunk(old: Path, new: Path) -> None:
    """The folder of a run that was killed after its first chunk."""
    (new / "chunks").mkdir(parents=True)
    for name in ("chunks/000000.safetensors", "mask.npy"):
        (new / name).write_bytes((old / name).read_bytes())
    whole = Manifest.load(old)
    replace(whole, chunks={0: whole.chunks[0]}).save(new)


def test_a_cluster_without_room_is_refused(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the cluster has 2 CPUs and 0 GPUs, expected 3 and 0 for one worker"):
        run(Digits(2), digits_model(), job(threads=3), tmp_path / "a", progress=False, engine=Ray())
    with pytest.raises(InputError, match="connected to Ray already"):
        run(Digits(2), digits_model(), job(), tmp_path / "b", progress=False, engine=Ray(cluster))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "got 0 workers"),
        ({"gpus_per_worker": -1.0}, "got -1.0 GPUs a worker"),
        ({"gpus_per_worker": 1.5}, "got 1.5 GPUs a worker"),
    ],
)
def test_impossible_resources_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ray(**settings)


def test_gpus_are_requested_only_if_they_are_used(tmp_path: Path) -> None:
    for engine, device in ((Ray(gpus_per_worker=1), "cpu"), (Ray(), "cuda"), (Ray(gpus_per_worker=1), "cuda:1")):
        with pytest.raises(InputError, match="give device='cuda' and gpus_per_worker=1"):
            run(Digits(2), digits_model(), job(device=device), tmp_path / "out", progress=False, engine=engine)
    assert not (tmp_path / "out").exists()


def test_a_node_is_lost_and_the_run_goes_on_without_it(local: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.runs.lose_a_node", str(tmp_path)]
    root = Path(__file__).parents[2]
    settings = {**os.environ, **SETTINGS}
    done = subprocess.run(
        command, cwd=root, env=settings, capture_output=True, text=True, check=False, timeout=3 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "lost").exists()
    assert contents(tmp_path / "ray") == contents(local)
