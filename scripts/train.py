"""Train a packaged model, and write the weights that the package contains.

    python scripts/train.py mnist --data FOLDER --held-out 5000     # to choose settings; writes nothing
    python scripts/train.py mnist --data FOLDER                     # the shipped weights
    python scripts/train.py cifar10 --data FOLDER --device cuda     # the same for the others
    python scripts/train.py cifar10-vit --data FOLDER --device cuda
    python scripts/train.py mnist-provable --data FOLDER --device cuda
    python scripts/train.py cifar10-provable --data FOLDER --device cuda

FOLDER contains the official files of the data set. `--held-out` reserves training images, on which settings are chosen.
The test set is used once, after the last step of a full training run, only to print and record the accuracy.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from proofmap.data import cifar10, mnist
from proofmap.errors import FileError
from proofmap.zoo import cifar_cnn, cifar_provable, cifar_vit, mnist_mlp, mnist_provable

if TYPE_CHECKING:
    from scripts.interval_training import magnitude, mixed_loss
else:
    from interval_training import magnitude, mixed_loss  # a script imports from its own folder

WEIGHTS_FOLDER = Path(__file__).parents[1] / "src" / "proofmap" / "zoo"


@dataclass(frozen=True)
class Settings:
    """The settings of a training run, besides the data and the model."""

    epochs: int
    batch: int
    rate: float  # the peak learning rate
    decay: float  # weight decay
    shift: int  # the largest random shift, in pixels
    flip: float  # the probability that an image is mirrored
    dropout: float  # before each dense layer, in training only
    adversary: float = 0.0  # the adversarial perturbation of each pixel in training
    bounded: float = 0.0  # the weight of the bound by interval arithmetic in the loss
    ramp: float = 0.0  # with `bounded`, the perturbation grows from 0 between this share of the steps and five times it
    l1: float = 0.0  # the weight of the sum of all weights' magnitudes in the loss
    clip: float = inf  # the largest norm of a gradient
    seed: int = 0


@dataclass(frozen=True)
class Task:
    """A data set, its model, and the settings of the packaged weights."""

    load: Callable[..., tuple[Tensor, Tensor]]
    build: Callable[..., nn.Module]
    title: str
    settings: Settings

    @property
    def weights(self) -> Path:
        """The file of the packaged weights: it has the name of the model's function."""
        return WEIGHTS_FOLDER / f"{self.build.__name__}.safetensors"


