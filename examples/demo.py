"""Bound the packaged network on packaged digits, by every method, and print what was proven."""

from __future__ import annotations

import time

import torch

import proofmap as pm

EPS = 0.02
COUNT = 8


def main() -> None:
    """Two tables: the methods beside each other, then digit by digit what the best one proves."""
    model = pm.zoo.mnist_mlp()
    images, labels = pm.data.digits()
    x, labels = images[:COUNT], labels[:COUNT]
    ball = pm.Ball(EPS, domain=(0.0, 1.0))
    graph = pm.trace(model, x)
    print(f"MNIST network 784-256-128-64-32-10, {COUNT} test digits, every pixel may move by {EPS} inside [0, 1]\n")

    print(
        "How tight are the methods?  AO is the most by which another class can win; 0 or less is a proof that none can."
    )
    print(f"{'bounds':>12} {'mean AO(B)':>11} {'certified':>10} {'seconds':>8}")
    for name in pm.bounds.METHODS:
        start = time.perf_counter()
        found = pm.overlap(graph, x, ball, bounds=pm.bounds.named(name))
        seconds = time.perf_counter() - start
        print(f"{name:>12} {float(found.full.mean()):11.2f} {int((found.full <= 0).sum()):7d}/{COUNT} {seconds:8.3f}")

    start = time.perf_counter()
    over = pm.overlap(graph, x, ball, groups=pm.groups.grid(12))
    seconds = time.perf_counter() - start
    radius = pm.certified_radius(graph, x, domain=(0.0, 1.0))
    print("\nWhat does each cell of a 12 x 12 grid contribute?  Its score is AO(B) - AO(B with the cell frozen).")
    print(f"{'digit':>5} {'said':>5} {'AO(B)':>8}  {'proof':<13} {'radius':>7}  most important cell")
    for k in range(COUNT):
        scores = over.full[k] - over.frozen[k]
        cell = int(scores.argmax())
        proof = "certified" if over.full[k] <= 0 else "not certified"
        digit, said, worst, reach = int(labels[k]), int(over.target[k]), float(over.full[k]), float(radius[k])
        place = f"row {cell // 12 + 1:2d}, column {cell % 12 + 1:2d} (score {float(scores[cell]):.3f})"
        print(f"{digit:5d} {said:5d} {worst:8.2f}  {proof:<13} {reach:7.4f}  {place}")
    print(f"\n{COUNT} digits x 145 balls, backward bounds: {seconds:.2f} s.")
    print("AO is a proven upper bound over the whole ball (in exact arithmetic); a score is a difference of two such")
    print("bounds and not itself a proof.")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
