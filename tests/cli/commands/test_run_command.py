"""proofmap run and export: on a folder of files, and killed at random moments."""

import csv
import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import proofmap as pm
from proofmap.runs import Results
from tests.cli.invoke import PROGRAM, called
from tests.runs.setting import contents

COUNT = 24
OPTIONS = ["--model", "zoo:mnist_mlp", "--eps", "0.015", "--groups", "grid:7", "--chunk", "2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as PNG files, and one file with the name of a picture that is none."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    folder.mkdir()
    images, _ = pm.data.digits()
    for k, image in enumerate((images[:COUNT, 0] * 255).round().byte().numpy()):
        Image.fromarray(image).save(folder / f"{k:02d}.png")
    (folder / "07.png").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def whole(data: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of an undisturbed run, and its output."""
    out = data.parent / "whole"
    done = called("run", data, *OPTIONS, "--out", out, "--json")
    assert done.exit_code == 0, done.stderr
    assert "\r" not in done.stderr  # a file gets lines, no bar
    printed: dict[str, Any] = json.loads(done.stdout)
    return out, printed


def test_the_command_explains_a_folder(whole: tuple[Path, dict[str, Any]]) -> None:
    out, printed = whole
    results = Results.open(out)
    assert results.samples == [f"{k:02d}.png" for k in range(COUNT)]
    assert printed == json.loads((out / "totals.json").read_text())
    assert (printed["count"], printed["explained"], printed["failed"]) == (COUNT, COUNT - 1, 1)
    assert printed["certified"] == int((results["full"] < 0).sum())
    assert printed["failures"] == [{"name": "07.png", "reason": results.reasons[7]}]
    assert "cannot read" in results.reasons[7]


def chunks(out: Path) -> int:
    return len(list((out / "chunks").glob("*.safetensors"))) if (out / "chunks").exists() else 0


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_same_bytes(
    data: Path, whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The run is killed after a random number of chunks, or after a random time."""
    draw = random.Random(6)
    arguments = [str(word) for word in (PROGRAM, "run", data, *OPTIONS, "--out", tmp_path)]
    between = 0
    for k in range(5):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if k % 2:
            time.sleep(draw.uniform(0, 4))
        else:
            enough = chunks(tmp_path) + draw.randint(1, 3)
            while process.poll() is None and chunks(tmp_path) < enough:
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.wait()
        between += process.returncode == -signal.SIGKILL and 0 < chunks(tmp_path) < COUNT // 2
    assert between, "no kill came while chunks were being made"
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{COUNT} samples: {COUNT - 1} explained, 1 failed\n")
    assert contents(tmp_path) == contents(whole[0])


def test_another_run_is_refused_in_one_sentence(data: Path, whole: tuple[Path, dict[str, Any]]) -> None:
    other = [*OPTIONS]
    other[other.index("0.015")] = "0.02"
    found = called("run", data, *other, "--out", whole[0])
    assert (found.exit_code, found.stdout) == (2, "")
    assert "holds results of another run (job.ball.eps was 0.015 and is 0.02): choose another folder" in found.stderr
    assert "Traceback" not in found.stderr


def test_results_go_out(whole: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = called("export", whole[0], "r.csv")
    assert (found.exit_code, found.stdout) == (0, f"wrote {COUNT} samples to r.csv\n"), found.stderr
    with (tmp_path / "r.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["overlap_upper_proven"] or "nan") for row in rows] == pytest.approx(
        Results.open(whole[0])["full"], nan_ok=True
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "magic"], "got --engine magic, expected local or ray"),
        (["--workers", "2"], "without a cluster, expected --engine ray"),
        (["--method", "magic"], "got --method magic, expected one of saliency"),
        (["--method", "saliency"], "got --eps 0.015 for saliency, which looks at no ball"),
        (["--method", "empirical", "--bounds", "ibp"], "got --bounds ibp for empirical, which has none"),
        (["--bounds", "magic"], "got bounds 'magic'"),
        (["--set", "samples"], "got --set samples, expected a name and a value such as samples=50"),
        (["--set", "samples=5"], "eva got the settings"),
        (["--set", "precision=magic"], "expected float16, bfloat16 or float32"),
        (["--chunk", "0"], "got chunk=0, expected a whole number from 1 to 1000"),
        (["--limit", "0"], "got a limit of 0 samples"),
        (["--target", "12"], "got target 12, expected a class from 0 to 9"),
        (["--device", "cuda:99"], "got the device cuda:99, expected one of the"),
        (["--device", "meta"], "got --device meta, expected cpu, cuda or cuda:1"),
        (["--memory", "nan"], "got --memory nan, expected a number of GiB, such as 4"),
        (["--memory", "inf"], "got --memory inf, expected a number of GiB, such as 4"),
        (["--memory", "0"], "got --memory 0, expected a number of GiB, such as 4"),
    ],
)
def test_bad_options_are_refused_before_any_work(data: Path, tmp_path: Path, options: list[str], message: str) -> None:
    found = called("run", data, *OPTIONS, "--out", tmp_path / "out", *options)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr
    assert not (tmp_path / "out").exists()


def test_settings_reach_the_method(data: Path, tmp_path: Path) -> None:
    options = ["--method", "empirical", "--set", "samples=7", "--set", "precision=float16", "--limit", "3", "--shuffle"]
    found = called("run", data, *OPTIONS, "--seed", "4", *options, "--out", tmp_path, "--target", "3")
    assert found.exit_code == 0, found.stderr
    about = Results.open(tmp_path).about
    assert about["job"]["settings"] == {"precision": "torch.float16", "samples": 7}
    assert about["data"]["shuffle"] is True
    assert set(Results.open(tmp_path)["target"]) == {3}


def test_a_run_without_explained_samples_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    found = called("run", tmp_path / "bad.png", *OPTIONS, "--out", tmp_path / "out")
    assert found.exit_code == 1
    assert found.stdout.startswith("1 sample: 0 explained, 1 failed")


def test_a_method_without_a_ball_needs_no_radius(data: Path, tmp_path: Path) -> None:
    options = ["--model", "zoo:mnist_mlp", "--method", "saliency", "--limit", "3", "--out", tmp_path]
    found = called("run", data, *options)
    assert found.exit_code == 0, found.stderr
    assert "AO(B)" not in found.stdout
    assert Results.open(tmp_path)["attributions"].shape == (3, 1, 28, 28)
