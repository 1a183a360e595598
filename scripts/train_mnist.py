"""Train `proofmap.zoo.mnist_mlp` and write the weights that the package ships.

    python scripts/train_mnist.py --data FOLDER --held-out 5000     # to choose settings; writes nothing
    python scripts/train_mnist.py --data FOLDER                     # the shipped weights

FOLDER holds the four official MNIST files. Settings are chosen on training images held out by `--held-out`; the test
set is used once, after the last step of a full training run, only to print and record the accuracy.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from proofmap.data import mnist
from proofmap.errors import FileError
from proofmap.zoo import mnist_mlp

WEIGHTS = Path(__file__).parents[1] / "src" / "proofmap" / "zoo" / "mnist_mlp.safetensors"


def main(arguments: list[str] | None = None) -> int:
    """Train, then either report the held-out accuracy or the test accuracy and write the weights."""
    options = _parse(arguments)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # sums in a fixed order: the same seed gives the same weights
    try:
        images, labels = mnist(options.data, "train")
        test = mnist(options.data, "test")
    except FileError as error:
        print(error, file=sys.stderr)
        return 2
    if not 0 <= options.held_out < len(images):
        print(f"--held-out is {options.held_out}, expected 0 to {len(images) - 1}", file=sys.stderr)
        return 2
    kept = len(images) - options.held_out
    model = mnist_mlp(pretrained=False)
    _train(model, images[:kept], labels[:kept], options)
    if options.held_out:
        print(f"held-out accuracy {accuracy(model, images[kept:], labels[kept:]):.4f} on {options.held_out} images")
        return 0
    tested = accuracy(model, *test)
    print(f"test accuracy {tested:.4f}")
    metadata = {
        "accuracy": f"{tested:.4f} on the MNIST test set",
        "command": f"python scripts/train_mnist.py --data FOLDER {_settings(options)}",
        "seed": str(options.seed),
        "versions": f"python {platform.python_version()}, torch {torch.__version__}",
    }
    save_file(model.state_dict(), options.out, metadata=metadata)
    options.out.chmod(0o644)  # safetensors writes for the owner alone, and an installed copy keeps the mode
    print(f"wrote {options.out}, {options.out.stat().st_size} bytes")
    return 0


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the fraction of images whose largest logit is their label's."""
    model.eval()
    with torch.inference_mode():
        return float((model(images).argmax(dim=1) == labels).double().mean())


def shift(images: Tensor, reach: int) -> Tensor:
    """Move each image by its own random offset, at most `reach` pixels along each axis; zeros come in."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (reach, reach, reach, reach))[:, 0]  # (N, H + 2 reach, W + 2 reach)
    down, right = torch.randint(0, 2 * reach + 1, (2, count, 1))
    rows = (down + torch.arange(height))[:, :, None]  # (N, H, 1)
    columns = (right + torch.arange(width))[:, None, :]  # (N, 1, W)
    return padded[torch.arange(count)[:, None, None], rows, columns].unsqueeze(1)


def _train(model: nn.Module, images: Tensor, labels: Tensor, options: argparse.Namespace) -> None:
    """Adam with decoupled weight decay; one cosine from the peak rate to zero, after a short linear rise."""
    steps = options.epochs * -(-len(images) // options.batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=options.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.rate, total_steps=steps, pct_start=0.1)
    model.train()
    for epoch in range(options.epochs):
        total = 0.0
        for picked in torch.randperm(len(images)).split(options.batch):
            loss = functional.cross_entropy(model(shift(images[picked], options.shift)), labels[picked])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(picked)
        print(f"epoch {epoch + 1:3d} of {options.epochs}: loss {total / len(images):.4f}", flush=True)


def _settings(options: argparse.Namespace) -> str:
    names = ("epochs", "batch", "rate", "decay", "shift", "seed")
    return " ".join(f"--{name} {getattr(options, name)}" for name in names)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the MNIST classifier that the package ships.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the four official MNIST files")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="where to write the weights")
    parser.add_argument("--held-out", type=int, default=0, help="train without the last N images, test on those")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay")
    parser.add_argument("--shift", type=int, default=1, help="largest random shift, in pixels")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
