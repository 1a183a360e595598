"""The paper's CIFAR-10 classifier: three convolutions, one max pool, two dense layers."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from proofmap.zoo.weights import fill_packaged

_CHANNELS = (3, 128, 80, 64)
_SIDE = (32 - 2 * 3) // 2  # each convolution takes a pixel at every edge, the pool halves what is left


def cifar_cnn(pretrained: bool = True) -> nn.Sequential:
    """Map images (N, 3, 32, 32) in [0, 1] to logits (N, 10); in eval mode.

    Convolutions of 128, 80 and 64 filters (3 x 3, stride 1, no padding: maps of 30, 28 and 26 pixels), max pool 2 x 2,
    dense layers of 64 and 10; ReLU after every layer but the last. Pixels enter as they are, without normalisation.

    With `pretrained`, the weights are those that `scripts/train.py cifar10` wrote into the package: trained on the
    50000 training images alone, with the test accuracy in the file's metadata. Without, torch's random initial weights.

    >>> pm.zoo.cifar_cnn()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    layers: list[nn.Module] = []
    for channels_in, channels_out in pairwise(_CHANNELS):
        layers += [nn.Conv2d(channels_in, channels_out, kernel_size=3), nn.ReLU()]
    dense = [nn.Linear(_CHANNELS[-1] * _SIDE**2, 64), nn.ReLU(), nn.Linear(64, 10)]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), *dense)
    if pretrained:
        fill_packaged(model, "cifar_cnn")
    return model.eval()
