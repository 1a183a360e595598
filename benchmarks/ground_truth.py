"""Trials with known ground truth: all methods on inputs whose relevant variables are known.

    python benchmarks/ground_truth.py [--out out/ground-truth] [--data FOLDER] [--device cpu|cuda]
        [--methods saliency eva ...] [--trials xor pattern ...]

The first trials are ten networks on 4 x 4 bits whose weights are set by hand. All 65,536 inputs are evaluated, so the
relevant bits are known. The next ones are small networks that are trained, in seconds, on tetrominoes in noise. With
--data, a folder with files of MNIST, of CIFAR-10 or with pictures, there are also grids of four pictures, and all
metrics on single pictures.

A method with a ball runs twice: near, at the proven radius of each sample, and far, at a radius of the trial. A second
call with the same folder continues. OUT/table.md lists first the trials in which our methods lose.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder that contains the package of trials

from benchmarks.trials import METHODS, chosen, run, sections


def main() -> None:
    """Run the trials and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out") / "ground-truth", help="the folder for results")
    parser.add_argument("--data", type=Path, help="a folder with the data sets of the trials on pictures")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    parser.add_argument("--trials", nargs="+", metavar="TRIAL", help="run these trials only")
    args = parser.parse_args()
    there = sections(args.data)
    if args.trials is not None:
        there = chosen(there, args.trials)
    print(run(there, args.out, methods=args.methods, device=args.device).markdown(), end="")


if __name__ == "__main__":
    main()
