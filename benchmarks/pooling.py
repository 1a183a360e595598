"""Max pools rewritten as maxima of two values, whose differences are bounded, compared with plain max pools.

    python benchmarks/pooling.py --data FOLDER [--images 20] [--eps 0.0005 0.001 0.002 0.004 0.008]

For the paper's CIFAR-10 network and its first test images, with backward bounds without groups: the mean certified
AO(B), the decisions that are proven and those that an attack refutes, and the seconds per image. Pools are rewritten as
maxima of two, or bounded by the intervals of their inputs.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import torch

import proofmap as pm
from proofmap.attack import pgd
from proofmap.bounds import engine


def main() -> None:
    """Print a line for each radius and way of bounding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder with CIFAR-10's binary files")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--eps", type=float, nargs="+", default=[0.0005, 0.001, 0.002, 0.004, 0.008])
    args = parser.parse_args()
    x = pm.data.cifar10(args.data, "test")[0][: args.images]
    graph = pm.trace(pm.zoo.cifar_cnn(), x)
    print(f"{len(x)} images, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'ε':>8} {'pools by':12} {'AO(B)':>10} {'proven':>7} {'refuted':>8} {'s/image':>8}")
    for eps in args.eps:
        ball = pm.Ball(eps, domain=(0.0, 1.0))
        target = graph(x).argmax(1)
        met, _ = pgd.attack(graph, ball.at(x), target, restarts=3)
        for name in ("intervals", "differences"):
            way: AbstractContextManager[Any] = nullcontext()
            if name == "intervals":
                way = mock.patch.object(engine, "with_pairwise_maxima", lambda graph, like: graph)
            with way:
                started = time.perf_counter()
                found = pm.overlap(graph, x, ball, rigorous=False).full
                seconds = (time.perf_counter() - started) / len(x)
            proven, refuted = int((found < 0).sum()), int((met > 0).sum())
            print(f"{eps:8g} {name:12} {float(found.mean()):10.3f} {proven:7} {refuted:8} {seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
