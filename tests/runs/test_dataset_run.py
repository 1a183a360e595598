"""Runs in this process: files, resumption, refused arguments, and invalid samples."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import BoundError, FileError, InputError, ModelError, ProofmapError
from proofmap.explainers import EVA
from proofmap.explainers.baselines import Saliency
from proofmap.runs import Job, Results, Totals, run
from proofmap.sources import Model, Preparation, open_samples
from proofmap.storage.resumable_folder import locked, write_piece
from tests.runs.setting import COUNT, EPS, Digits, Interrupted, contents, digits_model, job, nan_digit
from tests.sources.files import GREY

pytestmark = pytest.mark.usefixtures("without_drawings")


def digits_run(out: Path, samples: Digits | None = None, work: Job | None = None, **settings: Any) -> Totals:
    return run(samples or Digits(), digits_model(), work or job(), out, progress=False, **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run."""
    out = tmp_path_factory.mktemp("run") / "whole"
    digits_run(out)
    return out


def test_the_results_are_those_of_the_library(whole: Path) -> None:
    images, labels = pm.data.digits()
    e = EVA(pm.zoo.mnist_mlp(), pm.Ball(EPS, domain=(0.0, 1.0)), groups=pm.groups.grid(4), batch=4).explain(
        images[:COUNT]
    )
    results = Results.open(whole)
    results.check()
    assert results.complete
    assert results.guarantee == "certified"
    assert results.samples == Digits().names
    np.testing.assert_array_equal(results["index"], np.arange(COUNT))
    np.testing.assert_array_equal(results["label"], labels[:COUNT])
    np.testing.assert_array_equal(results["predicted"], e.predicted)
    np.testing.assert_array_equal(results["target"], e.target)
    np.testing.assert_array_equal(results["eps"], EPS)
    np.testing.assert_array_equal(results["mask"], e.mask)
    expected = {
        "full": e.overlap.full,
        "nominal": e.overlap.nominal,
        "frozen": e.overlap.frozen,
        "scores": e.scores,
        "attributions": e.attributions,
    }
    for name, tensor in expected.items():
        np.testing.assert_allclose(results[name], tensor, rtol=0, atol=1e-4)


def test_a_run_leaves_these_files(whole: Path) -> None:
    chunks = [f"chunks/{k:06d}.safetensors" for k in range(4)]
    assert sorted(contents(whole)) == [
        *chunks,
        "manifest.json",
        "mask.npy",
        "means.safetensors",
        "totals.json",
        "totals.png",
    ]
    manifest = json.loads((whole / "manifest.json").read_text())
    assert [entry["samples"] for entry in manifest["chunks"].values()] == [4, 4, 4, 2]
    assert manifest["run"]["job"]["threads"] == 1
    assert manifest["run"]["versions"]["torch"] == str(torch.__version__)
    events = [json.loads(line)["event"] for line in (whole / "log.jsonl").read_text().splitlines()]
    assert events == ["start", *["chunk"] * 4, "end"]


def test_a_second_run_gives_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    digits_run(tmp_path)
    assert contents(tmp_path) == contents(whole)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_an_interrupted_run_computes_missing_chunks(whole: Path, tmp_path: Path, chunks: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        digits_run(tmp_path, engine=Interrupted(chunks))
    assert not (tmp_path / "totals.json").exists()
    samples = Digits()
    digits_run(tmp_path, samples)
    assert samples.asked == list(range(4 * chunks, COUNT))
    assert contents(tmp_path) == contents(whole)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flipped, Path.unlink], ids=["a bit", "the whole file"])
