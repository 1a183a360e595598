"""The paper's MNIST classifier: dense layers of 256, 128, 64, 32 and 10, ReLU between them."""

from __future__ import annotations

from importlib.resources import as_file, files
from itertools import pairwise

from safetensors.torch import load_file
from torch import nn

__all__ = ["mnist_mlp"]

_WIDTHS = (28 * 28, 256, 128, 64, 32, 10)


def mnist_mlp(pretrained: bool = True) -> nn.Sequential:
    """Map images (N, 1, 28, 28) in [0, 1] to logits (N, 10); in eval mode.

    With `pretrained`, the weights are those that `scripts/train_mnist.py` wrote into the package: trained on the 60000
    training images alone, with the test accuracy in the file's metadata. Without, torch's random initial weights.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise(_WIDTHS):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])  # no ReLU after the logits
    if pretrained:
        with as_file(files("proofmap.zoo") / "mnist_mlp.safetensors") as path:
            model.load_state_dict(load_file(path))
    return model.eval()
