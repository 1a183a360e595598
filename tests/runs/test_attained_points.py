"""Stored attained points of a run: every lower bound is the network's value at its point."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import proofmap as pm
from proofmap.errors import FileError, InputError
from proofmap.runs import Results, run
from proofmap.runs.attained_points import POINT_ARRAYS, pack_points, unpack_points
from tests.runs.setting import EPS, Digits, digits_model, job

COUNT, FAILED = 3, 0
EXACT: dict[str, Any] = {"bounds": pm.bounds.Exact(seconds=0.01), "rigorous": False}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("run") / "out"
    run(Digits(COUNT, bad={FAILED: None}), digits_model(), job(settings=EXACT, chunk=2), out, progress=False)
    return Results.open(out)


def test_every_lower_bound_is_attained_at_its_point(results: Results) -> None:
    results.check()
    model, images = pm.zoo.mnist_mlp().double(), pm.data.digits()[0]
    mask = torch.from_numpy(results["mask"][0])
    for k in (1, 2):  # samples of two chunks
        points = torch.from_numpy(results.points(k))
        assert points.shape == (17, 1, 28, 28)
        moved = points - images[k]
        assert float(moved.double().abs().max()) <= EPS
        assert all(not moved[1 + u][mask == u].any() for u in range(16))
        logits, c = model(points.double()).detach(), int(results["target"][k])
        rivals = torch.cat([logits[:, :c], logits[:, c + 1 :]], dim=1).amax(1) - logits[:, c]
        lower = np.append(results["full_lower"][k], results["frozen_lower"][k])
        np.testing.assert_allclose(rivals.numpy(), lower, rtol=1e-6)
        assert (rivals.numpy() >= lower).all()
        assert float(rivals[0]) > results["nominal"][k] + 0.1


def test_a_sample_that_failed_has_no_points(results: Results) -> None:
    assert results.points(FAILED) is None
    for row in (-1, COUNT):
        with pytest.raises(InputError, match=f"got row {row}, expected one from 0 to 2"):
            results.points(row)


def test_a_run_without_a_search_has_no_points(tmp_path: Path) -> None:
    run(Digits(2), digits_model(), job(), tmp_path, progress=False)
    assert Results.open(tmp_path).points(0) is None
    (chunk,) = (tmp_path / "chunks").iterdir()
    assert not set(POINT_ARRAYS) & set(load_file(chunk))
    old = Results.open(Path(__file__).parent / "old")
    assert [old.points(k) for k in range(3)] == [None] * 3


def test_common_entries_of_points_are_stored_once(results: Results) -> None:
    arrays = load_file(results.parts[0].file)
    whole = 17 * 28 * 28 * 4
    assert sum(arrays[name].nbytes for name in POINT_ARRAYS) < whole / 3


def test_points_come_back_bit_for_bit(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x, mask = (draw.normal(size=(3, 2, 4)).astype(np.float32) for _ in range(2))
    mask = (mask > 0).astype(np.int32) + 2 * (mask > 1)  # each sample has its own mask, with 2 or 3 groups
    points = x[:, None] + draw.normal(size=(3, 5, 2, 4)).astype(np.float32).round()
    points[2, 1:] = np.where(mask[2] == np.arange(4)[:, None, None], x[2], points[2, 0])  # all other entries are equal
    points[0, 3, 0, 1], points[0, 0, 0, 1] = -0.0, 0.0
    save_file(pack_points([points[0], None, points[2]], [*x], [*mask]), tmp_path / "c.safetensors")
    for row in (0, 2):
        again = unpack_points(tmp_path / "c.safetensors", row, mask[row], 4)
        np.testing.assert_array_equal(again.view(np.uint32), points[row].view(np.uint32))
    longer = unpack_points(tmp_path / "c.safetensors", 0, mask[0], 6)  # two groups are empty
    np.testing.assert_array_equal(longer[5:], np.stack([points[0, 0]] * 2))


def test_damage_is_refused(tmp_path: Path) -> None:
    x, points = np.zeros((1, 4), dtype=np.float32), np.ones((5, 4), dtype=np.float32)
    found = pack_points([points], [*x], [np.arange(4)])
    found["points_place"] = found["points_place"] + np.uint32(99)
    save_file(found, tmp_path / "c.safetensors")
    with pytest.raises(FileError, match=r"cannot read the points in .*run again to make it anew"):
        unpack_points(tmp_path / "c.safetensors", 0, np.arange(4), 4)
