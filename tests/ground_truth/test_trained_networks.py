"""Networks that are trained on tetrominoes: they learn, are stored, and only right decisions are explained."""

from pathlib import Path

import torch

from benchmarks.trials.trained_networks import tetrominoes
from benchmarks.trials.truth_metrics import TruthMetric


def test_a_network_is_trained_once_and_kept(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    first = tetrominoes("xor", "correlated", "mlp", tmp_path, steps=300)
    assert torch.equal(torch.get_rng_state(), state)
    again = tetrominoes("xor", "correlated", "mlp", tmp_path, steps=0)
    assert torch.equal(first.network(first.x), again.network(again.x))
    (tmp_path / "network.safetensors").unlink()
    other = tetrominoes("xor", "correlated", "mlp", tmp_path, steps=1)
    assert not torch.equal(first.network(first.x), other.network(first.x))


def test_metrics_use_absolute_maps_of_right_decisions(tmp_path: Path) -> None:
    trial = tetrominoes("translations", "white", "cnn", tmp_path, steps=30)
    assert trial.name == "translations-white-cnn"
    assert torch.equal(trial.network(trial.x).argmax(1), trial.target)
    assert 0 < len(trial.x) <= 40
    for metric in trial.metrics:
        assert isinstance(metric, TruthMetric)
        assert metric.absolute
        assert metric.truth.shape == (len(trial.x), 8, 8)


def test_a_dense_network_learns_an_xor_of_patterns(tmp_path: Path) -> None:
    trial = tetrominoes("xor", "correlated", "mlp", tmp_path, steps=300)
    assert len(trial.x) == 40
    assert trial.network(trial.x).softmax(1).amax(1).mean() > 0.8
