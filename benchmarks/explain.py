"""100 MNIST explanations with pixel groups and sharing "shared": seconds per image, and the ratio to "separate".

python benchmarks/explain.py [--images 100] [--separate 2] [--eps 0.015]
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import proofmap as pm

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder


def main() -> None:
    """Explain many images with shared bounds and a few with separate bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--separate", type=int, default=2)
    parser.add_argument("--eps", type=float, default=0.015)
    args = parser.parse_args()
    x = pm.data.digits()[0][: args.images]
    graph = pm.trace(pm.zoo.mnist_mlp(), x)
    ball = pm.Ball(args.eps, domain=(0.0, 1.0))
    pm.EVA(graph, ball, progress=False, rigorous=False).explain(x[:1])  # warm up
    print(f"{measuring.machine('cpu')}, 784 pixel groups, ε {args.eps}")

    shared, seconds = measuring.clocked(lambda: pm.EVA(graph, ball, rigorous=False).explain(x), "cpu")
    each = seconds / len(x)
    proven = int((shared.overlap.full < 0).sum())
    print(f"shared:   {each:.4f} s an image over {len(x)} images, {proven} certified")

    few = x[: args.separate]
    separate, seconds = measuring.clocked(
        lambda: pm.EVA(graph, ball, sharing="separate", rigorous=False).explain(few), "cpu"
    )
    alone = seconds / len(few)
    rank = measuring.rank_correlation(shared.scores[: len(few)], separate.scores)
    print(f"separate: {alone:.4f} s an image over {len(few)} images: shared is {alone / each:.0f} times as fast")
    print(f"rank correlation of the scores with separate: {rank:.3f}")


if __name__ == "__main__":
    main()
