"""Growth of seconds and memory with the groups, the images, and the network's depth, width and input.

python benchmarks/growth.py [--device cpu|cuda] [--quick] [--repeats 3] [--budget 20] [--json FILE] [--plot FILE.png]
python benchmarks/growth.py --from cpu.json cuda.json --plot FILE.png

One size grows at a time. The others stay at 144 groups, 4 images and small networks with random weights and a fixed
seed (the MNIST network is packaged). On a CPU, each measurement runs in a new process. A size is skipped if the last
points of its curve predict more seconds than the budget; its cell stays empty. "grows as" is the exponent p of size^p,
fitted to the last three points.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle, pairwise
from math import log
from pathlib import Path
from statistics import linear_regression
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import proofmap as pm

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder

SHARINGS: tuple[pm.bounds.Sharing, ...] = ("shared", "one-pass", "separate")
COLOURS = {"shared": "#0072b2", "one-pass": "#009e73", "separate": "#d55e00"}  # distinguishable for the colour-blind
STYLES = ("-", "--", ":", "-.")
EPS = 0.005


@dataclass(frozen=True)
class Point:
    """One measurement: all images of one size, bounded in one call."""

    axis: str
    size: int
    sharing: str
    seconds: float
    peak: int


@dataclass(frozen=True)
class Run:
    """The measurements of one machine."""

    machine: str
    points: tuple[Point, ...]

    def curve(self, axis: str, sharing: str) -> list[Point]:
        """Return the points of a curve, ordered by size."""
        return sorted((p for p in self.points if (p.axis, p.sharing) == (axis, sharing)), key=lambda p: p.size)


Case = tuple[nn.Module, Tensor, int]  # the model, the images, and the cells of the grid on each side


def _digits(count: int) -> Tensor:
    pixels = pm.data.digits()[0]
    return pixels.repeat(-(-count // len(pixels)), 1, 1, 1)[:count]


def _he(model: nn.Module) -> nn.Module:
    """Set random weights that keep the scale of the values (He et al. 2015)."""
    torch.manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return model.eval()


def _mlp(width: int, depth: int) -> nn.Module:
    """Return a network with 784 inputs, `depth` hidden layers of one width, and 10 classes."""
    sizes = [784, *[width] * depth, 10]
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return _he(nn.Sequential(nn.Flatten(), *layers[:-1]))


def _picture(side: int) -> Case:
    """Return two strided convolutions and a dense layer, for 3 channels of side x side."""
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten()]
    model = _he(nn.Sequential(*layers, nn.Linear(16 * (side // 4) ** 2, 10)))
    return model, torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(0)), 12


CASES: dict[str, Callable[[int], Case]] = {
    "groups": lambda size: (pm.zoo.mnist_mlp(), _digits(4), round(size**0.5)),
    "images": lambda size: (pm.zoo.mnist_mlp(), _digits(size), 12),
    "hidden layers": lambda size: (_mlp(128, size), _digits(4), 12),
    "layer width": lambda size: (_mlp(size, 3), _digits(4), 12),
    "image side": _picture,
}
SIZES = {
    "groups": (4, 16, 64, 144, 256, 784),
    "images": (1, 4, 16, 64, 256, 1024),
    "hidden layers": (2, 4, 8, 16),
    "layer width": (64, 128, 256, 512, 1024, 2048),
    "image side": (16, 32, 64, 96, 128),
}
QUICK = {
    "groups": (4, 16, 144, 784),
    "images": (1, 4, 16),
    "hidden layers": (2, 4, 8),
    "layer width": (64, 256, 1024),
    "image side": (16, 32, 64),
}


def measure(axis: str, size: int, sharing: pm.bounds.Sharing, device: str, repeats: int) -> Point:
    """Return the best time of some repeats, and the peak memory minus the memory at the start."""

    def prepared(size: int) -> Callable[[], pm.Overlap]:
        model, x, side = CASES[axis](size)
        graph = pm.trace(model, x[:1]).to(torch.device(device), torch.float32)
        x, ball = x.to(device), pm.Ball(EPS, domain=(0.0, 1.0))
        return lambda: pm.overlap(graph, x, ball, groups=pm.groups.grid(side), sharing=sharing, rigorous=False)

    prepared(SIZES[axis][0])()  # warm up
    call = prepared(size)
    with measuring.Memory(device) as memory:
        seconds = min(measuring.clocked(call, device)[1] for _ in range(repeats))
    return Point(axis, size, sharing, seconds, memory.beyond)


def foretold(curve: list[Point], size: int) -> float:
    """Predict the seconds from the last two points; from one point, assume quadratic growth."""
    if not curve:
        return 0.0
    power = max(1.0, exponent(curve[-2:], "seconds") or 2.0)
    return curve[-1].seconds * float((size / curve[-1].size) ** power)


def exponent(curve: list[Point], what: str) -> float | None:
    """Fit p in what ~ size^p by least squares to the last three points; None if fewer than two have a value."""
    shown = [p for p in curve[-3:] if getattr(p, what) > 0]
    if len(shown) < 2:
        return None
    return linear_regression([log(p.size) for p in shown], [log(getattr(p, what)) for p in shown]).slope


def measure_all(args: argparse.Namespace) -> Run:
    """Measure every axis with every sharing until the budget is predicted to be exceeded; print tables on the way."""
    run = Run(measuring.machine(args.device), ())
    print(f"{run.machine}, ε {EPS}, {args.budget:g} s a measurement at most\n")
    for axis, sizes in (QUICK if args.quick else SIZES).items():
        for sharing in SHARINGS:
            curve: list[Point] = []
            for size in sizes:
                if args.repeats * foretold(curve, size) > args.budget:
                    break
                work = (axis, size, sharing, args.device, args.repeats)
                curve.append(measure(*work) if args.device == "cuda" else measuring.alone(measure, *work))
            run = Run(run.machine, (*run.points, *curve))
        print(table(run, axis, sizes), flush=True)
    return run


def table(run: Run, axis: str, sizes: tuple[int, ...]) -> str:
    """Return a Markdown table with seconds and megabytes of every sharing, and their growth."""
    columns = [(sharing, what) for what in ("seconds", "peak") for sharing in SHARINGS]
    units = {"seconds": "s", "peak": "MB"}
    lines = [[axis, *(f"{sharing}, {units[what]}" for sharing, what in columns)], ["---:"] * (1 + len(columns))]
    for size in sizes:
        found = {p.sharing: p for p in run.points if (p.axis, p.size) == (axis, size)}
        cells = {(s, "seconds"): f"{p.seconds:.4f}" for s, p in found.items()}
        cells |= {(s, "peak"): f"{p.peak / 1e6:.1f}" for s, p in found.items()}
        lines.append([str(size), *(cells.get(column, "") for column in columns)])
    powers = [exponent(run.curve(axis, sharing), what) for sharing, what in columns]
    lines.append(["grows as", *("" if power is None else f"^{power:.2f}" for power in powers)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def plot(runs: list[Run], file: Path) -> None:
    """Draw one panel for each axis, seconds above memory, with a colour per sharing and a line style per machine."""
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D

    axes = [axis for axis in SIZES if any(p.axis == axis for run in runs for p in run.points)]
    figure, panels = plt.subplots(
        2, len(axes), figsize=(12, 5.6), dpi=100, sharex="col", sharey="row", layout="constrained", squeeze=False
    )
    for column, axis in enumerate(axes):
        for row, (what, scale) in enumerate((("seconds", 1.0), ("peak", 1e-6))):
            panel = panels[row, column]
            for run, style in zip(runs, cycle(STYLES), strict=False):
                for sharing in SHARINGS:
                    curve = [p for p in run.curve(axis, sharing) if getattr(p, what) > 0]
                    values = [scale * getattr(p, what) for p in curve]
                    panel.plot([p.size for p in curve], values, style, color=COLOURS[sharing], marker="o", ms=3.5)
            panel.set(xscale="log", yscale="log")
            panel.grid(alpha=0.25, which="major")
            panel.spines[["top", "right"]].set_visible(False)
        sizes = sorted({p.size for run in runs for p in run.points if p.axis == axis})
        panels[1, column].set_xticks(sizes, [str(size) for size in sizes], fontsize=7.5)
        panels[1, column].minorticks_off()
        panels[1, column].set_xlabel(axis)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("peak memory, MB")
    handles = [Line2D([], [], color=COLOURS[sharing], marker="o", ms=3.5, label=sharing) for sharing in SHARINGS]
    handles += [Line2D([], [], color="0.4", ls=s, label=r.machine) for r, s in zip(runs, cycle(STYLES), strict=False)]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(file)


def stored(file: Path) -> Run:
    """Read a run from its JSON file."""
    content = json.loads(file.read_text())
    return Run(content["machine"], tuple(Point(**point) for point in content["points"]))


def main() -> None:
    """Measure, or read measurements; print, store and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds that one measurement may take")
    parser.add_argument("--json", type=Path, help="store the measurements here")
    parser.add_argument("--plot", type=Path, help="draw them here")
    parser.add_argument("--from", type=Path, nargs="+", dest="files", help="draw stored measurements, make none")
    args = parser.parse_args()
    if args.files and args.plot is None:
        parser.error("--from draws what was measured: say where with --plot FILE.png")
    runs = [stored(file) for file in args.files] if args.files else [measure_all(args)]
    if args.json is not None:
        args.json.write_text(json.dumps(asdict(runs[0]), indent=1) + "\n")
    if args.plot is not None:
        plot(runs, args.plot)


if __name__ == "__main__":
    main()
