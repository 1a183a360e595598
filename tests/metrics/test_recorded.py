"""Presets, compared with recorded results of Quantus and Xplique; `scripts/metrics_env.py` made the record."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.metrics import ROAD, Cells, Deletion, Insertion, MuFidelity, Sparseness, Stability
from proofmap.metrics.mu_fidelity import pearson, spearman
from scripts.metrics_env import RECORD_FILE, SAMPLE_COUNT, SUBSET_COUNT, attributions, moved, squares

RECORDED: dict[str, Any] = json.loads(RECORD_FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    images, labels = pm.data.digits()
    x = images[:SAMPLE_COUNT]
    return pm.zoo.mnist_mlp(), x, labels[:SAMPLE_COUNT], attributions(x)


def close(found: Tensor, expected: list[float], relative: float = 1e-5) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), rtol=relative, atol=1e-6)


@pytest.mark.parametrize("steps", ["784", "28"])
def test_pixel_flipping(steps: str, digits: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    metric = Deletion("quantus", steps=None if steps == "784" else int(steps))
    close(metric(*digits), RECORDED["quantus"]["pixel_flipping"][steps])


def test_faithfulness_correlation(digits: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    """The record lists runs, and within each run the samples."""
    index = torch.tensor([list(map(int, row.split())) for row in RECORDED["quantus"]["subsets"]])
    index = index.view(SUBSET_COUNT, SAMPLE_COUNT, -1).transpose(0, 1)
    chosen = torch.zeros(SAMPLE_COUNT, SUBSET_COUNT, 784, dtype=torch.bool).scatter(2, index, True)
    drop, total = MuFidelity("quantus").pairs(*digits, chosen)
    close(pearson(total, drop), RECORDED["quantus"]["faithfulness_correlation"])


def test_max_sensitivity(digits: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, x, target, _ = digits
    found = Stability(0.2, preset="quantus").distances(model, x, target, lambda z, _: squares(z), moved(x))
    close(found.amax(1), RECORDED["quantus"]["max_sensitivity"])


def test_sparseness(digits: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    close(Sparseness("quantus")(*digits), RECORDED["quantus"]["sparseness"])


def test_road(digits: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    """Without noise, as shares of the samples. The record has shares of correct labels, and all digits are correct."""
    close(ROAD(noise=0.0).curve(*digits).mean(0), RECORDED["quantus"]["road"])


def test_average_stability(digits: tuple[nn.Module, Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same points, and the same distribution of random points."""
    model, x, target, _ = digits
    metric = Stability(0.2, SUBSET_COUNT, "xplique")
    noise = metric._draw(metric.ball.at(x), slice(0, SAMPLE_COUNT))
    low, middle, high = RECORDED["xplique"]["noise"]
    assert low >= 0
    assert float(noise.min()) >= 0
    close(torch.stack([noise.mean(), noise.max()]), [middle, high], 0.02)
    monkeypatch.setattr(Stability, "_draw", lambda metric, family, piece: (moved(x) - x[:, None])[piece])
    close(metric(model, x, target, lambda z, _: squares(z)), RECORDED["xplique"]["stability"])


@pytest.mark.parametrize("kind", [Deletion, Insertion])
def test_causal_fidelity(kind: type[Deletion | Insertion], digits: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    close(kind("xplique")(*digits), RECORDED["xplique"][kind.name])


def test_mu_fidelity(digits: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    """The masks consist of pixels and are unions of our cells; the cells give the same correlation."""
    raw = [[list(bytes.fromhex(row)) for row in rows] for rows in RECORDED["xplique"]["masks"]]
    masks = torch.from_numpy(np.unpackbits(np.array(raw, dtype=np.uint8), axis=2)).bool()  # (N, subsets, 784)
    ids = Cells(9)((1, 28, 28)).flatten()
    chosen = torch.zeros(SAMPLE_COUNT, SUBSET_COUNT, 81, dtype=torch.bool)
    chosen[..., ids] = masks
    assert torch.equal(chosen[..., ids], masks)
    assert 0.1 < float(masks.double().mean()) < 0.3
    drop, total = MuFidelity("xplique").pairs(*digits, chosen)
    close(spearman(total, drop), RECORDED["xplique"]["mu_fidelity"])
