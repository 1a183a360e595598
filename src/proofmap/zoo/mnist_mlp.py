"""The paper's MNIST classifier: dense layers of 256, 128, 64, 32 and 10, ReLU between them."""

from itertools import pairwise

from torch import nn

from proofmap.zoo.weights import fill_packaged

_WIDTHS = (28 * 28, 256, 128, 64, 32, 10)  # the input's pixels, then the neurons of each layer


def mnist_mlp(pretrained: bool = True) -> nn.Sequential:
    """Map images (N, 1, 28, 28) in [0, 1] to logits (N, 10); in eval mode.

    `pretrained` loads the packaged weights. `scripts/train.py mnist` made them from the 60000 training images; the
    file's metadata states the test accuracy. With `pretrained=False`, the weights are torch's random initial ones.

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
