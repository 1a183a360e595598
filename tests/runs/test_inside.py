"""Results inside the folder of the samples: a second start finds the same samples."""

from pathlib import Path

import pytest

from proofmap.runs import Results, run
from proofmap.sources import open_samples
from tests.cli.invoke import answer
from tests.runs.setting import Interrupted, contents, digits_model, job
from tests.sources.files import GREY, digits, write_png

NAMES = ["0.png", "1.png", "deep/2.png"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    for name, image in zip(NAMES, digits(3)[0], strict=True):
        write_png(tmp_path / name, image)
    return tmp_path


@pytest.mark.parametrize("out", ["results", "deep/results", "."])
def test_a_run_goes_on_inside_its_data(pictures: Path, out: str) -> None:
    """After an interruption and after a complete run; results in the data folder do not count as samples."""

    def again(**settings: object) -> None:
        samples = open_samples([pictures], GREY)
        run(samples, digits_model(), job(chunk=1), pictures / out, progress=False, **settings)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        again(engine=Interrupted(1))
    assert (pictures / out / "mask.npy").is_file()
    again()
    done = contents(pictures / out)
    assert "totals.png" in done
    again()
    assert contents(pictures / out) == done
    assert Results.open(pictures / out).samples == NAMES


def test_both_commands_ignore_results_among_samples(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pictures)
    ball = ("--eps", "0.01", "--groups", "grid:2")
    for _ in range(2):
        assert answer("run", ".", "--model", "zoo:mnist_mlp", *ball, "--chunk", "1", "--out", "results")["count"] == 3
        assert [entry["name"] for entry in answer("explain", "zoo:mnist_mlp", ".", *ball)["inputs"]] == NAMES
    assert (pictures / "out" / "0.map.png").is_file()
    (pictures / "out" / "0.proofmap").unlink()  # a single picture of this name is a sample
    assert "out/0.map.png" in open_samples([pictures], GREY).names


def test_other_files_of_these_names_are_samples(pictures: Path) -> None:
    (pictures / "manifest.json").write_text('{"format": "of somebody else"}')
    write_png(pictures / "totals.png", digits(1)[0][0])
    assert open_samples([pictures], GREY).names == (*NAMES, "totals.png")
