"""The paper's CIFAR-10 classifier: three convolutions, one max pool, two dense layers."""

from itertools import pairwise

from torch import nn

from proofmap.zoo.weights import fill_packaged

_CHANNELS = (3, 128, 80, 64)  # channels of the input and after each convolution
_POOLED_SIDE = (32 - 2 * 3) // 2  # pixels: three convolutions without padding remove 2 each, the pool halves the rest


def cifar_cnn(pretrained: bool = True) -> nn.Sequential:
    """Map images (N, 3, 32, 32) in [0, 1] to logits (N, 10); in eval mode.

    Convolutions of 128, 80 and 64 filters (3 x 3, stride 1, no padding: maps of 30, 28 and 26 pixels), max pool 2 x 2,
    dense layers of 64 and 10, with ReLU after every layer except the last. Pixels are not normalised.

    `pretrained` loads the packaged weights. `scripts/train.py cifar10` made them from the 50000 training images; the
    file's metadata states the test accuracy. With `pretrained=False`, the weights are torch's random initial ones.

    >>> pm.zoo.cifar_cnn()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    layers: list[nn.Module] = []
    for channels_in, channels_out in pairwise(_CHANNELS):
        layers += [nn.Conv2d(channels_in, channels_out, kernel_size=3), nn.ReLU()]
    dense = [nn.Linear(_CHANNELS[-1] * _POOLED_SIDE**2, 64), nn.ReLU(), nn.Linear(64, 10)]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), *dense)
    if pretrained:
        fill_packaged(model, "cifar_cnn")
    return model.eval()