def test_a_damaged_chunk_is_computed_again(whole: Path, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    digits_run(tmp_path)
    damage(tmp_path / "chunks" / "000002.safetensors")
    with pytest.raises(FileError, match=r"is damaged: chunks/000002.safetensors .*; run again to make it anew"):
        Results.open(tmp_path).check()
    samples = Digits()
    digits_run(tmp_path, samples)
    assert samples.asked == [8, 9, 10, 11]
    assert contents(tmp_path) == contents(whole)
    assert '"event": "damaged", "number": 2' in (tmp_path / "log.jsonl").read_text()


class Other(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, 300:310]


@pytest.mark.parametrize(
    ("model", "samples", "work", "settings", "message"),
    [
        (None, None, job(ball=pm.Ball(0.02, domain=(0.0, 1.0))), {}, "job.ball.eps was 0.015 and is 0.02"),
        (
            None,
            None,
            job(groups=pm.groups.grid(7)),
            {},
            r"job.groups was 'Grid\(rows=4, columns=4\)' and is 'Grid\(rows=7",
        ),
        (None, None, job(chunk=5), {}, r"\(job.chunk was 4 and is 5\)"),
        (None, None, job(threads=2), {}, r"\(job.threads was 1 and is 2\)"),
        (None, None, job(settings={"objective": "mean"}), {}, "job.settings.objective was None and is 'mean'"),
        (None, Digits(13), None, {}, "data.samples was 14 and is 13"),
        (None, None, None, {"shuffle": True}, "data.shuffle was False and is True; data.names was '"),
        (Model("other", Other(), Preparation(shape=(1, 28, 28))), None, None, {}, r"\(model.sha256 was '"),
    ],
)
def test_a_folder_of_another_run_is_left_alone(
    whole: Path, model: Model | None, samples: Digits | None, work: Job | None, settings: dict[str, Any], message: str
) -> None:
    before = contents(whole)
    with pytest.raises(FileError, match=f"holds results of another run.*{message}.*choose another folder"):
        run(samples or Digits(), model or digits_model(), work or job(), whole, progress=False, **settings)
    assert contents(whole) == before


def test_a_folder_without_results_is_taken_over(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        digits_run(tmp_path, engine=Interrupted(0))
    assert digits_run(tmp_path, work=job(chunk=10)).count == COUNT


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(FileError, match="another run is at work in"):
        digits_run(tmp_path)


def test_bad_samples_are_recorded_and_the_rest_goes_on(whole: Path, tmp_path: Path) -> None:
    bad: dict[int, Tensor | None] = {1: None, 5: nan_digit(), 6: torch.full((1, 28, 28), 2.0), 9: torch.zeros(1, 8, 8)}
    totals = digits_run(tmp_path / "a", Digits(bad={**bad, 12: None, 13: None}))
    assert totals.count == COUNT
    assert totals.explained == COUNT - 6
    results = Results.open(tmp_path / "a")
    assert sorted(results.reasons) == [1, 5, 6, 9, 12, 13]
    assert results.reasons[1] == "cannot read digit-1.png: <picture> is damaged"
    assert "not finite" in results.reasons[5]
    assert "domain" in results.reasons[6]
    assert results.reasons[9] == "the sample has the shape (1, 8, 8), expected (1, 28, 28)"
    assert ("digit-1.png", results.reasons[1]) in totals.failed
    fine = [k for k in range(COUNT) if k not in results.reasons]
    for name in ("scores", "full", "attributions"):  # rounding is bounded for all samples of a chunk together
        np.testing.assert_allclose(results[name][fine], Results.open(whole)[name][fine], rtol=0, atol=1e-3)
        assert np.isnan(results[name][sorted(results.reasons)]).all()
    assert set(results["predicted"][sorted(results.reasons)]) == {-1}
    digits_run(tmp_path / "b", Digits(bad={**bad, 12: None, 13: None}))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_bad_files_of_a_folder_are_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    images, labels = pm.data.digits()
    for k in range(3):
        np.savez(data / f"{k}.npz", x=images[k : k + 2].numpy(), y=labels[k : k + 2].numpy())
    (data / "1.npz").write_bytes((data / "1.npz").read_bytes()[:-100])
    (data / "3.png").symlink_to(data / "gone.png")
    rows = ",".join(["label", *(f"p{k}" for k in range(784))])
    (data / "4.csv").write_text(f"{rows}\n" + "".join(f"{label},{'0,' * 783}0\n" for label in (1, "cat", 2)))
    totals = run(open_samples([data], GREY), digits_model(), job(), tmp_path / "out", progress=False)
    failed = dict(totals.failed)
    assert list(failed) == ["1.npz", "3.png", "4.csv#1"]
    assert "1.npz is not an npz file" in failed["1.npz"]
    assert "3.png is a link to nothing" in failed["3.png"]
    assert "4.csv#1 has the label 'cat', expected a class number" in failed["4.csv#1"]
    found = [*labels[:2].tolist(), -1, *labels[2:4].tolist(), -1, 1, -1, 2]
    np.testing.assert_array_equal(Results.open(tmp_path / "out")["label"], found)
    assert totals.correct is not None


def test_samples_of_a_failed_chunk_are_tried_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = EVA.explain
    poison = Digits().images[2]

    def failing(self: EVA, x: Tensor, target: int | Tensor | None = None) -> pm.Explanation:
        if any(torch.equal(sample, poison) for sample in x):
            raise BoundError("no finite bound exists")
        return sound(self, x, target)

    monkeypatch.setattr(EVA, "explain", failing)
    digits_run(tmp_path)
    results = Results.open(tmp_path)
    assert results.reasons == {2: "no finite bound exists"}
    assert list(np.flatnonzero(np.isnan(results["full"]))) == [2]


def test_an_unsupported_model_is_refused_before_any_work(tmp_path: Path) -> None:
    class Cumulative(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1).cumprod(1)[:, :10]

    with pytest.raises(ModelError, match="cumprod"):
        run(Digits(), Model("m", Cumulative(), Preparation()), job(), tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("work", "settings", "message"),
    [
        (lambda: job(method="magic"), {}, "got the method 'magic', expected one of saliency"),
        (lambda: job(ball=None), {}, "eva got no ball"),
        (lambda: job(ball=pm.Ball(torch.ones(14))), {}, "got a tensor of radii"),
        (lambda: job(chunk=0), {}, "got chunk=0, expected a whole number from 1 to 1000"),
        (lambda: job(device="magic"), {}, "got the device 'magic'"),
        (lambda: job(device="cuda:99"), {}, "got the device cuda:99, expected one of the"),
        (lambda: job(target=10), {}, "got target 10, expected a class from 0 to 9"),
        (lambda: job(groups=pm.groups.columns()), {}, r"columns\(\) got a sample"),
        (lambda: job(settings={"radius": 3}), {}, "eva got the settings"),
        (
            lambda: job(settings={"batch": 3}),
            {},
            "got batch among the settings, expected it as an argument of the job: chunk",
        ),
        (lambda: job(settings={"memory": 2**30}), {}, "got memory among the settings.*: memory"),
        (lambda: job(settings={"groups": pm.groups.grid(2)}), {}, "got groups among the settings.*: groups"),
        (job, {"limit": 0}, "got a limit of 0 samples"),
        (job, {"seed": -1}, "got the seed -1"),
    ],
)
def test_invalid_arguments_are_refused_before_any_work(
    tmp_path: Path, work: Callable[[], Job], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        digits_run(tmp_path / "out", work=work(), **settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("network", "work", "error", "message"),
    [
        (
            nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2))),
            job(groups=None),
            InputError,
            r"output has shape \(N, 2, 2\), which is no list of classes",
        ),
        (
            nn.Linear(3, 2),
            job(groups=None, settings={"objective": pm.objectives.Output(7, "up")}),
            InputError,
            "got output 7",
        ),
        (nn.Linear(3, 2), job(groups=pm.groups.superpixels(4)), InputError, r"got flat samples \(3,\)"),
        (
            nn.Linear(3, 2),
            job(groups=None, method="hybrid", settings={"split": "body"}),
            ModelError,
            "has no node or module 'body'",
        ),
    ],
)
def test_samples_that_do_not_fit_the_model_are_refused_before_any_work(
    tmp_path: Path, network: nn.Module, work: Job, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(Digits(2), Model("m", network, Preparation(shape=(3,))), work, tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_an_unreadable_data_set_is_refused(tmp_path: Path) -> None:
    model = Model("m", pm.zoo.mnist_mlp(), Preparation())
    with pytest.raises(
        InputError, match="none of the 2 samples can be read, expected at least one: cannot read digit-0"
    ):
        run(Digits(2, {0: None, 1: None}), model, job(), tmp_path, progress=False)


def test_an_invalid_label_is_refused_before_any_work(tmp_path: Path) -> None:
    samples = Digits(6)
    samples.labels = [9, 3, 12, -1, 10, 2]
    with pytest.raises(InputError, match=r"^digit-2.png has the label 12 \(and 1 more\), expected classes .* 0 to 9: "):
        digits_run(tmp_path / "out", samples)
    assert not (tmp_path / "out").exists()
    digits_run(tmp_path / "out", samples, limit=2)  # all labels of explained samples are valid
    assert Results.open(tmp_path / "out")["label"].tolist() == [9, 3]


def test_limit_and_shuffle_choose_samples(tmp_path: Path) -> None:
    digits_run(tmp_path / "a", Digits(30), limit=5, shuffle=True, seed=3)
    digits_run(tmp_path / "b", Digits(30), limit=5, shuffle=True, seed=4)
    first, second = (Results.open(tmp_path / name) for name in "ab")
    assert len(set(first["index"])) == 5
    assert list(first["index"]) != sorted(first["index"]) or list(second["index"]) != sorted(second["index"])
    assert list(first["index"]) != list(second["index"])
    assert first.samples == [f"digit-{k}.png" for k in first["index"]]
    np.testing.assert_array_equal(first["label"], [Digits(30).labels[k] for k in first["index"]])  # type: ignore[index]


def test_methods_that_sample_draw_anew_for_each_chunk(tmp_path: Path) -> None:
    same = Digits(4)
    same.images = same.images[:1].expand(4, -1, -1, -1)
    work = job(method="empirical", settings={"samples": 20}, chunk=1)
    for name in "ab":
        digits_run(tmp_path / name, same, work, limit=2)
    digits_run(tmp_path / "c", same, work, limit=2, seed=1)
    digits_run(tmp_path / "d", same, job(method="empirical", settings={"samples": 20, "seed": 1}, chunk=1), limit=2)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    scores = [Results.open(tmp_path / name)["scores"] for name in "ac"]
    assert Results.open(tmp_path / "a").guarantee == "sampled"
    assert not np.array_equal(scores[0][0], scores[0][1])
    assert not np.array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(Results.open(tmp_path / "d")["scores"], scores[1])


def test_a_method_without_a_ball_scores_every_variable(tmp_path: Path) -> None:
    totals = digits_run(tmp_path, work=job(method="saliency", ball=None))
    results = Results.open(tmp_path)
    images, _ = pm.data.digits()
    expected = Saliency(pm.zoo.mnist_mlp()).attribute(images[:COUNT])
    np.testing.assert_allclose(results["attributions"], expected, rtol=0, atol=1e-5)
    assert "full" not in results.names
    assert (totals.overlap, totals.certified, totals.guarantee) == (None, None, "none")


def test_maps_of_a_smooth_grid_are_those_of_the_library(tmp_path: Path) -> None:
    groups = pm.groups.grid(4, smooth=True)
    totals = digits_run(tmp_path, work=job(groups=groups), limit=3)
    images, _ = pm.data.digits()
    e = EVA(pm.zoo.mnist_mlp(), pm.Ball(EPS, domain=(0.0, 1.0)), groups=groups).explain(images[:3])
    results = Results.open(tmp_path)
    np.testing.assert_allclose(results["attributions"], e.attributions, rtol=0, atol=1e-4)
    for entry, found in zip(totals.classes, totals.maps, strict=True):
        own = results["attributions"][results["target"] == entry.number]
        np.testing.assert_allclose(found, own.mean(axis=0), rtol=1e-5, atol=1e-5)


def test_groups_may_follow_the_samples(tmp_path: Path) -> None:
    """Each sample has its own mask, and chunks have different numbers of groups."""
    groups = pm.groups.superpixels(12)
    digits_run(tmp_path, Digits(bad={3: None}), work=job(groups=groups, chunk=1), limit=6)
    results = Results.open(tmp_path)
    assert results["mask"].shape == (6, 1, 28, 28)
    images, _ = pm.data.digits()
    fine = [0, 1, 2, 4, 5]
    e = EVA(pm.zoo.mnist_mlp(), pm.Ball(EPS, domain=(0.0, 1.0)), groups=groups, batch=1).explain(images[fine])
    np.testing.assert_allclose(results["attributions"][fine], e.attributions, rtol=0, atol=1e-4)
    np.testing.assert_allclose(results["scores"][fine], e.scores, rtol=0, atol=1e-4)
    np.testing.assert_allclose(results["frozen"][fine], e.overlap.frozen, rtol=0, atol=1e-4)
    assert np.isnan(results["scores"][3]).all()


def test_groups_without_a_name_are_known_by_their_mask(tmp_path: Path) -> None:
    """The repr of a function is an address, which differs in a second start."""
    masks = [lambda shape, cells=cells: pm.groups.grid(cells)(shape) for cells in (4, 4, 7)]
    abouts = [job(groups=mask).about((1, 28, 28)) for mask in masks]
    assert abouts[0] == abouts[1] != abouts[2]
    digits_run(tmp_path, work=job(groups=pm.groups.grid(4)((1, 28, 28))), limit=2)
    assert Results.open(tmp_path)["scores"].shape == (2, 16)


def test_radii_may_be_each_samples_own(tmp_path: Path) -> None:
    totals = digits_run(tmp_path, work=job(ball=pm.Ball("auto", domain=(0.0, 1.0))), limit=4)
    images, _ = pm.data.digits()
    radius = pm.certified_radius(pm.zoo.mnist_mlp(), images[:4], domain=(0.0, 1.0))
    np.testing.assert_allclose(Results.open(tmp_path)["eps"], radius, rtol=1e-4)
    assert totals.radius is not None
    assert totals.radius.quantiles["1"] == pytest.approx(float(radius.max()), rel=1e-4)
    assert "proven radius: least 0.0" in totals.text()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    write_piece(tmp_path, "a", b"old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match=r"cannot write .*: No space left on device"):
        write_piece(tmp_path, "a", b"new")
    assert contents(tmp_path) == {"a": b"old"}


def test_the_folder_has_to_be_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProofmapError, match="cannot write into"):
        digits_run(tmp_path / "file")
