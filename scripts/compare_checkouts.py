"""Compare the numbers of two checkouts: every bound of the test networks, and scores, radii and metrics on digits.

python scripts/compare_checkouts.py OLD NEW [--tolerance 1e-6] [--share 0/1]

Each checkout runs in its own process, with its own tests/models.py, in float64. Networks that only one of them has are
listed. The exit code is 1 if a number differs by more than the tolerance, relative to its size or to 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from math import inf
from pathlib import Path

import numpy as np
import torch

COMPARED_METHODS = ("ibp", "forward", "backward", "crown-ibp", "ibp+forward", "ibp+forward+backward")
SHARINGS = ("shared", "one-pass", "separate")
RADIUS_BY_NORM = {inf: 0.05, 2.0: 0.2, 1.0: 0.4}


def bounds(share: int, shares: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, numbers) of test networks: overlaps of the ball and its members, for all methods and norms."""
    import proofmap as pm
    from tests.models import MODELS

    for case in list(MODELS.values())[share::shares]:
        x = case.inputs(2, torch.float64, seed=11)
        graph = pm.trace(case.build(torch.float64), x)
        order = torch.randperm(x[0].numel(), generator=torch.Generator().manual_seed(0))
        mask = (order % 3).reshape(case.shape)
        for norm, eps in RADIUS_BY_NORM.items():
            ball = pm.Ball(eps, norm, (case.low, case.high))
            for method in COMPARED_METHODS:
                for sharing in SHARINGS:
                    how = {"bounds": pm.bounds.named(method), "sharing": sharing}
                    try:
                        over = pm.overlap(graph, x, ball, groups=mask, rigorous=False, **how)  # type: ignore[arg-type]
                        value = torch.cat([over.full[:, None], over.frozen], dim=1)
                    except pm.errors.BoundError as error:
                        value = torch.tensor([float(len(str(error)))])
                    yield f"{case.name} / {norm:g} / {method} / {sharing}", value


def digits() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, numbers) on packaged digits: scores of every explainer, radii, metrics."""
    import proofmap as pm

    x = pm.data.digits()[0][:2].double()
    model = pm.zoo.mnist_mlp().double()
    graph, grid = pm.trace(model, x), pm.groups.grid(4)
    ball = pm.Ball(0.02, domain=(0.0, 1.0))
    scores = {
        "EVA": pm.EVA(graph, ball, groups=grid, progress=False, rigorous=False).explain(x).scores,
        "EVA of a module": pm.EVA(model, ball, groups=grid, progress=False, rigorous=False).explain(x).scores,
        "TargetedEVA": pm.TargetedEVA(graph, ball, groups=grid, progress=False, rigorous=False).explain(x, 3).scores,
        "HybridEVA": pm.HybridEVA(graph, ball, split="3", groups=grid, samples=20, progress=False).explain(x).scores,
        "EmpiricalEVA": pm.EmpiricalEVA(graph, ball, groups=grid, samples=20, progress=False).explain(x).scores,
        "GreedyAO": pm.GreedyAO(graph, ball, groups=grid, subsets=20, progress=False).explain(x).scores,
        "GreedyAS": pm.GreedyAS(graph, ball, groups=grid, subsets=20, progress=False).explain(x).scores,
    }
    scores["radius"] = pm.certified_radius(graph, x, domain=(0.0, 1.0), rigorous=False)
    target = graph(x).argmax(1)
    attributions = pm.EVA(graph, ball, groups=grid, progress=False, rigorous=False).explain(x).attributions
    for metric in (pm.metrics.Deletion(), pm.metrics.Insertion(), pm.metrics.MuFidelity(), pm.metrics.RobustnessSr()):
        scores[metric.name] = metric(graph, x, target, attributions)
    for name, value in scores.items():
        yield f"digits / {name}", value


def record(file: Path, share: int, shares: int) -> None:
    """Store all numbers of the current checkout."""
    import proofmap

    assert Path(proofmap.__file__).is_relative_to(Path.cwd()), f"{proofmap.__file__} is not of this checkout"
    torch.manual_seed(0)
    parts = chain(bounds(share, shares), digits() if share == 0 else ())
    numbers = {name: value.detach().numpy() for name, value in parts}
    np.savez(file, allow_pickle=False, **numbers)


def run(checkout: Path, file: Path, share: str) -> None:
    """Run `record` in a new process."""
    path = os.pathsep.join(str(checkout / part) for part in ("src", ""))
    command = [sys.executable, str(Path(__file__).resolve()), "--record", str(file), "--share", share, "-", "-"]
    subprocess.run(command, check=True, cwd=checkout, env={**os.environ, "PYTHONPATH": path})


def compare(old: Path, new: Path, tolerance: float) -> bool:
    """Print what differs, and whether nothing does."""
    before, after = np.load(old), np.load(new)
    for name in sorted(set(before) ^ set(after)):
        print(f"only in {'the old' if name in before else 'the new'} one: {name}")
    worst, same = ("", 0.0), True
    shared = sorted(set(before) & set(after))
    for name in shared:
        a, b = before[name], after[name]
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            print(f"{name}: {a} against {b}")
            same = False
            continue
        off = float(np.max(np.abs(a - b) / np.maximum(1, np.abs(a)), initial=0.0, where=np.isfinite(a)))
        worst = max(worst, (name, off), key=lambda pair: pair[1])
        if off > tolerance:
            print(f"{name}: differs by {off:.3g}")
            same = False
    print(f"{len(shared)} settings, {sum(before[name].size for name in shared)} numbers")
    print(f"largest relative difference {worst[1]:.3g} ({worst[0] or 'none at all'})")
    return same


def main() -> int:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument(
        "--share", default="0/1", help="one of several equal shares of the networks, to run side by side"
    )
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record is not None:
        record(args.record, *map(int, args.share.split("/")))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        old, new = (Path(folder) / name for name in ("old.npz", "new.npz"))
        for checkout, file in ((args.old, old), (args.new, new)):
            run(checkout.resolve(), file, args.share)
        return 0 if compare(old, new, args.tolerance) else 1


if __name__ == "__main__":
    sys.exit(main())
