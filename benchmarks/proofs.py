"""Proofs by Exact, image by image: overlaps, orders of cells, decisions and properties, with summaries.

python benchmarks/proofs.py mlp     --out FOLDER --data FOLDER [--eps 0.01 0.02 0.04] [--images 100]
python benchmarks/proofs.py digits  --out FOLDER --data FOLDER [--eps 0.04] [--images 100]
python benchmarks/proofs.py verify  --out FOLDER --onnx FILE --npz FILE [--eps 0.3] [--device cuda --batch 200]
python benchmarks/proofs.py cifar   --out FOLDER --data FOLDER [--eps 0.004] [--images 100] [--device cuda --batch 50]
    [--onnx FILE --mean R G B --std R G B]
python benchmarks/proofs.py vnnlib  --out FOLDER --onnx FILE --vnnlib FILE ...
python benchmarks/proofs.py inputs  --out FOLDER [--eps 0.05 0.1 0.2] [--images 4] [--ways units boxes]
python benchmarks/proofs.py scores  --out FOLDER --data FOLDER [--eps 0.01 0.02 0.04] [--groups grid pixels]
    each with [--seconds 60] [--gap 1e-3] [--threads N] [--share K/N] [--summary]

Every image is a line of JSON in the folder --out. Images with a line are skipped: the same command continues a stopped
run. With --share 1/N to N/N, N processes divide the images. --summary prints the results so far.

mlp: the packaged MLP on MNIST's test images, 12 x 12 cells: both bounds of AO(B), and the proven order of cells.
digits: the packaged MLP on MNIST's test images: is the predicted class proven or refuted?
verify: a network on images (x uint8, y) of a file; an image is proven if all points of the ball have the class y.
cifar: the packaged CIFAR-10 network, or one from a file, on test images, for the predicted class.
vnnlib: properties: they hold, are violated, or stay open.
inputs: networks with five inputs and six layers of 50 ReLUs; searches split units only, or input boxes as well.
scores: maps by bounds and gradients compared with exact ones: rank correlation and the four metrics.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

import proofmap as pm
from proofmap.sources import Preparation, read_specification
from proofmap.verify.property import decide

if TYPE_CHECKING:
    from benchmarks import maps, measuring, tables
    from benchmarks.lines import Line, Lines, average, by, share, table
else:
    import maps  # a script imports from its own folder
    import measuring
    import tables
    from lines import Line, Lines, average, by, share, table


def mlp(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """Bound AO(B) from both sides and prove the order of cells, image by image."""
    x = pm.data.mnist(args.data, "test")[0]
    graph = pm.trace(pm.zoo.mnist_mlp(), x[:1])
    for key in keys:
        bounds, ball = pm.bounds.Exact(key["gap"], key["seconds"]), pm.Ball(key["eps"], domain=(0.0, 1.0))
        eva = pm.EVA(graph, ball, groups=pm.groups.grid(12), bounds=bounds, progress=False, rigorous=False)
        with measuring.parts() as parts:
            found, spent = measuring.clocked(partial(eva.explain, x[key["index"]][None]), "cpu")
        over, groups = found.overlap, found.scores.shape[1]
        widest = float(torch.maximum(over.full - over.full_lower, (over.frozen - over.frozen_lower).amax(1)))
        yield {
            **key,
            **_decision(over, 0),
            "widest": widest,
            "pairs": float(found.order().sum()) / (groups * (groups - 1) / 2),
            "top": int(found.top(10).sum()),
            "parts": sum(parts),
            "spent": spent,
        }


def digits(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """Decide test images for the packaged MLP."""
    pixels = pm.data.mnist(args.data, "test")[0]
    yield from _decisions(args, keys, pm.trace(pm.zoo.mnist_mlp(), pixels[:1]), pixels, None)


def verify(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """Decide images with labels for a network."""
    with np.load(args.npz) as file:
        pixels, labels = (torch.from_numpy(file[name]) for name in ("x", "y"))
    graph = pm.load(args.onnx)
    yield from _decisions(args, keys, graph, pixels.reshape(-1, *graph.input.shape).float() / 255, labels.long())


def cifar(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """Decide test images for the packaged network or one from a file."""
    pixels = pm.data.cifar10(args.data, "test")[0]
    graph = pm.trace(pm.zoo.cifar_cnn(), pixels[:1]) if args.onnx is None else pm.load(args.onnx)
    yield from _decisions(args, keys, graph, pixels, None)


def _decisions(
    args: argparse.Namespace, keys: Sequence[Line], graph: pm.Graph, pixels: Tensor, target: Tensor | None
) -> Iterator[Line]:
    """Decide several images in one call; each has an equal share of its seconds. The ball is in units of pixels."""
    device = torch.device(args.device)
    network = graph.to(device, torch.float32)
    bounds = pm.bounds.Exact(args.gap, args.seconds)
    mean, std = (torch.tensor(value).reshape(-1, 1, 1) for value in (args.mean, args.std))
    for eps, start in product(args.eps, range(0, len(keys), args.batch)):
        part = [key for key in keys if key["eps"] == eps][start : start + args.batch]
        if not part:
            continue
        index = torch.tensor([key["index"] for key in part])
        some = pixels[index]
        ends = (some, torch.zeros_like(some), torch.ones_like(some), mean + eps)
        x, low, high, radius = (((end - mean) / std).expand_as(some).to(device) for end in ends)
        aim = None if target is None else target[index].to(device)
        ask = partial(
            pm.overlap, network, x, pm.Ball(radius, domain=(low, high)), bounds=bounds, target=aim, enough=0.0
        )
        over, spent = measuring.clocked(ask, device)
        for k, key in enumerate(part):
            yield {**key, **_decision(over, k), "batch": len(part), "spent": spent / len(part)}


def _decision(over: pm.Overlap, k: int) -> Line:
    """Return the verdict about AO(B)."""
    lower, upper = float(over.full_lower[k]), float(over.full[k])
    verdict = "proven" if upper < 0 else "refuted" if lower > 0 else "open"
    return {"lower": lower, "upper": upper, "nominal": float(over.nominal[k]), "verdict": verdict}


def vnnlib(args: argparse.Namespace, keys: Sequence[Line]) -> Iterator[Line]:
    """Decide the properties of a network."""
    graph = pm.load(args.onnx)
    files = {file.name: file for file in args.vnnlib}
    device = torch.device(args.device)
    for key in keys:
        regions = read_specification(files[key["property"]], Preparation(shape=graph.input.shape))
        bounds = pm.bounds.Exact(args.gap, args.seconds)
        answer, spent = measuring.clocked(partial(decide, graph, regions, bounds=bounds, device=device), device)
        yield {**key, "verdict": answer.verdict, "margin": answer.margin, "left": answer.left, "spent": spent}


def images(args: argparse.Namespace, **more: object) -> list[Line]:
    """Return a key for each radius and image."""
    indices = range(args.start, args.start + args.images)
    common = {"seconds": args.seconds, "gap": args.gap, **more}
    return [{"eps": eps, "index": index, **common} for eps in args.eps for index in indices]


def show_orders(lines: Sequence[Line]) -> list[Line]:
    """Return a row for each radius."""
    return [
        {
            **settings,
            "images": len(some),
            "AO(B) closed": average(line["upper"] - line["lower"] <= line["gap"] for line in some),
            "all closed": average(line["widest"] <= line["gap"] for line in some),
            "pairs in order, median": median(line["pairs"] for line in some),
            "top 10 proven": average(line["top"] == 10 for line in some),
            **_verdicts(some),
            "parts": average(line["parts"] for line in some if "parts" in line),
        }
        for settings, some in by(lines, "eps", "seconds", "gap")
    ]


def show_decisions(lines: Sequence[Line]) -> list[Line]:
    """Return a row for each network, radius and time limit."""
    sorts = by(lines, "network", "eps", "seconds", "device")
    return [{**settings, "images": len(some), **_verdicts(some)} for settings, some in sorts]


def _verdicts(lines: Sequence[Line]) -> Line:
    shares = {word: average(line["verdict"] == word for line in lines) for word in ("proven", "refuted", "open")}
    return {**shares, "s/image": average(line["spent"] for line in lines)}


def show_properties(lines: Sequence[Line]) -> list[Line]:
    """Return a row for each property."""
    names = ("network", "property", "device", "verdict", "margin", "spent")
    ordered = sorted(lines, key=lambda line: (line["network"], line["property"]))
    return [{name: line[name] for name in names} for line in ordered]


@dataclass(frozen=True)
class Command:
    """One kind of work: its keys, the function that does it, and its summary."""

    keys: Callable[[argparse.Namespace], list[Line]]
    work: Callable[[argparse.Namespace, Sequence[Line]], Iterator[Line]]
    show: Callable[[Sequence[Line]], list[Line]]
    eps: tuple[float, ...] = ()
    count: int = 100


COMMANDS = {
    "mlp": Command(images, mlp, show_orders, (0.01, 0.02, 0.04)),
    "digits": Command(
        lambda args: images(args, network="mnist_mlp", device=args.device), digits, show_decisions, (0.04,)
    ),
    "verify": Command(
        lambda args: images(args, network=args.onnx.stem, device=args.device), verify, show_decisions, (0.3,), 200
    ),
    "cifar": Command(
        lambda args: images(args, network=args.onnx.stem if args.onnx else "cifar_cnn", device=args.device),
        cifar,
        show_decisions,
        (0.004,),
    ),
    "vnnlib": Command(
        lambda args: [
            {"network": args.onnx.stem, "property": file.name, "seconds": args.seconds, "device": args.device}
            for file in args.vnnlib
        ],
        vnnlib,
        show_properties,
    ),
    "inputs": Command(
        lambda args: [key for way in args.ways for key in images(args, way=way)],
        tables.inputs,
        tables.show,
        (0.05, 0.1, 0.2),
        4,
    ),
    "scores": Command(
        lambda args: [key for groups in args.groups for key in images(args, groups=groups)],
        maps.scores,
        maps.show,
        (0.01, 0.02, 0.04),
        50,
    ),
}


def main() -> None:
    """Do the missing work of one kind, or print the results so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        _options(subparsers.add_parser(name), command)
    args = parser.parse_args()
    command = COMMANDS[args.command]
    lines = Lines(args.out, args.command, args.share)
    if not args.summary:
        if args.threads:
            torch.set_num_threads(args.threads)
        missing = lines.missing(command.keys(args))
        print(f"{measuring.machine(args.device)}: {len(missing)} to do", flush=True)
        lines.write(command.work(args, missing))
    found = lines.read()
    print(table(command.show(found)) if found else f"no lines in {args.out} yet")


