"""No looser than another tool's CROWN, plain and optimised, on the four competition networks.

Where figures and images are at hand: the figures lie in ../shared/data/reference beside the checkout. MNIST images come
from the packaged digits; CIFAR-10 ones from the folder that PROOFMAP_DATA names (the official binary files under
cifar-10-batches-bin).
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.bounds import IBP, Alpha, Backward, CrownIBP, Method, Sharing

SHARED = Path(__file__).parents[3] / "shared" / "data"
NETWORKS = ["mnist-net_256x2", "Convnet_maxpool", "cifar_base_kw", "resnet_2b"]


def image(dataset: str, index: int) -> Tensor:
    if dataset == "mnist":
        return pm.data.digits()[0][index]
    file = Path(os.environ.get("PROOFMAP_DATA", "")) / "cifar-10-batches-bin" / "test_batch.bin"
    if not file.is_file():
        pytest.skip("no CIFAR-10: set PROOFMAP_DATA to the folder of cifar-10-batches-bin")
    record = np.fromfile(file, np.uint8, count=3073, offset=3073 * index)
    return torch.from_numpy(record[1:].reshape(3, 32, 32)).float() / 255


def cells(shape: tuple[int, ...]) -> Tensor:
    """Return a mask: cells 0, 5, 10 and 15 of a 4 x 4 grid, and a fifth group of the rest, which is not compared."""
    picture = (1, 28, 28) if 784 in shape else shape
    grid = pm.groups.grid(4)(picture)
    names = torch.full((16,), 4)
    names[[0, 5, 10, 15]] = torch.arange(4)
    return names[grid].reshape(shape)


def prepared(case: dict[str, Any], figures: dict[str, Any]) -> tuple[Tensor, pm.Ball, Tensor]:
    """Return (x, ball, mask). The ball is given in pixels and clipped to [0, 1], then normalised for the network."""
    shape = tuple(figures["input"][1:])
    pixels = image(figures["dataset"], case["index"])
    mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in figures["normalise"] or ([0.0], [1.0]))
    x, low, high = ((v - mean) / std for v in (pixels, torch.zeros_like(pixels), torch.ones_like(pixels)))
    eps = (case["eps"] / std).expand_as(pixels)
    x, low, high, eps = (v.reshape(1, *shape).double() for v in (x, low, high, eps))
    return x, pm.Ball(eps, domain=(low, high)), cells(shape)


def figures_of(name: str) -> dict[str, Any]:
    file = SHARED / "reference" / f"{name}.json"
    if not file.is_file():
        pytest.skip("the reference figures are not beside the checkout")
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures


def check(
    graph: pm.Graph,
    case: dict[str, Any],
    figures: dict[str, Any],
    bounds: Method,
    key: str,
    near: float,
    sharing: Sharing = "separate",
) -> None:
    """Compare the ball and its four members. The reference covers no rounding errors, so neither do these bounds."""
    x, ball, mask = prepared(case, figures)
    found = pm.overlap(
        graph, x, ball, groups=mask, bounds=bounds, sharing=sharing, target=case["label"], rigorous=False
    )
    ours = torch.cat([found.full, found.frozen[0, :4]])
    theirs = torch.tensor(case[key], dtype=torch.float64)
    assert bool((ours <= theirs + near * (1 + theirs.abs())).all()), (key, case["index"], ours.tolist(), case[key])


@pytest.mark.parametrize("name", NETWORKS)
def test_no_looser_than_the_reference(name: str) -> None:
    figures = figures_of(name)
    graph = pm.load(SHARED / "onnx" / figures["net"])
    for case in figures["cases"]:
        for bounds, key in ((IBP(), "IBP"), (CrownIBP(), "CROWN-IBP"), (Backward(), "CROWN")):
            check(graph, case, figures, bounds, key, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("sharing", "near"), [("separate", 1e-4), ("shared", 1e-3)])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_looser_than_the_reference_with_optimised_slopes(name: str, sharing: Sharing, near: float) -> None:
    figures = figures_of(name)
    graph = pm.load(SHARED / "onnx" / figures["net"])
    for case in figures["cases"]:
        check(graph, case, figures, Alpha(), "CROWN-Optimized", near, sharing)
