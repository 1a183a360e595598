"""Verified bounds at ImageNet size: the radii for which bounds of EfficientNet-Lite0 carry information, and EVA's maps.

    python benchmarks/imagenet.py --picture FILE.jpg --out FOLDER [--eps 1e-7 1e-6 1e-5 1e-4] [--bisect 3]
        [--sharing one-pass|shared] [--groups 12] [--device cpu|cuda]

For each radius, from small to large: EVA with Backward bounds, the certified AO(B) by Backward and by CrownIBP, the
overlap that an attack reaches, and the ratio of (bound - attack) to the attack's gain over the nominal margin. A bound
with a ratio of ten or more is called vacuous. The list ends at the first radius with a vacuous Backward bound.
Bisection of the logarithm then searches the largest radius without one. Radii are in units of pixels in [0, 1], which
is also the domain.

FOLDER receives the figures and, for each radius, the explanation and its picture. Existing results are not computed
again.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from math import inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

import proofmap as pm
from proofmap.attack.pgd import attack
from proofmap.sources import read_model

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder

VACUOUS_RATIO = 10.0  # (bound - attack) / the attack's gain


def read(picture: Path) -> Tensor:
    """Return the middle of the picture, (1, 3, 224, 224) in [0, 1]."""
    found = pm.data.images(picture.parent)
    pixels = found.images[found.names.index(picture.name)]
    top, left = ((side - 224) // 2 for side in pixels.shape[1:])
    return pixels[None, :, top : top + 224, left : left + 224].contiguous()


def measure(graph: pm.Graph, x: Tensor, eps: float, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one radius, and store its explanation in the folder."""
    ball = pm.Ball(eps, domain=(0.0, 1.0))
    cheap = partial(pm.overlap, graph, x, ball, bounds=pm.bounds.CrownIBP(), sharing="one-pass")
    over, seconds = measuring.clocked(cheap, x.device)
    row = {"eps": eps, "crown-ibp AO": float(over.full), "crown-ibp s": seconds}
    eva = pm.EVA(graph, ball, groups=pm.groups.grid(args.groups), sharing=args.sharing, progress=False, rigorous=False)
    with measuring.Memory(x.device) as memory:
        found, seconds = measuring.clocked(partial(eva.explain, x), x.device)
    over = found.overlap
    found.plot().savefig(args.out / f"{eps:g}.png", dpi=150)
    found.save(args.out / f"{eps:g}.proofmap")
    reached, _ = attack(graph, ball.at(x), over.target, steps=20)
    row |= {"backward AO": float(over.full), "backward s": seconds, "backward GB": memory.beyond / 1e9}
    row |= {"nominal": float(over.nominal), "attack": float(reached)}
    for name in ("crown-ibp", "backward"):
        row[f"{name} open"] = (row[f"{name} AO"] - row["nominal"]) / float(reached - over.nominal)
    return row


def main() -> None:
    """Measure the radii, then bisect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the folder for figures, explanations and pictures")
    parser.add_argument("--eps", type=float, nargs="+", default=[1e-7, 1e-6, 1e-5, 1e-4])
    parser.add_argument("--bisect", type=int, default=3)
    parser.add_argument("--sharing", choices=("one-pass", "shared"), default="one-pass")
    parser.add_argument("--groups", type=int, default=12, help="cells of the grid on each side")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    x = read(args.picture).to(args.device)
    graph = read_model("zoo:efficientnet_lite0").graph(x.cpu()).to(x.device, x.dtype)
    print(f"{measuring.machine(args.device)}, {args.picture.name}, class {int(graph(x).argmax())}")

    def at(eps: float) -> dict[str, Any]:
        file = args.out / f"{eps:g}.json"
        if not file.exists():
            file.write_text(json.dumps(measure(graph, x, eps, args), indent=1) + "\n")
        row: dict[str, Any] = json.loads(file.read_text())
        print("  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
        return row

    best, worst = 0.0, inf
    for eps in sorted(args.eps):
        if at(eps)["backward open"] >= VACUOUS_RATIO:
            worst = eps
            break
        best = eps
    for _ in range(args.bisect if best and worst < inf else 0):
        middle = float(f"{sqrt(best * worst):.2g}")
        if at(middle)["backward open"] < VACUOUS_RATIO:
            best = middle
        else:
            worst = middle
    print(f"largest radius that is not vacuous: {best:g}; the smallest that is: {worst:g}")


if __name__ == "__main__":
    main()
