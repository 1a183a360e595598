"""Backward bounds of a convolutional network with 144 groups: seconds, memory, and the number of bounded entries.

python benchmarks/convolutions.py [--onnx FILE] [--mean R G B] [--std R G B] [--eps 0.002] [--images 1] [--data FOLDER]
    [--memory BYTES] [--dense]

The network is the paper's CIFAR-10 network, or an ONNX file; --mean and --std are its normalisation of pixels. ε is in
units of pixels. The images are CIFAR-10's test images from the folder of the official files, or noise.

Each measurement runs in a new process. Its memory is the peak minus the memory at the start. "to input" counts the
entries of hidden layers whose forms were carried back to the input; "prefiltered" counts those that were carried back
over a few layers only. --memory adds a measurement with a memory budget. --dense adds one with dense forms instead of
windows. Both must give the bounds of the first run with the same sharing: "difference" is the largest difference,
relative to the largest bound.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import proofmap as pm
from proofmap.bounds import Backward, Method
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.method import Plan

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder

SHARINGS: tuple[pm.bounds.Sharing, ...] = ("shared", "one-pass")


@dataclass(frozen=True)
class Measurement:
    """The results of one measurement."""

    seconds: float  # per image
    peak: int
    bounded: Counter[str]  # hidden entries by the name of the pass that bounded them
    full: Tensor
    frozen: Tensor


def problem(args: argparse.Namespace) -> tuple[pm.Graph, Tensor, pm.Ball]:
    """Return (graph, x, ball), all in the units of the network's input."""
    graph = pm.trace(pm.zoo.cifar_cnn(), torch.zeros(1, 3, 32, 32)) if args.onnx is None else pm.load(args.onnx)
    if args.data is None:
        pixels = torch.rand(args.images, *graph.input.shape, generator=torch.Generator().manual_seed(0))
    else:
        pixels = pm.data.cifar10(args.data, "test")[0][: args.images]
    mean, std = (torch.tensor(value).reshape(-1, 1, 1) for value in (args.mean, args.std))
    x, low, high = ((value - mean) / std for value in (pixels, torch.zeros_like(pixels), torch.ones_like(pixels)))
    return graph, x, pm.Ball((args.eps / std).expand_as(pixels), domain=(low, high))


_DENSE_PASS = BackwardPass(windows=False)


class Dense(Method):
    """Backward bounds with dense forms."""

    plans = (Plan(hidden=(_DENSE_PASS,), final=(_DENSE_PASS,)),)


def measure(args: argparse.Namespace, sharing: pm.bounds.Sharing, dense: bool, memory: int | None) -> Measurement:
    """Measure one call of `pm.overlap`. It patches the library to count, so it needs its own process."""
    graph, x, ball = problem(args)
    bounded = count_entries()
    method = Dense() if dense else Backward()
    pm.overlap(graph, x, ball, bounds=pm.bounds.CrownIBP(), rigorous=False)  # warm up; bounds no hidden entry backward

    def call() -> pm.Overlap:
        return pm.overlap(
            graph, x, ball, groups=pm.groups.grid(12), bounds=method, sharing=sharing, memory=memory, rigorous=False
        )

    with measuring.Memory("cpu") as watched:
        over, seconds = measuring.clocked(call, "cpu")
    return Measurement(seconds / len(x), watched.beyond, bounded, over.full, over.frozen)


def count_entries() -> Counter[str]:
    """Count from now on the entries carried back to the input, and those carried back over a few layers only."""
    bounded: Counter[str] = Counter()

    def counting(name: str) -> None:
        method = getattr(BackwardBounder, name)

        def counted(self: Any, node: str, rows: Any, *rest: Any) -> Any:
            bounded[name] += len(rows)
            return method(self, node, rows, *rest)

        setattr(BackwardBounder, name, counted)

    counting("tighten")
    counting("bound_over_last_layers")
    return bounded


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options for the network, the images and the ball."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnx", type=Path)
    parser.add_argument("--mean", type=float, nargs="+", default=[0.0])
    parser.add_argument("--std", type=float, nargs="+", default=[1.0])
    parser.add_argument("--eps", type=float, default=0.002)
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--data", type=Path)
    return parser


def main() -> None:
    """Run each measurement in a new process and print a line for it."""
    parser = parser_of(__doc__)
    parser.add_argument("--memory", type=int, help="a budget in bytes to measure as well")
    parser.add_argument("--dense", action="store_true", help="measure forms without windows as well: slow")
    args = parser.parse_args()
    network = "the paper's CIFAR-10 network" if args.onnx is None else args.onnx.name
    images = f"images: {args.images}, {'noise' if args.data is None else 'from the test set'}"
    print(f"{network}; {images}; 144 groups, ε {args.eps}; {measuring.machine('cpu')}")
    print(
        f"{'forms':<8} {'sharing':<9} {'budget MB':>9} {'s/image':>9} {'peak MB':>8} {'to input':>9} "
        f"{'prefiltered':>11} {'AO(B)':>9} {'mean AO(B_u)':>12} {'difference':>10}"
    )
    ways: list[tuple[bool, int | None]] = [(False, None)]
    ways += [(False, args.memory)] if args.memory else []
    ways += [(True, None)] if args.dense else []
    for sharing in SHARINGS:
        first = None
        for dense, memory in ways:
            found = measuring.alone(measure, args, sharing, dense, memory)
            first = first or found
            difference = measuring.largest_difference((found.full, found.frozen), (first.full, first.frozen))
            print(
                f"{'dense' if dense else 'windows':<8} {sharing:<9} {memory / 1e6 if memory else '-':>9} "
                f"{found.seconds:9.3f} {found.peak / 1e6:8.0f} {found.bounded['tighten']:9} "
                f"{found.bounded['bound_over_last_layers']:11} "
                f"{found.full.mean():9.4f} {found.frozen.mean():12.4f} {difference:10.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
