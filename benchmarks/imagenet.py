"""Verified bounds at ImageNet size: how far they mean something on EfficientNet-Lite0, and what EVA shows there.

    python benchmarks/imagenet.py --weights FILE.pth --picture FILE.jpg [--eps 1e-7 1e-6 1e-5 1e-4] [--bisect 3]
        [--device cpu|cuda] [--groups 12] [--json FILE] [--out FILE.png]

For each radius, in the order given: the certified AO(B) by CrownIBP and Backward, the overlap that an attack reached,
and how many times the attack's gain over the nominal margin the proof leaves open. A bound that leaves ten times open
is called vacuous; the first radius with a vacuous Backward bound ends the list, and bisection (of the logarithm) looks
for the largest that is not. EVA is then explained and drawn at that one. Radii are in pixels of [0, 1], the domain too.

Results are kept in --json as they come, and not computed again.
"""

from __future__ import annotations

import argparse
import importlib
import json
from functools import partial
from math import inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.explain.attack import attack

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script finds what lies beside it

VACUOUS = 10.0  # times the attack's gain


class Classifier(nn.Module):
    """EfficientNet-Lite0 on pixels in [0, 1]."""

    def __init__(self, weights: Path) -> None:
        super().__init__()
        package = importlib.import_module("efficientnet_lite_pytorch")
        self.network: nn.Module = package.EfficientNet.from_name("efficientnet-lite0")
        self.network.load_state_dict(torch.load(weights, weights_only=True))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, 1000) of pictures (N, 3, 224, 224)."""
        logits: Tensor = self.network((x * 255 - 127) / 128)
        return logits


def read(picture: Path) -> Tensor:
    """The middle of the picture, (1, 3, 224, 224) in [0, 1]."""
    found = pm.data.images(picture.parent)
    pixels = found.images[found.names.index(picture.name)]
    top, left = ((side - 224) // 2 for side in pixels.shape[1:])
    return pixels[None, :, top : top + 224, left : left + 224].contiguous()


def measure(graph: pm.Graph, x: Tensor, eps: float) -> dict[str, Any]:
    """One radius."""
    ball = pm.Ball(eps, domain=(0.0, 1.0))
    row: dict[str, Any] = {"eps": eps}
    for name, method in (("crown-ibp", pm.bounds.CrownIBP()), ("backward", pm.bounds.Backward())):
        with measuring.Memory(x.device) as memory:
            work = partial(pm.overlap, graph, x, ball, bounds=method, sharing="one-pass")
            over, seconds = measuring.clocked(work, x.device)
        row |= {f"{name} AO": float(over.full), f"{name} s": seconds, f"{name} GB": memory.beyond / 1e9}
    reached, _ = attack(graph, ball.at(x), over.target, steps=20)
    gain = float(reached - over.nominal)
    row |= {"nominal": float(over.nominal), "attack": float(reached)}
    for name in ("crown-ibp", "backward"):
        row[f"{name} open"] = (row[f"{name} AO"] - row["nominal"]) / gain
    return row


def main() -> None:
    """Go through the radii, bisect, and explain at the largest that means something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--picture", type=Path, required=True)
    parser.add_argument("--eps", type=float, nargs="+", default=[1e-7, 1e-6, 1e-5, 1e-4])
    parser.add_argument("--bisect", type=int, default=3)
    parser.add_argument("--groups", type=int, default=12, help="cells of the grid on each side")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, help="where the picture goes")
    args = parser.parse_args()
    x = read(args.picture).to(args.device)
    model = Classifier(args.weights).eval().to(args.device)
    graph = pm.trace(model, x)
    print(f"{measuring.machine(args.device)}, {args.picture.name}, class {int(graph(x).argmax())}")
    rows: list[dict[str, Any]] = []
    if args.json and args.json.exists():
        rows = json.loads(args.json.read_text())

    def at(eps: float) -> dict[str, Any]:
        known = [row for row in rows if row["eps"] == eps]
        if not known:
            rows.append(measure(graph, x, eps))
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1) + "\n")
        row = known[0] if known else rows[-1]
        print("  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
        return row

    best, worst = 0.0, inf
    for eps in sorted(args.eps):
        if at(eps)["backward open"] >= VACUOUS:
            worst = eps
            break
        best = eps
    for _ in range(args.bisect if best and worst < inf else 0):
        middle = float(f"{sqrt(best * worst):.2g}")
        if at(middle)["backward open"] < VACUOUS:
            best = middle
        else:
            worst = middle
    print(f"largest radius that is not vacuous: {best:g}; the smallest that is: {worst:g}")
    if best and args.out:
        cells = pm.groups.grid(args.groups)
        eva = pm.EVA(graph, pm.Ball(best, domain=(0.0, 1.0)), groups=cells, progress=False)
        found, seconds = measuring.clocked(lambda: eva.explain(x), args.device)
        print(f"EVA, {args.groups**2} groups: {seconds:.1f} s, AO(B) {float(found.overlap.full):.4g}")
        args.out.parent.mkdir(parents=True, exist_ok=True)
        found.plot().savefig(args.out, dpi=150)
        found.save(args.out.with_suffix(".proofmap"))


if __name__ == "__main__":
    main()