def _options(parser: argparse.ArgumentParser, command: Command) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the folder of the lines")
    parser.add_argument("--data", type=Path, help="a folder with the official files of MNIST, or of CIFAR-10")
    parser.add_argument("--onnx", type=Path)
    parser.add_argument("--mean", type=float, nargs="+", default=[0.0], help="of pixels, as an ONNX file wants them")
    parser.add_argument("--std", type=float, nargs="+", default=[1.0])
    parser.add_argument("--npz", type=Path, help="images as x uint8, classes as y")
    parser.add_argument("--vnnlib", type=Path, nargs="*", default=[])
    parser.add_argument("--eps", type=float, nargs="+", default=list(command.eps))
    parser.add_argument("--images", type=int, default=command.count)
    parser.add_argument("--start", type=int, default=0, help="the first image")
    parser.add_argument("--groups", nargs="+", choices=("grid", "pixels"), default=["grid", "pixels"])
    parser.add_argument("--ways", nargs="+", choices=("units", "boxes"), default=["units", "boxes"])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each image")
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1, help="images at once")
    parser.add_argument("--threads", type=int, help="of torch on a CPU")
    parser.add_argument("--share", type=share, default=(1, 1), metavar="K/N", help="every N-th image, from the K-th on")
    parser.add_argument("--summary", action="store_true", help="only show what is there")


if __name__ == "__main__":
    main()
