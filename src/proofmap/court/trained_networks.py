"""Small networks trained on images of tetrominoes, in seconds and once: their weights are kept in the trial's folder.

Another machine may round otherwise and train another network: what is kept goes on to be explained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from proofmap.court.ground_truth import Order, Precision
from proofmap.court.tetrominoes import SIDE, Background, Scenario, draw
from proofmap.court.trial import Trial
from proofmap.storage.resumable_folder import keep
from proofmap.zoo.weights import fill

__all__ = ["Kind", "tetrominoes", "train"]

Kind = Literal["mlp", "cnn"]

_TRAINED, _STEPS, _BATCH, _RATE = 8000, 1500, 128, 3e-3
_DRAWN, _COUNT = 200, 40  # test images that are drawn, and those of them that are explained: the first decided rightly
_TRAIN, _TEST = 1, 2  # seeds; settings are chosen on images of others
_FAR = 0.4
_FILE = "network.safetensors"


def tetrominoes(
    scenario: Scenario, background: Background, kind: Kind, folder: Path, steps: int = _STEPS, seed: int = _TEST
) -> Trial:
    """The decisions of a trained network on new images; the network is read from the folder, or trained and left there.

    Signs of a map do not count: of two patterns each tells the other's absence (Clark et al. 2023).
    """
    network, file = _untrained(kind), folder / _FILE
    if file.exists():
        fill(network, file)
    else:
        images = draw(scenario, background, _TRAINED, _TRAIN)
        network = train(network, images.x, images.labels, steps)
        keep(folder, _FILE, save(network.state_dict()))
    network.requires_grad_(False).eval()
    test = draw(scenario, background, _DRAWN, seed)
    right = (network(test.x).argmax(1) == test.labels).nonzero()[:_COUNT, 0]
    truth = test.truth[right]
    judges = Precision(truth=truth, absolute=True), Order(truth=truth, absolute=True)
    title = f"{scenario.capitalize()}, {background} noise, {'dense' if kind == 'mlp' else 'convolutional'}"
    name = f"{scenario}-{background}-{kind}"
    x, labels = test.x[right], test.labels[right]
    return Trial(name, title, network, x, labels, judges, (-1.0, 1.0), _FAR)


def _untrained(kind: Kind) -> nn.Sequential:
    if kind == "mlp":
        sizes = (SIDE**2, 64), (64, 32), (32, 2)
        first, second, last = (skip_init(nn.Linear, *size) for size in sizes)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), last)
    first, second = (skip_init(nn.Conv2d, channels, 16, 3, padding=1) for channels in (1, 16))
    read = skip_init(nn.Linear, 16 * SIDE**2, 2)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), read)


def train(network: nn.Sequential, x: Tensor, labels: Tensor, steps: int, seed: int = 0) -> nn.Sequential:
    """The network after so many steps of AdamW from new weights, on batches drawn from x, the rate falling to 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in network:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.reset_parameters()
        descent = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=1e-2)
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(descent, steps)
        for _ in range(steps):
            batch = torch.randint(len(x), (_BATCH,))
            descent.zero_grad()
            F.cross_entropy(network(x[batch]), labels[batch]).backward()
            descent.step()
            rates.step()
    return network
