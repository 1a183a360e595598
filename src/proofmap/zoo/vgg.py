"""VGG16, the paper's ImageNet classifier, with torchvision's names of the layers."""

from pathlib import Path

import torch
from torch import Tensor, nn

from proofmap.zoo.weights import fill

# Filters of the convolutions, block by block; a max pool ends each block.
# (Simonyan and Zisserman 2014, "Very deep convolutional networks", configuration D)
_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_POOLED_SIDE = 7  # pixels


class VGG(nn.Module):
    """Blocks of 3 x 3 convolutions with a max pool each, average pooling to 7 x 7, and three dense layers."""

    def __init__(self, blocks: tuple[tuple[int, ...], ...], hidden: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for block in blocks:
            for width in block:
                layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features: nn.Sequential = nn.Sequential(*layers)
        self.avgpool: nn.Module = nn.AdaptiveAvgPool2d(_POOLED_SIDE)
        self.classifier: nn.Sequential = nn.Sequential(
            nn.Linear(channels * _POOLED_SIDE**2, hidden),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, 3, H, W) to logits (N, classes)."""
        pooled: Tensor = self.avgpool(self.features(x))
        logits: Tensor = self.classifier(pooled.flatten(1))
        return logits


def vgg16(weights: str | Path | None = None) -> VGG:
    """Map images (N, 3, 224, 224) to logits (N, 1000); in eval mode.

    `weights` is a file: torchvision's `vgg16-*.pth`, or the same tensors as safetensors. These weights expect pixels
    in [0, 1], minus the mean (0.485, 0.456, 0.406), divided by the standard deviation (0.229, 0.224, 0.225). Without
    a file, the weights are torch's random initial ones.

    >>> try:
    ...     pm.zoo.vgg16(weights="nowhere.pth")
    ... except pm.FileError:
    ...     print("no such file")
    no such file
    """
    if weights is None:
        return VGG(_BLOCKS, hidden=4096, classes=1000).eval()
    with torch.device("meta"):  # saves drawing half a gigabyte of random weights
        shapes = VGG(_BLOCKS, hidden=4096, classes=1000)
    model = shapes.to_empty(device="cpu")
    fill(model, weights)
    return model.eval()
