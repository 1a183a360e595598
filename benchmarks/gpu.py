"""Hundreds of explanations on one device: their time, its ratio to the arithmetic alone, and where the time goes.

python benchmarks/gpu.py [--device cuda|cpu] [--rows mnist cifar10 vgg16] [--data FOLDER] [--repeats 3] [--json FILE]
    [--images-mnist 500] [--images-cifar10 500] [--images-vgg16 100] [--samples 100]
    [--eps-mnist 0.01] [--eps-cifar10 0.002] [--eps-vgg16 0.02] [--precision float16|bfloat16|float32]

EVA with backward bounds for the two small networks, and hybrid EVA for VGG16. Each has a 12 x 12 grid, and all images
are explained in one call.

    floor = operations of the matrix products and convolutions / the rate of one large matrix product on this device

Times are the best of some repeats. Operations and shares of time come from separate runs with fewer images, because
counting slows them down. Without --data, the digits are packaged ones, repeated, and the other images are noise. VGG16
has random weights and noise as images, which is enough to measure time.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import proofmap as pm
from proofmap.explainers.explainer import Explainer
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.runtime.precision import full_precision

if TYPE_CHECKING:
    from benchmarks import hybrid, measuring
else:
    import hybrid  # a script imports from its own folder
    import measuring

_PRODUCT = re.compile(
    r"gemm|gemv|splitk|cutlass|nvjet|xmma|conv(?!ert)|[dfw]grad|fprop|winograd|mm$|linear|matmul", re.I
)
_LARGE_MATRIX_SIDE = {"cuda": 8192, "cpu": 1024}  # for the product that measures the device's rate


@dataclass(frozen=True, eq=False)
class Row:
    """Some images, their explainer, and the operations that it needs."""

    explainer: Explainer
    x: Tensor
    images: str  # a description of the images
    target: str
    few: int  # the number of images for counting operations and shares of time
    precision: torch.dtype  # the precision of nearly all products
    check: Callable[[], dict[str, float]]
    full: float = 0.0  # operations per image that are in float32 with any precision


def mnist(args: argparse.Namespace) -> Row:
    """EVA of the packaged MLP on test digits."""
    pixels = pm.data.digits()[0] if args.data is None else pm.data.mnist(args.data, "test")[0]
    x = pixels.repeat(-(-args.images_mnist // len(pixels)), 1, 1, 1)[: args.images_mnist]
    kind = "packaged digits, repeated" if args.data is None else "test digits"
    eva, check = certified(pm.trace(pm.zoo.mnist_mlp(), x[:1]), x, args.eps_mnist, args.device, 4)
    return Row(eva, x.to(args.device), kind, "0.04 s for 500", 500, torch.float32, check)


def cifar10(args: argparse.Namespace) -> Row:
    """EVA of the paper's CIFAR-10 network on test images."""
    if args.data is None:
        x = torch.rand(args.images_cifar10, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    else:
        x = pm.data.cifar10(args.data, "test")[0][: args.images_cifar10]
    kind = "uniform noise" if args.data is None else "test images"
    eva, check = certified(pm.trace(pm.zoo.cifar_cnn(), x[:1]), x, args.eps_cifar10, args.device, 2)
    return Row(eva, x.to(args.device), kind, "10 s for 500", 100, torch.float32, check)


def vgg16(args: argparse.Namespace) -> Row:
    """Hybrid EVA of VGG16 with random weights on noise: samples in float32, recomputed parts in low precision."""
    torch.manual_seed(0)
    model, split = hybrid.vgg16(None)
    x = torch.rand(args.images_vgg16, 3, 224, 224)
    graph = pm.trace(model, x[:1]).to(torch.device(args.device), torch.float32)
    x = x.to(args.device)
    ball = pm.Ball(args.eps_vgg16, domain=(0.0, 1.0))
    precision: torch.dtype = getattr(torch, args.precision)

    def explainer(low: torch.dtype) -> pm.HybridEVA:
        settings: dict[str, Any] = {"groups": pm.groups.grid(12), "batch": len(x), "progress": False}
        own = None if low == torch.float32 else low
        return pm.HybridEVA(graph, ball, split=split, samples=args.samples, precision=own, **settings)

    def check() -> dict[str, float]:
        found, truth = (explainer(one).explain(x[:1]) for one in (precision, torch.float32))
        return {"rank correlation with float32": measuring.rank_correlation(found.scores, truth.scores)}

    head, _ = cut(graph, split)
    full = float(args.samples * measuring.operations(lambda: head(x[:1])))
    return Row(explainer(precision), x, "uniform noise, random weights", "40 s for 100", 4, precision, check, full)


def certified(
    graph: pm.Graph, x: Tensor, eps: float, device: str, few: int
) -> tuple[pm.EVA, Callable[[], dict[str, float]]]:
    """EVA with backward bounds, shared; `check` compares a few of its bounds with float64 on the CPU."""
    ball, cells = pm.Ball(eps, domain=(0.0, 1.0)), pm.groups.grid(12)
    eva = pm.EVA(
        graph.to(torch.device(device), torch.float32), ball, groups=cells, batch=len(x), progress=False, rigorous=False
    )

    def check() -> dict[str, float]:
        found = eva.explain(x[:few].to(device))
        truth = pm.EVA(graph, ball, groups=cells, progress=False, rigorous=False).explain(x[:few].double())
        pair = [(one.overlap.full.cpu(), one.overlap.frozen.cpu()) for one in (found, truth)]
        return {
            "largest relative difference from float64": measuring.largest_difference(*pair),
            "rank correlation with float64": measuring.rank_correlation(found.scores, truth.scores),
        }

    return eva, check


BENCHMARKED: dict[str, Callable[[argparse.Namespace], Row]] = {"mnist": mnist, "cifar10": cifar10, "vgg16": vgg16}


def rate(device: str, precision: torch.dtype) -> float:
    """Return the operations per second of one large matrix product, the best of ten; float32 is not rounded to TF32."""
    side = _LARGE_MATRIX_SIDE[torch.device(device).type]
    a, b = (torch.randn(side, side, device=device).to(precision) for _ in range(2))
    with full_precision(torch.device(device)):
        return 2.0 * side**3 / min(measuring.clocked(lambda: a @ b, device)[1] for _ in range(10))


def shares(call: Callable[[], object], device: str) -> dict[str, Any]:
    """Return the shares of a call's time: by kernel on a GPU, by torch operator on a CPU."""
    _, wall = measuring.clocked(call, device)
    cuda = torch.device(device).type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as profiler:
        measuring.clocked(call, device)
    spent: dict[str, float] = {}
    launches = 0
    for event in profiler.key_averages():
        if event.device_type.name == ("CUDA" if cuda else "CPU"):
            launches += event.count
            micro = event.self_device_time_total if cuda else event.self_cpu_time_total
            spent[event.key] = spent.get(event.key, 0.0) + micro / 1e6
    busy = sum(spent.values())
    products = sum(seconds for name, seconds in spent.items() if _PRODUCT.search(name))
    costliest = sorted(spent, key=lambda name: -spent[name])[:5]
    return {
        "products and convolutions, share of busy time": products / busy,
        "elementwise, gather, scatter, sort, copy, share of busy time": 1 - products / busy,
        "nothing runs, share of wall time": max(0.0, 1 - busy / wall),
        "kernels started": launches,
        "costliest": {name[:90]: round(spent[name] / busy, 3) for name in costliest},
    }


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one row. Timed runs come first: counting prevents the compilation of kernels."""
    row = BENCHMARKED[name](args)
    count, some = len(row.x), row.x[: row.few]
    row.explainer.explain(some)  # warm up
    with measuring.Memory(args.device) as memory:
        seconds = min(
            measuring.clocked(lambda: row.explainer.explain(row.x), args.device)[1] for _ in range(args.repeats)
        )
    where = shares(lambda: row.explainer.explain(some), args.device)
    checked = row.check()
    operations = measuring.operations(lambda: row.explainer.explain(some)) / len(some) * count
    full, peak = count * row.full, rate(args.device, row.precision)
    floor = (operations - full) / peak + (full / rate(args.device, torch.float32) if full else 0.0)
    return {
        "images": f"{count}, {row.images}",
        "seconds": seconds,
        "seconds an image": seconds / count,
        "target": row.target,
        "most memory, GB": memory.most / 1e9,
        "operations, 1e12": operations / 1e12,
        f"rate of a product in {str(row.precision).removeprefix('torch.')}, 1e12 a second": peak / 1e12,
        "in float32 whatever the precision, 1e12": full / 1e12,
        "floor, seconds": floor,
        "time / floor": seconds / floor,
        "images of the shares": len(some),
        **where,
        **checked,
    }


def main() -> None:
    """Measure each row and print a line for each number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", nargs="+", choices=BENCHMARKED, default=list(BENCHMARKED))
    parser.add_argument("--data", type=Path, help="a folder with the official files of MNIST and CIFAR-10")
    parser.add_argument("--repeats", type=int, default=3)
    for name, images, eps in (("mnist", 500, 0.01), ("cifar10", 500, 0.002), ("vgg16", 100, 0.02)):
        parser.add_argument(f"--images-{name}", type=int, default=images)
        parser.add_argument(f"--eps-{name}", type=float, default=eps)
    parser.add_argument("--samples", type=int, default=100, help="of hybrid EVA")
    parser.add_argument("--precision", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(measuring.machine(args.device))
    found = {}
    for name in args.rows:
        found[name] = measuring.alone(measure, name, args)
        print(f"\n{name}")
        for key, value in found[name].items():
            print(f"{key:>62}: {value:.4g}" if isinstance(value, float) else f"{key:>62}: {value}", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": measuring.machine(args.device), "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
