"""Certificates: their size, the time to make and to check them, and the effect of proof trees.

    python benchmarks/certificates.py [--images 10] [--data FOLDER] [--seconds 10]
    python benchmarks/certificates.py cifar --data FOLDER [--images 1] [--eps 0.0002]

The network is the packaged MNIST network. The images are packaged digits, or the first test images of a folder with
MNIST. For each radius: B alone and the family of 144 cells, by Backward(), and with proof trees for the bounds of
Exact(). Each check is a new process, which includes the start of Python and numpy: `python check.py digit.proof
net.onnx digit.npy`. With `cifar`: the CIFAR-10 network, the first test images that it classifies correctly, B and 64
cells. Seconds are process time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import proofmap as pm
from proofmap.proof import check

RADII = (0.005, 0.01, 0.02)


@dataclass(frozen=True)
class Row:
    """The measurements of one certificate."""

    size: int
    made: float
    checked: float
    above: float  # the claimed upper bound minus the bound of the explanation
    below: float  # the value of the explanation's point minus the claimed lower bound; the median over all members
    proven: bool
    pairs: int  # proven pairs of groups in order, for float32
    reals: int  # the same over the reals


def measured(images: torch.Tensor, eps: float, groups: bool, exact: bool, seconds: float) -> Iterator[Row]:
    """Yield one row for each image; stop if the checker rejects a certificate."""
    bounds = pm.bounds.Exact(seconds=seconds) if exact else pm.bounds.Backward()
    grouping = pm.groups.grid(12) if groups else pm.groups.grid(1)
    eva = pm.EVA(pm.zoo.mnist_mlp(), pm.Ball(eps, domain=(0.0, 1.0)), groups=grouping, bounds=bounds, progress=False)
    for image in images:
        e = eva.explain(image[None])
        begin = time.process_time()
        certificate = e.certificate()
        made = time.process_time() - begin
        with tempfile.TemporaryDirectory() as folder:
            files = certificate.save(Path(folder) / "digit.proof")
            begin = _children()
            subprocess.run([sys.executable, check.__file__, *map(str, files)], check=True, capture_output=True)
            checked = _children() - begin
            size = files[0].stat().st_size
        above, below = certificate.full - float(e.overlap.full), 0.0
        if certificate.lower is not None:
            met = torch.cat([e.overlap.full_lower, e.overlap.frozen_lower[0]]).double().numpy()
            below = float(np.median(met - certificate.lower))
        pairs, reals = (len(certificate.order(reals=reals)) for reals in (False, True))
        yield Row(size, made, checked, above, below, certificate.proven, pairs, reals)


def _children() -> float:
    """Return the process time of all child processes, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cifar(folder: Path, count: int, eps: float) -> None:
    """Print a line for each image."""
    model = pm.zoo.cifar_cnn()
    images, labels = pm.data.cifar10(folder, "test")
    with torch.no_grad():
        right = [k for k in range(10 * count) if int(model(images[k][None]).argmax()) == int(labels[k])][:count]
    ball = pm.Ball(eps, domain=(0.0, 1.0))
    eva = pm.EVA(model, ball, groups=pm.groups.grid(8), bounds=pm.bounds.CrownIBP(), progress=False)
    print(f"CIFAR-10 network, eps {eps:g}, B and 64 cells\nimage    bytes  made s  checked s  AO(B) <=")
    for k in right:
        explanation, begin = eva.explain(images[k][None]), time.process_time()
        certificate = explanation.certificate()
        made = time.process_time() - begin
        with tempfile.TemporaryDirectory() as place:
            files = certificate.save(Path(place) / "image.proof")
            before = _children()
            subprocess.run([sys.executable, check.__file__, *map(str, files)], check=True, capture_output=True)
            checked = _children() - before
            print(
                f"{k:5d} {files[0].stat().st_size:8d} {made:7.1f} {checked:10.1f} {certificate.full:9.3f}", flush=True
            )


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", choices=("mnist", "cifar"), default="mnist")
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--data", type=Path, help="a folder with MNIST's files; by default the package's digits")
    parser.add_argument("--seconds", type=float, default=10.0, help="for Exact(), an image")
    parser.add_argument("--eps", type=float, default=0.0002, help="for cifar")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.network == "cifar":
        cifar(arguments.data, arguments.images, arguments.eps)
        return
    every, _ = pm.data.digits() if arguments.data is None else pm.data.mnist(arguments.data, "test")
    images = every[: arguments.images]
    print(f"{len(images)} images; medians, and the largest size; above: of the claim over the explanation's bound")
    print(
        "  eps  members  bounds     bytes  largest  made s  checked s   above   below  proven  in order  over the reals"
    )
    for eps in RADII:
        for groups in (False, True):
            for exact in (False, True):
                rows = list(measured(images, eps, groups, exact, arguments.seconds))
                names = ("size", "made", "checked", "above", "below", "pairs", "reals")
                middle = {name: statistics.median(getattr(row, name) for row in rows) for name in names}
                largest, proven = max(row.size for row in rows), sum(row.proven for row in rows)
                what = f"{eps:5g}  {1 + 144 * groups:7d}  {'trees' if exact else 'backward':8s}"
                print(
                    f"{what} {middle['size']:7.0f} {largest:8d} {middle['made']:7.2f} {middle['checked']:10.2f} "
                    f"{middle['above']:7.3f} {middle['below']:7.4f} {proven:4d}/{len(rows)}  {middle['pairs']:8.0f}  "
                    f"{middle['reals']:8.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
