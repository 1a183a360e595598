"""Load the images of a benchmark: from a data folder, or installed digits and photographs for a quick run."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from proofmap import data
from proofmap.bench.benchmark_file import Spec
from proofmap.errors import InputError

_Split = Literal["train", "test"]

_QUICK_DIGITS = 16  # packaged digits of a quick run
_PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "retina", "hubble_deep_field")  # images of scikit-image
_CIFAR_SIDE, _RESIZED_SIDE, _CROP_SIDE = 32, 256, 224  # pixels; pictures of ImageNet are resized, then cropped


def pictures(spec: Spec, folder: Path | None, quick: bool) -> Tensor:
    """Return the first test images or the last training images; with `quick`, packaged digits or photographs."""
    if spec.data not in _LOADERS:
        raise InputError(f"{spec.name} asks for the data {spec.data!r}, expected one of {', '.join(_LOADERS)}")
    if quick and folder is not None:
        raise InputError(
            f"got folder={str(folder)!r} and quick=True, expected one of them: a quick run uses installed images",
            arguments=("folder", "quick"),
        )
    if quick:
        if spec.data == "mnist":
            return data.digits()[0][:_QUICK_DIGITS]
        return _photographs(_CIFAR_SIDE if spec.data == "cifar10" else _CROP_SIDE)
    if folder is None:
        raise InputError(
            f"{spec.name} needs the files of {spec.data}, expected their folder, or quick=True",
            arguments=("folder", "quick"),
        )
    if spec.split == "validation":
        return _LOADERS[spec.data](folder, "train")[-spec.count :]
    found = _LOADERS[spec.data](folder, "test")
    if len(found) <= spec.start:
        raise InputError(
            f"{spec.name} uses samples from number {spec.start} on (earlier samples are for choosing settings), got "
            f"{len(found)} in {folder}: give a folder with more, or a TOML file of your own with start = 0"
        )
    return found[spec.start : spec.start + spec.count]


def _imagenet(folder: Path, split: _Split) -> Tensor:
    """Return the central crops of pictures resized to 256 pixels, in the order of their names."""
    if split == "train":
        raise InputError("got the validation split of imagenet, expected 'test': a folder of pictures has no parts")
    edge = (_RESIZED_SIDE - _CROP_SIDE) // 2
    return (
        data.images(folder, _RESIZED_SIDE).images[:, :, edge : edge + _CROP_SIDE, edge : edge + _CROP_SIDE].contiguous()
    )


_LOADERS: dict[str, Callable[[Path, _Split], Tensor]] = {
    "mnist": lambda folder, split: data.mnist(folder, split)[0],
    "cifar10": lambda folder, split: data.cifar10(folder, split)[0],
    "imagenet": _imagenet,
}


def _photographs(side: int) -> Tensor:
    """Return the scaled central squares of the photographs of scikit-image."""
    try:
        from skimage import data as photographs
    except ImportError as error:
        raise InputError(
            "a quick run on photographs needs scikit-image: pip install 'proofmap[superpixels]', or give the data's "
            "folder",
            arguments=("folder",),
        ) from error
    squares = []
    for name in _PHOTOGRAPHS:
        pixels = torch.from_numpy(np.array(getattr(photographs, name)()))[:, :, :3].permute(2, 0, 1).float() / 255
        short = min(pixels.shape[1:])
        top, left = ((length - short) // 2 for length in pixels.shape[1:])
        square = pixels[None, :, top : top + short, left : left + short]
        squares.append(F.interpolate(square, (side, side), mode="bilinear", antialias=True, align_corners=False))
    return torch.cat(squares).clamp(0, 1)
