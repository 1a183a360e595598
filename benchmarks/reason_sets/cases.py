"""Networks, samples and balls whose sufficient sets are measured."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import proofmap as pm

PUBLISHED = ("mnist-10x2", "mnist-cnn")
PUBLISHED_COLUMNS = ("verix_size", "verix_s", "fame_size", "fame_s", "attack_lower_bound")
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)  # resnet_2b's


@dataclass(frozen=True, eq=False)
class Case:
    """A network with samples; `ball` takes a radius in the units of the inputs before they are normalised."""

    model: pm.Graph | torch.nn.Module
    x: Tensor  # all samples
    labels: Tensor
    ball: Callable[[float], pm.Ball]
    names: tuple[str, ...] = ()

    def on(self, device: str) -> pm.Graph:
        """Return the network as a graph on a device."""
        graph = self.model if isinstance(self.model, pm.Graph) else pm.trace(self.model, self.x[:1])
        return graph.to(torch.device(device), torch.float32)


def groups_of(name: str) -> Any:
    """Return groups by name: pixels, columns, or cells7 for a grid of 7 x 7."""
    if name.startswith("cells"):
        return pm.groups.grid(int(name.removeprefix("cells")))
    return {"pixels": pm.groups.pixels(), "columns": None}[name]


def published_rows(folder: Path, network: str) -> list[dict[str, str]]:
    """Return the published sizes and seconds, a row for each image."""
    with (folder / f"{network}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def mnist_file(folder: str, file: str, data: str, split: Literal["train", "test"]) -> Case:
    """An ONNX network for MNIST's images in [0, 1]."""
    x, labels = pm.data.mnist(data, split)
    return Case(pm.load(Path(folder) / f"{file}.onnx"), x, labels, _unit_ball)


@cache
def mnist_mlp(data: str, split: Literal["train", "test"]) -> Case:
    """The packaged MLP; without data the packaged digits."""
    x, labels = pm.data.mnist(data, split) if data else pm.data.digits()
    return Case(pm.zoo.mnist_mlp(), x, labels, _unit_ball)


@cache
def cifar(network: str, data: str, verify: bool) -> Case:
    """A packaged network for CIFAR-10's images in [0, 1]."""
    x, labels = pm.data.cifar10(data, "test", verify=verify)
    return Case(getattr(pm.zoo, network)(), x, labels, _unit_ball)


@cache
def normalised_cifar(onnx: str, data: str, verify: bool) -> Case:
    """An ONNX network whose inputs are normalised pixels."""
    x, labels = pm.data.cifar10(data, "test", verify=verify)
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (CIFAR_MEAN, CIFAR_STD))
    low, high = ((end - mean) / std for end in (torch.zeros(3, 32, 32), torch.ones(3, 32, 32)))

    def ball(eps: float) -> pm.Ball:
        return pm.Ball((eps / std).expand(3, 32, 32), domain=(low, high))

    return Case(pm.load(onnx), (x - mean) / std, labels, ball)


@cache
def table(name: str) -> Case:
    """scikit-learn's breast cancer or wine data with a small network; the radius is a share of each column's range."""
    from sklearn.datasets import load_breast_cancer, load_wine
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = {"breast_cancer": load_breast_cancer, "wine": load_wine}[name]()
    train, test, labels, truth = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
    network = MLPClassifier((16,), solver="lbfgs", alpha=1.0, max_iter=500, random_state=0)
    classifier = make_pipeline(StandardScaler(), network).fit(train, labels)
    domain = pm.Domain.from_data(train, names=data.feature_names).including(test)
    x = torch.from_numpy(np.ascontiguousarray(test, dtype=np.float32))
    return Case(
        pm.from_sklearn(classifier),
        x,
        torch.from_numpy(truth),
        lambda eps: pm.Ball(domain.eps(eps), domain=domain),
        tuple(data.feature_names),
    )


def _unit_ball(eps: float) -> pm.Ball:
    return pm.Ball(eps, domain=(0.0, 1.0))
