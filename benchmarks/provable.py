"""The packaged networks that were trained for proofs: proven decisions, and the metrics of maps at the proven radius.

python benchmarks/provable.py proofs --data FOLDER [--samples 100] [--seconds 1]
python benchmarks/provable.py maps   --data FOLDER [--samples 50]

proofs counts the decisions of the first test images that are right and proven at the radius of the training, by
`Backward` and by `Exact` with a time limit for each image. maps compares certified EVA at this radius with maps without
proofs, on images that both networks classify right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import proofmap as pm

_METHODS = ("eva", "blend", "smooth", "expected-gradients", "saliency")
_METRICS = ("deletion", "insertion", "mu-fidelity")


@dataclass(frozen=True)
class Kind:
    """A packaged network, its test images, and the radius of its training."""

    build: Callable[[], nn.Module]
    data: Callable[[Path, Any], tuple[Tensor, Tensor]]
    eps: float


KINDS = {
    "mnist_provable": Kind(pm.zoo.mnist_provable, pm.data.mnist, 0.1),
    "cifar_provable": Kind(pm.zoo.cifar_provable, pm.data.cifar10, 2 / 255),
}


def proofs(kind: Kind, name: str, args: argparse.Namespace) -> None:
    """Print how many decisions are right, and how many of them each method proves, with seconds per image."""
    images, labels = (part[: args.samples] for part in kind.data(args.data, "test"))
    model, ball = kind.build(), pm.Ball(kind.eps, domain=(0.0, 1.0))
    right = int((model(images).argmax(1) == labels).sum())
    print(f"{name}, ε = {kind.eps:.4g}, first {len(images)} test images: {right} right")
    for method in (pm.bounds.Backward(), pm.bounds.Exact(seconds=args.seconds)):
        start = time.perf_counter()
        overs = [
            pm.overlap(model, x[None], ball, target=y[None], bounds=method) for x, y in zip(images, labels, strict=True)
        ]
        seconds = (time.perf_counter() - start) / len(images)
        proven = sum(float(over.full) < 0 for over in overs)
        rigorous = all(over.rigorous for over in overs)
        covered = "rounding covered" if rigorous else "rounding not covered"
        print(f"  {type(method).__name__}: {proven} proven, {seconds:.2f} s per image, {covered}", flush=True)


def maps(kind: Kind, name: str, args: argparse.Namespace) -> None:
    """Print the metrics of certified EVA at the radius of the training, beside those of other maps."""
    images, labels = kind.data(args.data, "test")
    model = kind.build()
    right = (model(images[:500]).argmax(1) == labels[:500]).nonzero().flatten()[: args.samples]
    print(f"{name}, ε = {kind.eps:.4g}, {len(right)} test images")
    ball = pm.Ball(kind.eps, domain=(0.0, 1.0))
    print(pm.compare(model, images[right], list(_METHODS), list(_METRICS), ball=ball), flush=True)


def main() -> int:
    """Run one of both for each network."""
    parser = argparse.ArgumentParser(description="Proofs and maps of the networks that were trained for proofs.")
    parser.add_argument("what", choices=("proofs", "maps"))
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of MNIST and CIFAR-10")
    parser.add_argument("--samples", type=int, default=100, help="test images")
    parser.add_argument("--seconds", type=float, default=1.0, help="time limit of the search for each image")
    parser.add_argument("--only", choices=KINDS, help="one of the networks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, kind in KINDS.items():
        if args.only in (None, name):
            (proofs if args.what == "proofs" else maps)(kind, name, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
