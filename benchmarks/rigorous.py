"""The cost of rounding analysis: rigorous / plain, in time and in bounds.

    python benchmarks/rigorous.py [--images 4] [--repeat 3] [--data FOLDER] [--json FILE]
    python benchmarks/rigorous.py --networks cifar_vit --methods backward --images 1 --repeat 1 --eps 1e-5 [--double]

The packaged MLP with 144 cells and the packaged CIFAR-10 network with 64 cells, ε = 0.01 and 1/255, sharing "shared".
The pictures are training images of CIFAR-10 from FOLDER, or noise of the same size. Both variants are run `repeat`
times in turn; the least process time counts. Searches end when both bounds meet, or when rounding errors keep them
apart: `apart` is the remaining distance. On the larger network no search ends, so searches are skipped there.
The packaged transformer has no cells, at the radius that is given; `--double` computes its bounds in float64.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import proofmap as pm

TIMED_METHODS: dict[str, pm.bounds.Method] = {
    "ibp": pm.bounds.IBP(),
    "crown-ibp": pm.bounds.CrownIBP(),
    "forward": pm.bounds.Forward(),
    "backward": pm.bounds.Backward(),
    "alpha": pm.bounds.Alpha(steps=5),
    "exact": pm.bounds.Exact(seconds=30),
}


def main() -> None:
    """Print a line for each network, precision and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--networks", nargs="+", default=["mnist_mlp", "cifar_cnn"])
    parser.add_argument("--methods", nargs="+", default=list(TIMED_METHODS))
    parser.add_argument("--eps", type=float, default=1e-5, help="the radius for cifar_vit")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.networks:
        net, x, ball, groups = _setting(name, args.images, args.data, args.eps)
        if args.double:
            net, x = net.double(), x.double()
        for method in args.methods:
            if name == "cifar_cnn" and method in ("forward", "exact"):  # they need too much memory
                continue
            rows.append({"network": name, "bounds": method, **_compared(net, x, ball, groups, method, args.repeat)})
            print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


def _setting(name: str, images: int, data: Path | None, eps: float) -> tuple[nn.Module, Tensor, pm.Ball, Any]:
    if name == "mnist_mlp":
        return pm.zoo.mnist_mlp(), pm.data.digits()[0][:images], pm.Ball(0.01, domain=(0, 1)), pm.groups.grid(12)
    noise = torch.rand(images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    x = noise if data is None else pm.data.cifar10(data, "train")[0][:images]
    if name == "cifar_vit":
        return pm.zoo.cifar_vit(), x, pm.Ball(eps, domain=(0, 1)), None
    return pm.zoo.cifar_cnn(), x, pm.Ball(1 / 255, domain=(0, 1)), pm.groups.grid(8)


def _compared(net: nn.Module, x: Tensor, ball: pm.Ball, groups: Any, method: str, repeat: int) -> dict[str, float]:
    seconds, found = {False: float("inf"), True: float("inf")}, {}
    if repeat > 1:
        pm.overlap(net, x[:1], ball, groups=groups, bounds=TIMED_METHODS[method])  # warm up
    for _ in range(repeat):
        for rigorous in (False, True):
            start = time.process_time()
            found[rigorous] = pm.overlap(net, x, ball, groups=groups, bounds=TIMED_METHODS[method], rigorous=rigorous)
            seconds[rigorous] = min(seconds[rigorous], time.process_time() - start)
    more = found[True].full - found[False].full
    return {
        "seconds": round(seconds[False], 4),
        "ratio": round(seconds[True] / seconds[False], 2),
        "overlap": round(float(found[False].full.mean()), 3),
        "radius_mean": round(float(more.mean()), 5),
        "radius_most": round(float(more.max()), 5),
        "apart": round(float((found[True].full - found[True].full_lower).max()), 5),
    }


if __name__ == "__main__":
    main()
