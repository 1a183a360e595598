"""The sharings "separate", "shared" and "one-pass" on three networks: seconds, peak memory, rank correlation, mean AO.

    python benchmarks/family.py [--images 16] [--eps 0.01] [--networks mnist-mlp conv resnet] [--json FILE]

Each measurement runs in a new process; its memory is the peak minus the memory at the start. The MNIST MLP is packaged.
The two convolutional networks are trained on the packaged digits when the benchmark starts (a few seconds, with a fixed
seed), so that their margins are those of trained networks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import proofmap as pm

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder


SHARINGS: tuple[pm.bounds.Sharing, ...] = ("separate", "shared", "one-pass")


class Residual(nn.Module):
    """Two convolutions around a skip connection, batch norm, ReLU, average pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Sequential(nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 7 * 7, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10)."""
        x = self.stem(x)
        out: Tensor = self.head(self.block(x) + x)
        return out


def plain() -> nn.Module:
    """Return two strided convolutions and a dense layer."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


NETWORKS = {"mnist-mlp": pm.zoo.mnist_mlp, "conv": plain, "resnet": Residual}


def fit(name: str, folder: Path) -> None:
    """Train a convolutional network on the packaged digits and store its weights in the folder."""
    torch.manual_seed(0)
    model = NETWORKS[name]()
    x, labels = pm.data.digits()
    optimiser = torch.optim.Adam(model.parameters(), 2e-3, weight_decay=1e-3)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x + 0.1 * torch.randn_like(x)), labels).backward()
        optimiser.step()
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / f"{name}.safetensors")


def measure(
    name: str, sharing: pm.bounds.Sharing, images: int, eps: float, folder: str, repeats: int
) -> dict[str, Any]:
    """Return the seconds per image (the best of some repeats), the peak bytes, and the bounds."""
    model = NETWORKS[name]()
    weights = Path(folder) / f"{name}.safetensors"
    if weights.exists():
        model.load_state_dict(load_file(weights))
    x = pm.data.digits()[0][:images]
    graph = pm.trace(model, x)
    ball, cells = pm.Ball(eps, domain=(0.0, 1.0)), pm.groups.grid(12)
    pm.overlap(graph, x[:1], ball, rigorous=False)  # warm up
    seconds = []
    with measuring.Memory("cpu") as memory:
        for _ in range(repeats):
            found, spent = measuring.clocked(
                lambda: pm.overlap(graph, x, ball, groups=cells, sharing=sharing, rigorous=False), "cpu"
            )
            seconds.append(spent / images)
    return {
        "seconds": min(seconds),
        "peak": memory.beyond,
        "full": found.full.tolist(),
        "frozen": found.frozen.tolist(),
    }


def scores(row: dict[str, Any]) -> Tensor:
    """Return AO(B) - AO(B_u) of the measured bounds."""
    return torch.tensor(row["full"])[:, None] - torch.tensor(row["frozen"])


def main() -> None:
    """Measure everything and print a table, and as JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--eps", type=float, default=0.01)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    print(f"{measuring.machine('cpu')}, {args.images} images, 144 groups, ε {args.eps}")
    print(
        f"{'network':<10} {'sharing':<9} {'s/image':>9} {'speed-up':>8} {'peak MB':>8} "
        f"{'rank':>6} {'AO(B)':>8} {'mean AO(B_u)':>12}"
    )
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.networks:
            if name != "mnist-mlp":
                fit(name, Path(folder))
            rows: dict[str, dict[str, Any]] = {}
            for sharing in SHARINGS:
                rows[sharing] = measuring.alone(measure, name, sharing, args.images, args.eps, folder, args.repeats)
                row = rows[sharing]
                frozen = [value for one in row["frozen"] for value in one]
                ratio = rows["separate"]["seconds"] / row["seconds"]
                rank = measuring.rank_correlation(scores(row), scores(rows["separate"]))
                print(
                    f"{name:<10} {sharing:<9} {row['seconds']:9.4f} {ratio:8.1f} "
                    f"{row['peak'] / 1e6:8.0f} {rank:6.3f} "
                    f"{sum(row['full']) / len(row['full']):8.3f} {sum(frozen) / len(frozen):12.3f}"
                )
                sys.stdout.flush()
            table[name] = rows
    if args.json:
        args.json.write_text(json.dumps(table))


if __name__ == "__main__":
    main()
