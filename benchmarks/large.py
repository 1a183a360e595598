"""Bounds of networks of ImageNet size: the provable radii, seconds and memory.

python benchmarks/large.py [--networks resnet18 efficientnet-lite0] [--bounds backward crown-ibp ibp] [--eps 1e-6 1e-5]
    [--device cuda] [--memory BYTES]

ResNet-18 (He et al. 2016) has random weights, with batch norm statistics of noise: it measures size only.
EfficientNet-Lite0 is trained (pip install "proofmap[imagenet]"). The picture is noise. A bound is vacuous if it does
not prove the decision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import named
from proofmap.errors import ProofmapError

if TYPE_CHECKING:
    from benchmarks.lines import Line, table
    from benchmarks.measuring import machine
else:
    from lines import Line, table  # a script imports from its own folder
    from measuring import machine


class Basic(nn.Module):
    """A basic residual block: two convolutions, added to x."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = stride == 1 and channels == out
        self.way = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.way(x))


def resnet18() -> nn.Module:
    """Return ResNet-18: images (N, 3, 224, 224) to 1000 logits, 11.7 million parameters."""
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks, channels = [], 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        blocks.append(Basic(channels, out, stride))
        channels = out
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    with torch.no_grad():
        for _ in range(8):  # running statistics close to those of its inputs
            model.train()(torch.rand(4, 3, 224, 224))
    return model.eval()


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": resnet18,
    "efficientnet-lite0": pm.zoo.efficientnet_lite0,
}


def measured(name: str, bounds: str, eps: float, x: Tensor, memory: int | None) -> Line:
    """Measure one bound: AO(B) for the predicted class, seconds and peak memory."""
    graph = pm.trace(NETWORKS[name]().to(x.device), x)
    if x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    begin = time.perf_counter()
    found: float | str
    nominal = float("nan")
    try:
        overlap = pm.overlap(
            graph, x, pm.Ball(eps, domain=(0.0, 1.0)), bounds=named(bounds), memory=memory, rigorous=False
        )
        found, nominal = float(overlap.full), float(overlap.nominal)
    except ProofmapError as error:
        found = type(error).__name__
    seconds = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated() / 2**30 if x.is_cuda else float("nan")
    return {"network": name, "bounds": bounds, "eps": eps, "nominal": nominal, "AO": found, "s": seconds, "GiB": peak}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["resnet18"])
    parser.add_argument("--bounds", nargs="+", default=["crown-ibp", "backward"])
    parser.add_argument("--eps", type=float, nargs="+", default=[1e-6, 1e-5, 1e-4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory", type=int, help="bytes")
    args = parser.parse_args()
    print(machine(args.device))
    for name in args.networks:
        x = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
        for bounds in args.bounds:
            for eps in args.eps:
                print(table([measured(name, bounds, eps, x.to(args.device), args.memory)]), flush=True)


if __name__ == "__main__":
    main()
