"""The paper's MNIST classifier: dense layers of 256, 128, 64, 32 and 10, ReLU between them."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from proofmap.zoo.weights import fill_packaged

_WIDTHS = (28 * 28, 256, 128, 64, 32, 10)


def mnist_mlp(pretrained: bool = True) -> nn.Sequential:
    """Map images (N, 1, 28, 28) in [0, 1] to logits (N, 10); in eval mode.

    With `pretrained`, the weights are those that `scripts/train.py mnist` wrote into the package: trained on the 60000
    training images alone, with the test accuracy in the file's metadata. Without, torch's random initial weights.

    >>> pm.zoo.mnist_mlp()(x).argmax(1)
    tensor([7, 2])
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise(_WIDTHS):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])  # no ReLU after the logits
    if pretrained:
        fill_packaged(model, "mnist_mlp")
    return model.eval()
