"""Series: the time windows that a small convolutional network decides by, with scores bounded from both sides.

    python examples/series.py [--rows 3] [--out out/series]

The series have 64 steps: x_t = 0.5 sin(2π t / p + φ) + 0.3 ξ_t, with normal ξ_t and p from 12 to 30. Class 1 also has a
bump 1.5 exp(-(t - m)² / 8) with m from 10 to 54; class 0 has none. So the position of the evidence is known.
"""

from __future__ import annotations

import argparse
from math import pi
from pathlib import Path

import torch
from torch import Tensor, nn

import proofmap as pm

STEPS, WINDOW = 64, 8
EPS = 0.05  # the radius of each step; the standard deviation of the noise is 0.3


def series(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return series (count, 1, 64), their classes, and the positions of their bumps."""
    draw = torch.Generator().manual_seed(seed)
    time = torch.arange(STEPS).float()
    period, phase = 12 + 18 * torch.rand(count, 1, generator=draw), 2 * pi * torch.rand(count, 1, generator=draw)
    middle, labels = 10 + 44 * torch.rand(count, 1, generator=draw), torch.arange(count) % 2
    x = 0.5 * torch.sin(2 * pi * time / period + phase) + 0.3 * torch.randn(count, STEPS, generator=draw)
    x = x + labels[:, None] * 1.5 * torch.exp(-((time - middle) ** 2) / 8)
    return x[:, None], labels, middle[:, 0]


def trained(steps: int) -> nn.Module:
    """Return a 1-D convolutional network, trained on series that are drawn for each step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 8, 7, padding=3), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(8, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 14, 2),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for step in range(steps):
        x, labels, _ = series(64, seed=1000 + step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimiser.step()
    return model.eval()


def main(rows: int = 3, out: Path = Path("out/series"), steps: int = 600) -> pm.Explanation:
    """Train, explain the first `rows` series with a bump, and write a picture."""
    model = trained(steps)
    x, labels, middle = series(400, seed=0)
    with torch.no_grad():
        print(f"accuracy on 400 new series: {float((model(x).argmax(1) == labels).float().mean()):.3f}")
    eva = pm.EVA(model, pm.Ball(EPS), groups=pm.groups.windows(WINDOW), bounds=pm.bounds.Exact(seconds=10))
    found = eva.explain(x[labels == 1][:rows], target=1)
    there = (middle[labels == 1][:rows] / WINDOW).long()
    sides = [f"[{low:.2f}, {high:.2f}]" for low, high in zip(found.overlap.full_lower, found.overlap.full, strict=True)]
    print(f"bounds of AO: {', '.join(sides)}")
    print(
        f"windows with the bump: {there.tolist()}; windows with the largest scores: {found.scores.argmax(1).tolist()}"
    )
    out.mkdir(parents=True, exist_ok=True)
    found.plot(class_names=["no bump", "a bump"]).savefig(out / "series.png")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/series"))
    main(**vars(parser.parse_args()))
