"""ProbableEVA on pictures and digits: the radii for which it proves something, and the seconds.

    python benchmarks/probable.py imagenet --data FOLDER [--first 0 --count 4] [--sigma 0.05 0.1] [--steps 0.25 0.5 1]
        [--samples 10000] [--groups 12] [--device cpu|cuda]
    python benchmarks/probable.py mnist|cifar10 --data FOLDER ...

For each σ and each radius ε = steps · σ, in ℓ2 and in units of [0, 1], the table shows:

- the number of samples with an AO below 0: with probability 0.999, most noisy copies of every input of the ball have
  the class of the sample;
- the mean AO(B), the largest score, and the share of groups with a score above 0;
- Spearman's rank correlation of the scores of two runs with different draws, if any score differs from 0;
- the seconds per sample.

MNIST and CIFAR-10 provide training images; ImageNet provides pictures by name, for EfficientNet-Lite0.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from scipy.stats import spearmanr
from torch import Tensor

import proofmap as pm
from proofmap.sources import read_model

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder

MODELS = {"mnist": "zoo:mnist_mlp", "cifar10": "zoo:cifar_cnn", "imagenet": "zoo:efficientnet_lite0"}


def read(args: argparse.Namespace) -> Tensor:
    """Return the samples, (N, *shape) in [0, 1]; of a picture, the middle of 224 x 224 pixels."""
    part = slice(args.first, args.first + args.count)
    if args.name == "imagenet":
        found = pm.data.images(args.data)
        pictures = [found.images[k] for k in sorted(range(len(found.names)), key=found.names.__getitem__)[part]]
        middles = []
        for pixels in pictures:
            top, left = ((side - 224) // 2 for side in pixels.shape[1:])
            middles.append(pixels[:, top : top + 224, left : left + 224])
        return torch.stack(middles)
    images, _ = (pm.data.mnist if args.name == "mnist" else pm.data.cifar10)(args.data, "train")
    return images[part]


def agreement(one: Tensor, other: Tensor) -> float:
    """Return the mean rank correlation of two scores of the same samples."""
    told = [float(spearmanr(a, b)[0]) for a, b in zip(one.cpu(), other.cpu(), strict=True) if a.any() and b.any()]
    return sum(told) / len(told) if told else float("nan")


def main() -> None:
    """Measure all noise levels and radii."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--sigma", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--steps", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=12, help="cells of the grid on each side")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    x = read(args).to(args.device)
    graph = read_model(MODELS[args.name]).graph(x[:1].cpu()).to(x.device, x.dtype)
    print(f"{measuring.machine(args.device)}, {args.name}, {len(x)} samples, {args.samples} copies", flush=True)
    for sigma in args.sigma:
        for steps in args.steps:
            explainer = pm.ProbableEVA(
                graph,
                pm.Ball(steps * sigma, norm=2),
                sigma=sigma,
                samples=args.samples,
                groups=pm.groups.grid(args.groups),
                progress=False,
            )
            found, seconds = measuring.clocked(partial(explainer.explain, x), x.device)
            again = replace(explainer, seed=1).explain(x)
            bound, scores = found.overlap.full, found.scores
            print(
                f"sigma {sigma:g}  eps {steps * sigma:g}  probable {int((bound < 0).sum())} of {len(x)}  "
                f"at x > {float(found.overlap.nominal.mean()):.3f}  AO(B) <= {float(bound.mean()):.3f}  "
                f"largest score {float(scores.amax(1).mean()):.4f}  above 0 {float((scores > 0).double().mean()):.2f}  "
                f"alike {agreement(scores, again.scores):.2f}  {seconds / len(x):.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
