"""Write `src/proofmap/data/digits.npz`: the first images of the MNIST test set.

    python scripts/pack_digits.py --data FOLDER

FOLDER contains `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, with or without `.gz`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from proofmap.data import mnist
from proofmap.errors import FileError

ARCHIVE = Path(__file__).parents[1] / "src" / "proofmap" / "data" / "digits.npz"
DIGIT_COUNT = 300


def main(arguments: list[str] | None = None) -> int:
    """Read the test set, and write its first images and labels as unsigned bytes."""
    parser = argparse.ArgumentParser(description="Pack the digits that the package ships.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the official MNIST test files")
    parser.add_argument("--out", type=Path, default=ARCHIVE, help="where to write the archive")
    options = parser.parse_args(arguments)
    try:
        images, labels = mnist(options.data, "test")
    except FileError as error:
        print(error, file=sys.stderr)
        return 2
    pixels = (images[:DIGIT_COUNT, 0] * 255).round().to(torch.uint8)  # (300, 28, 28)
    np.savez_compressed(options.out, images=pixels.numpy(), labels=labels[:DIGIT_COUNT].to(torch.uint8).numpy())
    print(f"wrote {options.out}, {options.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
