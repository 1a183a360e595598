"""Forged chunks with matching hashes: every reader refuses impossible values, and a resumed run repeats the chunk."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import proofmap as pm
from proofmap.errors import FileError
from proofmap.report import report
from proofmap.runs import Results, run
from proofmap.runs.manifest import manifest_digest
from tests.cli.invoke import called
from tests.runs.setting import Digits, Interrupted, contents, digits_model, job

pytestmark = pytest.mark.usefixtures("without_drawings")

FAILED = 5  # in chunk 1, as its row 1
COUNT = 10
Arrays = dict[str, Any]
Change = Callable[[Arrays, dict[str, Any]], object]


def explained(out: Path, **settings: Any) -> Path:
    run(Digits(COUNT, bad={FAILED: None}), digits_model(), job(), out, progress=False, **settings)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return explained(tmp_path_factory.mktemp("run") / "out")


def forged(folder: Path, to: Path, change: Change, number: int = 1) -> Path:
    """Return a copy of a run with a changed chunk and matching hashes."""
    shutil.copytree(folder, to)
    path = to / "chunks" / f"{number:06d}.safetensors"
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        words = json.loads(file.metadata()["chunk"])
    change(arrays, words)
    path.write_bytes(save(arrays, {"chunk": json.dumps(words)}))
    resealed(to, lambda said: said["chunks"][str(number)].update(sha256=sha256(path.read_bytes()).hexdigest()))
    return to


def resealed(folder: Path, change: Callable[[Any], object]) -> None:
    said = json.loads((folder / "manifest.json").read_text())
    change(said)
    said["digest"] = manifest_digest(said)
    (folder / "manifest.json").write_text(json.dumps(said))


def put(name: str, value: Any, row: int = 2) -> Change:
    def change(arrays: Arrays, words: dict[str, Any]) -> None:
        arrays[name][row] = value

    return change


def said(name: str, value: Any) -> Change:
    return lambda arrays, words: words.update({name: value})


def narrow(arrays: Arrays, words: dict[str, Any]) -> None:
    arrays["frozen"] = np.ascontiguousarray(arrays["frozen"][:, :3])


def lowered(arrays: Arrays, words: dict[str, Any]) -> None:
    """A lower bound above the upper bound."""
    arrays["full_lower"] = arrays["full"] + 1
    arrays["frozen_lower"] = arrays["frozen"] - 1


FORGED: dict[str, tuple[Change, str]] = {
    "full below nominal": (put("full", -99), r"nominal is -\d[\d.]* and full is -99 of digit-6.png, which cannot be"),
    "frozen above full": (put("frozen", 9), r"frozen is 9 and full is -\d[\d.]* of digit-6.png, which cannot be"),
    "full is no number": (put("full", np.nan), "full is not a number in row 6, digit-6.png"),
    "frozen is no number": (put("frozen", np.nan), "frozen is not a number in row 6"),
    "nominal is infinite": (put("nominal", -np.inf), "nominal is not a number in row 6"),
    "a target of no class": (put("target", 10), "target is 10 in row 6, digit-6.png, expected a class from 0 to 9"),
    "a prediction of no class": (put("predicted", -1), "predicted is -1 in row 6"),
    "a label of no class": (put("label", 10), "label is 10 in row 6"),
    "another sample": (put("index", 3), "index is 3 in row 6"),
    "a result for a failed row": (put("full", -1, row=1), "full has numbers in row 5, digit-5.png, which was not expl"),
    "a class for a failed row": (put("target", 3, row=1), "target is 3 in row 5"),
    "fewer groups": (narrow, "frozen has 3 groups, and scores has 16"),
    "a lower side above": (lowered, "full_lower is .* and full is "),
    "half of the lower sides": (
        lambda arrays, words: arrays.update(full_lower=arrays["full"]),
        "it has only some of the arrays full_lower, frozen_lower",
    ),
    "no array of radii": (lambda arrays, words: arrays.pop("eps"), r"lacks the arrays \['eps'\]"),
    "a foreign array": (lambda arrays, words: arrays.update(extra=arrays["full"]), r"foreign arrays \['extra'\]"),
    "another guarantee": (said("guarantee", "probable"), "guarantee is 'probable', and eva gives 'certified'"),
    "what is no hash": (said("inputs", ["f" * 63] * 4), "inputs holds what is no SHA-256"),
}


@pytest.mark.parametrize("case", FORGED)
def test_impossible_values_are_refused(folder: Path, tmp_path: Path, case: str) -> None:
    change, message = FORGED[case]
    with pytest.raises(FileError, match=rf"contradicts itself: in chunks/000001.safetensors .*{message}"):
        Results.open(forged(folder, tmp_path / "forged", change)).check()


def test_every_reader_refuses_it_and_a_resumed_run_repeats_it(folder: Path, tmp_path: Path) -> None:
    to = forged(folder, tmp_path / "forged", put("full", -99))
    with pytest.raises(FileError, match="full is -99"):
        report(tmp_path / "page.html", [], runs=[("run", Results.open(to))])
    for words in (["export", to, tmp_path / "r.csv"], ["claim", "zoo:mnist_mlp", to, "--data", tmp_path]):
        found = called(*words)
        assert (found.exit_code, found.stdout) == (2, "")
        assert "full is -99" in found.stderr
    explained(to)
    assert contents(to) == contents(folder)


def test_swapped_chunks_are_computed_again(folder: Path, tmp_path: Path) -> None:
    """Chunks exchanged by their entries alone, and with their files, in an unfinished run."""
    for name, files in (("entries", False), ("files", True)):
        to = tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            explained(to, engine=Interrupted(2))

        def swap(said: Any, to: Path = to, files: bool = files) -> None:
            first, second = (said["chunks"][key] for key in "01")
            if files:
                paths = [to / entry["file"] for entry in (first, second)]
                for path, content in zip(paths, reversed([path.read_bytes() for path in paths]), strict=True):
                    path.write_bytes(content)
                first["sha256"], second["sha256"] = second["sha256"], first["sha256"]
            else:
                said["chunks"] = {"0": second, "1": first}

        resealed(to, swap)
        with pytest.raises(FileError, match="contradicts itself"):
            Results.open(to).check()
        samples = Digits(COUNT, bad={FAILED: None})
        run(samples, digits_model(), job(), to, progress=False)
        assert samples.asked == [*range(COUNT)]
        assert contents(to) == contents(folder)


def test_rows_of_other_samples_are_computed_again(tmp_path: Path) -> None:
    """In a shuffled run no single row shows that it is in the wrong place."""
    for name in ("whole", "swapped"):
        run(Digits(8), digits_model(), job(), tmp_path / name, progress=False, shuffle=True)
    whole = contents(tmp_path / "whole")
    paths = [tmp_path / "swapped" / "chunks" / f"{k:06d}.safetensors" for k in range(2)]
    for path, content in zip(paths, reversed([path.read_bytes() for path in paths]), strict=True):
        path.write_bytes(content)

    def swap(said: Any) -> None:
        first, second = (said["chunks"][key] for key in "01")
        first["sha256"], second["sha256"] = second["sha256"], first["sha256"]

    resealed(tmp_path / "swapped", swap)
    run(Digits(8), digits_model(), job(), tmp_path / "swapped", progress=False, shuffle=True)
    assert contents(tmp_path / "swapped") == whole


@pytest.mark.parametrize(
    "work",
    [
        {"settings": {"sharing": "separate"}},
        {"settings": {"bounds": pm.bounds.Exact(seconds=0.2), "rigorous": True}},
        {"settings": {"bounds": pm.bounds.IBP(), "objective": "apart"}, "ball": pm.Ball(0.0)},
        {"groups": pm.groups.superpixels(9), "settings": {"bounds": pm.bounds.Exact(seconds=0.2)}},
        {"method": "empirical", "settings": {"samples": 5}},
        {"method": "probable", "ball": pm.Ball(0.2, norm=2), "settings": {"samples": 64}},
        {"method": "saliency", "ball": None},
        {"method": "first-order"},
    ],
    ids=str,
)
def test_honest_runs_satisfy_every_condition(tmp_path: Path, work: dict[str, Any]) -> None:
    run(Digits(3, bad={1: None}), digits_model(), job(**work), tmp_path, progress=False)
    Results.open(tmp_path).check()
