"""Scores bounded as differences of two copies of a network, compared with the difference of two overlaps' bounds.

    python benchmarks/differences.py [--images 20] [--eps 0.01 0.02 0.04] [--cells 12]

For the packaged MNIST network and its first digits. Upper bounds are backward bounds, lower bounds come from an attack.
The table shows medians over images: the width of the scores' intervals, the size of the scores, the share of scores
that are proven to be positive, the share of pairs of cells in proven order, and the seconds per image.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch

import proofmap as pm
from proofmap.attack.lower_bounds import attack_lower_bounds
from proofmap.bounds import Backward
from proofmap.explainers.proven_scores import ProvenScores
from proofmap.verify.objective import forms_of
from proofmap.verify.overlap import Overlap, OverlapSettings, family_overlap
from proofmap.verify.searched_overlap import with_drops

MEMORY_BYTES = 2**31


def main() -> None:
    """Print two lines for each radius."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--eps", type=float, nargs="+", default=[0.01, 0.02, 0.04])
    parser.add_argument("--cells", type=int, default=12, help="along each side of the picture")
    args = parser.parse_args()
    x = pm.data.digits()[0][: args.images]
    mask = pm.groups.grid(args.cells)((1, 28, 28))
    graph = pm.trace(pm.zoo.mnist_mlp(), x)
    logits = graph(x).detach()
    forms = forms_of(logits, logits.argmax(1), None, "margin")
    how = OverlapSettings(Backward(), MEMORY_BYTES, "shared")
    threads = f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    print(f"{len(x)} images, {args.cells} x {args.cells} cells, {threads}")
    print(f"{'ε':>6} {'from':12} {'width':>9} {'score':>9} {'above 0':>8} {'in order':>8} {'s/image':>8}")
    for eps in args.eps:
        family = pm.Ball(eps, domain=(0.0, 1.0)).at(x, mask)
        started = time.perf_counter()
        found = family_overlap(graph, family, None, how)
        met = attack_lower_bounds(graph, family, forms, MEMORY_BYTES)
        sides = replace(found, full_lower=met.value[:, 0], frozen_lower=met.value[:, 1:], points=met.points)
        between = time.perf_counter()
        closer = with_drops(sides, graph, family, forms, torch.arange(len(x)), MEMORY_BYTES)
        ended = time.perf_counter()
        tell(eps, "two sides", sides, mask, (between - started) / len(x))
        tell(eps, "differences", closer, mask, (ended - between) / len(x))


def tell(eps: float, name: str, over: Overlap, mask: torch.Tensor, seconds: float) -> None:
    """Print one line. The score comes from the attack: it is not a bound, but nearly always the true score."""
    groups = over.frozen.shape[1]
    known = ProvenScores.of([over], mask[None], groups)
    width = (known.intervals[..., 1] - known.intervals[..., 0]).flatten(1).median(1).values.median()
    score = (over.full_lower[:, None] - over.frozen_lower).median(1).values.median()
    certain = known.nonzero.double().mean(1).median()
    order = (known.larger().flatten(1).sum(1) / (groups * (groups - 1) / 2)).median()
    print(f"{eps:6g} {name:12} {width:9.4f} {score:9.4f} {certain:8.1%} {order:8.1%} {seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
