"""Trials with small networks trained on tetrominoes in seconds. The trial's folder keeps the weights.

Another machine may round differently and train another network, so existing weights are used again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from benchmarks.trials.tetrominoes import IMAGE_SIDE, Background, Scenario, draw
from benchmarks.trials.trial import Trial
from benchmarks.trials.truth_metrics import Order, Precision
from proofmap.storage.resumable_folder import write_piece
from proofmap.zoo.weights import fill

NetworkKind = Literal["mlp", "cnn"]

_TRAIN_IMAGES, _TRAINING_STEPS, _BATCH, _LEARNING_RATE = 8000, 1500, 128, 3e-3
_TEST_IMAGES, _EXPLAINED_IMAGES = 200, 40  # the first correctly classified test images are explained
_TRAIN_SEED, _TEST_SEED = 1, 2  # settings were chosen on images of other seeds
_FAR_RADIUS = 0.4
_WEIGHTS_FILE = "network.safetensors"


def tetrominoes(
    scenario: Scenario,
    background: Background,
    kind: NetworkKind,
    folder: Path,
    steps: int = _TRAINING_STEPS,
    seed: int = _TEST_SEED,
) -> Trial:
    """Return the trial of a trained network on new images. The network is read from the folder, or trained and saved.

    The metrics use absolute attributions, because each of the two patterns implies the absence of the other (Clark et
    al. 2023).
    """
    network, file = _untrained(kind), folder / _WEIGHTS_FILE
    if file.exists():
        fill(network, file)
    else:
        images = draw(scenario, background, _TRAIN_IMAGES, _TRAIN_SEED)
        network = train(network, images.x, images.labels, steps)
        write_piece(folder, _WEIGHTS_FILE, save(network.state_dict()))
    network.requires_grad_(False).eval()
    test = draw(scenario, background, _TEST_IMAGES, seed)
    correct = (network(test.x).argmax(1) == test.labels).nonzero()[:_EXPLAINED_IMAGES, 0]
    truth = test.truth[correct]
    metrics = Precision(truth=truth, absolute=True), Order(truth=truth, absolute=True)
    title = f"{scenario.capitalize()}, {background} noise, {'dense' if kind == 'mlp' else 'convolutional'}"
    name = f"{scenario}-{background}-{kind}"
    x, labels = test.x[correct], test.labels[correct]
    return Trial(name, title, network, x, labels, metrics, (-1.0, 1.0), _FAR_RADIUS)


def _untrained(kind: NetworkKind) -> nn.Sequential:
    if kind == "mlp":
        sizes = (IMAGE_SIDE**2, 64), (64, 32), (32, 2)
        first, second, last = (skip_init(nn.Linear, *size) for size in sizes)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), last)
    first, second = (skip_init(nn.Conv2d, channels, 16, 3, padding=1) for channels in (1, 16))
    read = skip_init(nn.Linear, 16 * IMAGE_SIDE**2, 2)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), read)


def train(network: nn.Sequential, x: Tensor, labels: Tensor, steps: int, seed: int = 0) -> nn.Sequential:
    """Train the network from new weights with AdamW on random batches. The learning rate falls to 0 (cosine)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in network:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.reset_parameters()
        optimiser = torch.optim.AdamW(network.parameters(), lr=_LEARNING_RATE, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            batch = torch.randint(len(x), (_BATCH,))
            optimiser.zero_grad()
            F.cross_entropy(network(x[batch]), labels[batch]).backward()
            optimiser.step()
            schedule.step()
    return network
