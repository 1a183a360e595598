"""Alpha and Backward on whole families: bounds, seconds, and the ratio of their times.

    python benchmarks/alpha.py [--steps 20] [--cells 12] [--sharings one-pass shared] [--device cpu]
                               [--reference FOLDER] [--json FILE]

The networks are the packaged MLP on packaged digits and, with --reference, those of a folder with the subfolders
`reference` and `onnx`. It contains the bounds and seconds of another tool's optimised CROWN on five balls. "x faster"
is the time that the other tool would need for the whole family, divided by Alpha's time. "excess" is the largest
amount, over its four cells, by which Alpha's bound is above the other tool's bound, relative to the latter. MNIST
images are packaged; CIFAR-10 images come from the folder that PROOFMAP_DATA names, and are skipped without it.

On a CPU, seconds are process time on one thread, the least of three runs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import proofmap as pm

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder

REFERENCE_BALLS = 5  # the other tool's seconds are for this many balls
_TIMED_RUNS = 3


@dataclass(frozen=True)
class Question:
    """One image of a network with its ball and, if known, the other tool's bounds and seconds."""

    name: str
    graph: pm.Graph
    x: Tensor
    ball: pm.Ball
    picture: tuple[int, ...]  # the shape on which the grid of cells lies
    target: int | None = None
    bounds: tuple[float, ...] = ()  # the ball, and each of four cells of sixteen frozen
    seconds: float | None = None


def packaged(device: str) -> Iterator[Question]:
    """Yield digits of the package at two radii."""
    x = pm.data.digits()[0].to(device)
    graph = pm.trace(pm.zoo.mnist_mlp().to(device), x[:1])
    for index, eps in ((0, 0.01), (0, 0.02), (3, 0.02), (1, 0.04)):
        ball = pm.Ball(eps, domain=(0.0, 1.0))
        yield Question(f"mnist_mlp {index} ε {eps}", graph, x[index : index + 1], ball, (1, 28, 28))


def image(dataset: str, index: int) -> Tensor | None:
    """Return one test image in [0, 1]; None if the data is missing."""
    if dataset == "mnist":
        return pm.data.digits()[0][index]
    file = Path(os.environ.get("PROOFMAP_DATA", "")) / "cifar-10-batches-bin" / "test_batch.bin"
    if not file.is_file():
        return None
    record = np.fromfile(file, np.uint8, count=3073, offset=3073 * index)
    return torch.from_numpy(record[1:].reshape(3, 32, 32)).float() / 255


def referenced(folder: Path, device: str) -> Iterator[Question]:
    """Yield the images that the other tool has bounded."""
    for file in sorted((folder / "reference").glob("*.json")):
        figures: dict[str, Any] = json.loads(file.read_text())
        graph, shape = pm.load(folder / "onnx" / figures["net"]), tuple(figures["input"][1:])
        mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in figures["normalise"] or ([0.0], [1.0]))
        for case in figures["cases"]:
            pixels = image(figures["dataset"], case["index"])
            if pixels is None:
                continue
            ends = ((v - mean) / std for v in (pixels, torch.zeros_like(pixels), torch.ones_like(pixels)))
            eps = (case["eps"] / std).expand_as(pixels)
            x, low, high, radius = (v.reshape(1, *shape).to(device) for v in (*ends, eps))
            yield Question(
                f"{file.stem} {case['index']}",
                graph,
                x,
                pm.Ball(radius, domain=(low, high)),
                tuple(pixels.shape),
                case["label"],
                tuple(case["CROWN-Optimized"]),
                case["t_CROWN-Optimized"],
            )


def bound(question: Question, method: pm.bounds.Method, sharing: pm.bounds.Sharing, mask: Tensor) -> Tensor:
    """Return the bounds of the ball and of all members."""
    mask = mask.reshape(question.x.shape[1:]).to(question.x.device)
    x, ball = question.x, question.ball
    found = pm.overlap(
        question.graph, x, ball, groups=mask, bounds=method, sharing=sharing, target=question.target, rigorous=False
    )
    return torch.cat([found.full, found.frozen[0]]).cpu()


def measure(
    question: Question, method: pm.bounds.Method, sharing: pm.bounds.Sharing, cells: int
) -> tuple[Tensor, float]:
    """Return the bounds of all members, and the seconds."""
    mask, device = pm.groups.grid(cells)(question.picture), question.x.device

    def run() -> Tensor:
        return bound(question, method, sharing, mask)

    runs = [
        measuring.spent(run) if device.type == "cpu" else measuring.clocked(run, device) for _ in range(_TIMED_RUNS)
    ]
    return runs[0][0], min(seconds for _, seconds in runs)


def excess(question: Question, method: pm.bounds.Method, sharing: pm.bounds.Sharing) -> float:
    """Return the largest amount by which our bounds exceed the other tool's with each of its four cells frozen."""
    names = torch.full((16,), 4)
    names[[0, 5, 10, 15]] = torch.arange(4)
    ours = bound(question, method, sharing, names[pm.groups.grid(4)(question.picture)])[1:5]
    theirs = torch.tensor(question.bounds[1:])
    return float(((ours - theirs) / theirs.abs()).max())


def main() -> None:
    """Measure everything and print a table, and as JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cells", type=int, default=12)
    parser.add_argument("--sharings", nargs="+", default=["one-pass", "shared"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--reference", type=Path, help="a folder with `reference` and `onnx`")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    alpha, balls = pm.bounds.Alpha(args.steps), 1 + args.cells**2
    questions = [*packaged(args.device), *(referenced(args.reference, args.device) if args.reference else ())]
    print(f"{measuring.machine(args.device)}, {balls} balls, {args.steps} steps")
    print(
        f"{'':<24} {'sharing':<9} {'Backward B':>10} {'B_u':>9} {'s':>7} {'Alpha B':>10} {'B_u':>9} {'s':>7} "
        f"{'times':>6} {'other B':>9} {'excess':>8} {'x faster':>8}"
    )
    table = []
    for question in questions:
        for sharing in args.sharings:
            measure(question, pm.bounds.Backward(), sharing, 2)  # warm up
            plain, before = measure(question, pm.bounds.Backward(), sharing, args.cells)
            found, spent = measure(question, alpha, sharing, args.cells)
            row = {
                "question": question.name,
                "sharing": sharing,
                "backward": [float(plain[0]), float(plain[1:].mean()), before],
                "alpha": [float(found[0]), float(found[1:].mean()), spent],
                "other": question.bounds[0] if question.bounds else None,
                "excess": excess(question, alpha, sharing) if question.bounds else None,
                "faster": None if question.seconds is None else question.seconds / REFERENCE_BALLS * balls / spent,
            }
            table.append(row)
            other = f"{row['other']:9.4f} {row['excess']:8.4f} {row['faster']:8.1f}" if question.bounds else ""
            print(
                f"{question.name:<24} {sharing:<9} {plain[0]:10.4f} {plain[1:].mean():9.4f} {before:7.3f} "
                f"{found[0]:10.4f} {found[1:].mean():9.4f} {spent:7.3f} {spent / before:6.1f} {other}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(table))


if __name__ == "__main__":
    main()
