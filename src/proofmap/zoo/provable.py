"""Classifiers trained for proofs (MTL-IBP, De Palma et al. 2024): convolutions with stride 2, and two dense layers."""

from torch import nn

from proofmap.zoo.weights import fill_packaged


def mnist_provable(pretrained: bool = True) -> nn.Sequential:
    """Map images (N, 1, 28, 28) in [0, 1] to logits (N, 10); in eval mode.

    Convolutions of 32 and 64 filters with stride 2 (maps of 14 and 7 pixels), dense layers of 128 and 10, with ReLU
    after every layer except the last.

    `pretrained` loads the packaged weights. `scripts/train.py mnist-provable` made them from the 60000 training images.
    A part of the loss is a bound of the loss in the ball, so that most decisions can be proven at 0.1. The file's
    metadata states the test accuracy. With `pretrained=False`, the weights are torch's random initial ones.

    >>> pm.zoo.mnist_provable()(x).argmax(1)
    tensor([7, 2])
    """
    model = nn.Sequential(
        nn.Conv2d(1, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    if pretrained:
        fill_packaged(model, "mnist_provable")
    return model.eval()


def cifar_provable(pretrained: bool = True) -> nn.Sequential:
    """Map images (N, 3, 32, 32) in [0, 1] to logits (N, 10); in eval mode.

    Convolutions of 64, 64 and 128 filters with stride 2 (maps of 16, 8 and 4 pixels), dense layers of 256 and 10, with
    ReLU after every layer except the last. Pixels are not normalised.

    `pretrained` loads the packaged weights. `scripts/train.py cifar10-provable` made them from the 50000 training
    images. A part of the loss is a bound of the loss in the ball, so that many decisions can be proven at 2/255. The
    file's metadata states the test accuracy. With `pretrained=False`, the weights are torch's random initial ones.

    >>> pm.zoo.cifar_provable()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    model = nn.Sequential(
        nn.Conv2d(3, 64, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(64, 64, 4, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(128 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip
    if pretrained:
        fill_packaged(model, "cifar_provable")
    return model.eval()