TASKS = {
    "mnist": Task(
        load=mnist,
        build=mnist_mlp,
        title="MNIST",
        settings=Settings(epochs=40, batch=128, rate=4e-3, decay=0.1, shift=1, flip=0.0, dropout=0.0),
    ),
    "cifar10": Task(
        load=cifar10,
        build=cifar_cnn,
        title="CIFAR-10",
        settings=Settings(epochs=40, batch=512, rate=2e-3, decay=0.1, shift=3, flip=0.5, dropout=0.3),
    ),
    "cifar10-vit": Task(
        load=cifar10,
        build=cifar_vit,
        title="CIFAR-10",
        settings=Settings(
            epochs=100, batch=512, rate=2e-3, decay=0.1, shift=4, flip=0.5, dropout=0.0, adversary=2 / 255
        ),
    ),
    "mnist-provable": Task(
        load=mnist,
        build=mnist_provable,
        title="MNIST",
        settings=Settings(
            epochs=30,
            batch=512,
            rate=2e-3,
            decay=0.0,
            shift=1,
            flip=0.0,
            dropout=0.0,
            adversary=0.1,
            bounded=0.5,
            ramp=0.1,
            l1=1e-6,
            clip=10.0,
        ),
    ),
    "cifar10-provable": Task(
        load=cifar10,
        build=cifar_provable,
        title="CIFAR-10",
        settings=Settings(
            epochs=80,
            batch=512,
            rate=2e-3,
            decay=0.0,
            shift=3,
            flip=0.5,
            dropout=0.0,
            adversary=2 / 255,
            bounded=0.12,
            ramp=0.1,
            l1=1e-6,
            clip=10.0,
        ),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Train; then report the held-out accuracy, or the test accuracy, and write the weights."""
    options = _parse(arguments)
    task: Task = TASKS[options.task]
    settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)  # sums in a fixed order: the same seed gives the same weights
    torch.backends.cudnn.deterministic = True
    try:
        images, labels = task.load(options.data, "train")
        test = task.load(options.data, "test")
    except FileError as error:
        print(error, file=sys.stderr)
        return 2
    if not 0 <= options.held_out < len(images):
        print(f"--held-out is {options.held_out}, expected 0 to {len(images) - 1}", file=sys.stderr)
        return 2
    kept = len(images) - options.held_out
    model = task.build(pretrained=False).to(options.device)
    images, labels = images.to(options.device), labels.to(options.device)
    train(model, images[:kept], labels[:kept], settings)
    if options.held_out:
        print(f"held-out accuracy {accuracy(model, images[kept:], labels[kept:]):.4f} on {options.held_out} images")
        return 0
    tested = accuracy(model, *(part.to(options.device) for part in test))
    print(f"test accuracy {tested:.4f}")
    metadata = {
        "accuracy": f"{tested:.4f} on the {task.title} test set",
        "command": f"python scripts/train.py {options.task} --data FOLDER --device {options.device} {_flags(settings)}",
        "seed": str(settings.seed),
        "versions": f"python {platform.python_version()}, torch {torch.__version__}",
    }
    out: Path = options.out or task.weights
    save_file({name: tensor.cpu() for name, tensor in model.state_dict().items()}, out, metadata=metadata)
    out.chmod(0o644)  # safetensors gives read access only to the owner, and an installed copy keeps the mode
    print(f"wrote {out}, {out.stat().st_size} bytes")
    return 0


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the fraction of images whose largest logit is their label's."""
    model.eval()
    with torch.inference_mode():
        predicted = torch.cat([model(part).argmax(dim=1) for part in images.split(500)])
    return float((predicted == labels).double().mean())


def train(model: nn.Module, images: Tensor, labels: Tensor, settings: Settings) -> None:
    """Train with AdamW and a cosine schedule: a short linear rise to the peak rate, then down to zero."""
    steps = settings.epochs * -(-len(images) // settings.batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=settings.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.rate, total_steps=steps, pct_start=0.1)
    trained = with_dropout(model, settings.dropout).train()
    for epoch in range(settings.epochs):
        total = 0.0
        for picked in torch.randperm(len(images)).to(images.device).split(settings.batch):
            seen = flip(shift(images[picked], settings.shift), settings.flip)
            grown = (schedule.last_epoch / max(1.0, settings.ramp * steps) - 1) / 4
            loss = loss_of(trained, seen, labels[picked], settings, settings.adversary * min(1.0, max(0.0, grown)))
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            schedule.step()
            total += loss.item() * len(picked)
        print(f"epoch {epoch + 1:3d} of {settings.epochs}: loss {total / len(images):.4f}", flush=True)


def loss_of(model: nn.Module, images: Tensor, labels: Tensor, settings: Settings, eps: float) -> Tensor:
    """Return the loss of a batch: of the images, of one attack on them, or partly a bound of the loss in the ball."""
    if settings.bounded:
        assert isinstance(model, nn.Sequential)
        return mixed_loss(model, images, labels, eps, settings.bounded) + settings.l1 * magnitude(model)
    if settings.adversary:
        images = attacked(model, images, labels, settings.adversary)
    return functional.cross_entropy(model(images), labels)


def attacked(model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Take one gradient step from a random point of the ball: fast adversarial training (Wong et al. 2020)."""
    start = (images + eps * (2 * torch.rand_like(images) - 1)).requires_grad_()
    (slope,) = torch.autograd.grad(functional.cross_entropy(model(start), labels), start)
    moved = start.detach() + 1.25 * eps * slope.sign()
    return torch.minimum(torch.maximum(moved, images - eps), images + eps).clamp(0, 1)


def with_dropout(model: nn.Module, chance: float) -> nn.Module:
    """Return the same layers with dropout before each dense layer; the model itself if the probability is 0."""
    if not chance:
        return model
    assert isinstance(model, nn.Sequential)
    layers: list[nn.Module] = []
    for layer in model:
        layers += [nn.Dropout(chance), layer] if isinstance(layer, nn.Linear) else [layer]
    return nn.Sequential(*layers)


def shift(images: Tensor, reach: int) -> Tensor:
    """Shift each image by its own random offset, at most `reach` pixels along each axis; zeros fill the border."""
    count, channels, height, width = images.shape
    padded = functional.pad(images, (reach, reach, reach, reach))  # (N, C, H + 2 reach, W + 2 reach)
    down, right = torch.randint(0, 2 * reach + 1, (2, count, 1)).to(
        images.device
    )  # drawn on the CPU, so that all devices get the same numbers
    rows = (down + torch.arange(height, device=images.device))[:, None, :, None]  # (N, 1, H, 1)
    columns = (right + torch.arange(width, device=images.device))[:, None, None, :]  # (N, 1, 1, W)
    sample = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[None, :, None, None]
    return padded[sample, channel, rows, columns]


def flip(images: Tensor, chance: float) -> Tensor:
    """Mirror each image with the given probability."""
    if not chance:
        return images
    mirrored = torch.rand(len(images), 1, 1, 1).to(images.device) < chance
    return torch.where(mirrored, images.flip(-1), images)


def _flags(settings: Settings) -> str:
    return " ".join(f"--{field.name} {getattr(settings, field.name)}" for field in fields(Settings))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a classifier that the package ships.")
    commands = parser.add_subparsers(dest="task", required=True)
    for name, task in TASKS.items():
        command = commands.add_parser(name, help=f"train {task.build.__name__}")
        command.add_argument("--data", type=Path, required=True, help=f"folder with the official {task.title} files")
        command.add_argument("--out", type=Path, help=f"where to write the weights; {task.weights.name} if not given")
        command.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="cpu or cuda")
        command.add_argument("--held-out", type=int, default=0, help="train without the last N images, test on those")
        for field in fields(Settings):
            value: Any = getattr(task.settings, field.name)
            command.add_argument(f"--{field.name}", type=type(value), default=value, help=f"{value} if not given")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
