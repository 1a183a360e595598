"""Hybrid EVA of EfficientNet-Lite0 for several radii, enclosures and numbers of attacked samples, with smooth maps.

    python benchmarks/enclosures.py --pictures FOLDER --out FOLDER [--count 40] [--every 1] [--eps 0.02 0.1]
        [--enclosures box zonotope ...] [--samples 100] [--groups 12] [--steps 100] [--subsets 200] [--device cpu|cuda]

The pictures are every EVERY-th of the first COUNT in FOLDER, in the order of their names; settings may be chosen on
them. With attacked samples, half of all samples are attacked. OUT receives the explanations one by one, and the table.
Existing results are not computed again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import proofmap as pm
from proofmap.bench import read
from proofmap.bench.benchmark_images import pictures
from proofmap.explainers.explanation import spread
from proofmap.sources import read_model

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder

ENCLOSURES: dict[str, dict[str, Any]] = {
    "box": {},
    "zonotope": {"rank": 32},
    "attacked": {"attacked": 0.5},
    "zonotope-attacked": {"rank": 32, "attacked": 0.5},
}


def explain(graph: pm.Graph, x: torch.Tensor, eps: float, name: str, args: argparse.Namespace) -> pm.Explanation:
    """Explain with one enclosure at one radius; attacked samples replace random ones."""
    file = args.out / f"{name}-{eps:g}.proofmap"
    if not file.exists():
        attacked = int(args.samples * ENCLOSURES[name].get("attacked", 0.0))
        found = pm.HybridEVA(
            graph,
            pm.Ball(eps, domain=(0.0, 1.0)),
            split="network._avg_pooling",
            groups=pm.groups.grid(args.groups),
            samples=args.samples - attacked,
            attacked=attacked,
            rank=ENCLOSURES[name].get("rank", 0),
            precision=None if args.device == "cpu" else torch.float16,
            progress=False,
        ).explain(x)
        found.save(file)
    found = pm.Explanation.load(file)
    print(f"{name}, {eps:g}: {found.seconds / len(x):.3g} s a picture", flush=True)
    return found


def main() -> None:
    """Explain with every setting, and evaluate the maps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the folder for explanations and the table")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--eps", type=float, nargs="+", default=[0.02])
    parser.add_argument("--enclosures", nargs="+", choices=ENCLOSURES, default=list(ENCLOSURES))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--groups", type=int, default=12, help="cells of the grid on each side")
    parser.add_argument("--steps", type=int, default=100, help="of Deletion and Insertion")
    parser.add_argument("--subsets", type=int, default=200, help="of µFidelity")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    x = pictures(read("table1-imagenet"), args.pictures, quick=False)[: args.count : args.every].to(args.device)
    graph = read_model("zoo:efficientnet_lite0").graph(x[:1].cpu()).to(x.device, x.dtype)
    print(f"{measuring.machine(args.device)}, {len(x)} pictures, {args.samples} samples", flush=True)
    maps: dict[str, torch.Tensor] = {}
    for eps in args.eps:
        for name in args.enclosures:
            e = explain(graph, x, eps, name, args)
            maps[f"{name}, {eps:g}, cells"] = e.attributions
            maps[f"{name}, {eps:g}, smooth"] = spread(e.scores, e.mask, smooth=True)
    curves = [kind(steps=args.steps) for kind in (pm.metrics.Deletion, pm.metrics.Insertion)]
    table = pm.compare(graph, x, maps, [*curves, pm.metrics.MuFidelity(subsets=args.subsets)], progress=False)
    (args.out / "table.md").write_text(str(table), encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
