"""Explain packaged digits with proofs: print what was proven, and draw why."""

from __future__ import annotations

import time
from pathlib import Path

import proofmap as pm

OUT = Path("out")
EPS = 0.015
COUNT = 6


def main() -> None:
    """Explain six digits pixel by pixel, then ask what would make a 4 a 9; pictures and files go to out/."""
    started = time.perf_counter()
    OUT.mkdir(exist_ok=True)
    model = pm.zoo.mnist_mlp()
    images, labels = pm.data.digits()
    ball = pm.Ball(EPS, domain=(0.0, 1.0))
    x = images[:COUNT]

    explanation = pm.EVA(model, ball).explain(x)
    print(f"MNIST network, {COUNT} test digits, backward bounds; every pixel may move by {EPS} inside [0, 1]")
    print(f"{'digit':>5} {'class':>5} {'AO(B)':>8}  {'proof':<13}  most important pixel")
    for k in range(COUNT):
        worst = float(explanation.overlap.full[k])
        best = int(explanation.scores[k].argmax())
        proof = "certified" if worst <= 0 else "not certified"
        place = f"row {best // 28 + 1}, column {best % 28 + 1}"
        print(f"{int(labels[k]):5d} {int(explanation.target[k]):5d} {worst:8.2f}  {proof:<13}  {place}")
    print(f"{explanation.seconds / COUNT:.2f} s a digit")
    print(
        "AO(B): a proven upper bound of how far another class can get ahead anywhere in the ball; 0 or less: none can."
    )
    print("A pixel's score is the drop of that bound when the pixel may not move: an importance, not itself a proof.")

    fours = images[labels == 4][:3]
    targeted = pm.TargetedEVA(model, ball).explain(fours, target=9)
    nines = ", ".join(f"{float(v):.2f}" for v in targeted.overlap.full)
    print(f"\nThree 4s, and what would make them 9s: by adding ink alone, 9 gets no closer than {nines}")

    explanation.plot().savefig(OUT / "digits.png")
    targeted.plot().savefig(OUT / "four-to-nine.png")
    explanation.save(OUT / "digits.proofmap")
    print(f"\nwrote {OUT}/digits.png, {OUT}/four-to-nine.png and {OUT}/digits.proofmap")
    print(f"{time.perf_counter() - started:.1f} s in all")


if __name__ == "__main__":
    main()
