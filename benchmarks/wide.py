"""Proofs for networks of other kinds than the paper's: both bounds of AO(B), radius by radius.

python benchmarks/wide.py train   NAME ... --out FOLDER [--data FOLDER] [--device cuda]
python benchmarks/wide.py measure NAME ... --out FOLDER [--data FOLDER] [--samples 10] [--summary]
python benchmarks/wide.py draw    NAME ... --out FOLDER [--data FOLDER]
    NAME: vit vit-onnx mobile text lstm cnn1d table

train writes NAME.safetensors and the test accuracy; vit is packaged (scripts/train.py cifar10-vit), and table is
trained when it is used. vit-onnx has batch norms, as the transformers of VNN-COMP do; it is written as an ONNX file and
read again. measure bounds the first test samples that are classified correctly, by Exact. A network with products of
values is not searched: its upper bound is Backward's, its lower bound comes from an attack. draw writes the first map
as NAME.png.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import proofmap as pm
from proofmap.plots.figure_titles import caption, title
from proofmap.zoo.vit import VisionTransformer

if TYPE_CHECKING:
    from benchmarks import networks
    from benchmarks.lines import Line, Lines, average, by, share, table
    from scripts.train import attacked
else:
    import networks  # a script imports from its own folder
    from lines import Line, Lines, average, by, share, table

    sys.path.append(str(Path(__file__).parents[1] / "scripts"))
    from train import attacked

_ADVERSARIAL_EPS = 2 / 255  # for the adversarial training of networks of images
_SEARCH_SECONDS = 10.0  # time limit of the attack and the search


@dataclass(frozen=True)
class Kind:
    """A network, its training, and the radii at which it is measured."""

    build: Callable[[], nn.Module]
    data: Callable[[Path | None, networks.Part], networks.Data]
    radii: tuple[float, ...]
    epochs: int = 60
    rate: float = 2e-3
    domain: tuple[float, float] | None = None
    groups: Any = None


def _cifar(folder: Path | None, part: networks.Part) -> networks.Data:
    if folder is None:
        raise SystemExit("CIFAR-10's files are needed: --data FOLDER")
    return pm.data.cifar10(folder, part)


def _cancer(folder: Path | None, part: networks.Part) -> networks.Data:
    from sklearn.datasets import load_breast_cancer

    x, y = (torch.as_tensor(part) for part in load_breast_cancer(return_X_y=True))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = ((x - x.mean(0)) / x.std(0)).float()[order], y[order]
    return (x[:400], y[:400]) if part == "train" else (x[400:], y[400:])


def _dense() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))


NETWORK_KINDS = {
    "vit": Kind(pm.zoo.cifar_vit, _cifar, (0.0005, 0.001), domain=(0.0, 1.0), groups=pm.groups.grid(8)),
    "vit-onnx": Kind(
        lambda: VisionTransformer(96, 2, 4, 192, "batch"),
        _cifar,
        (0.0005, 0.001),
        domain=(0.0, 1.0),
        groups=pm.groups.grid(8),
    ),
    "mobile": Kind(networks.mobile, _cifar, (0.001, 0.002), domain=(0.0, 1.0), groups=pm.groups.grid(8)),
    "text": Kind(
        networks.Text,
        lambda folder, part: networks.words(part),
        (0.01, 0.02, 0.05, 0.1),
        epochs=30,
        rate=1e-2,
        groups=torch.arange(networks.MAX_WORD_LETTERS)[:, None].expand(networks.MAX_WORD_LETTERS, 16),
    ),
    "lstm": Kind(
        networks.Recurrent,
        lambda folder, part: networks.series("ItalyPowerDemand", part),
        (0.01, 0.02, 0.05, 0.1),
        epochs=200,
        rate=1e-2,
        groups=pm.groups.windows(3),
    ),
    "cnn1d": Kind(
        networks.filters,
        lambda folder, part: networks.series("GunPoint", part),
        (0.01, 0.02, 0.05, 0.1),
        epochs=300,
        rate=1e-2,
        groups=pm.groups.windows(10),
    ),
    "table": Kind(_dense, _cancer, (0.05, 0.1, 0.2, 0.4), epochs=100, rate=3e-3),
}


def train(name: str, args: argparse.Namespace) -> None:
    """Train with AdamW and a cosine schedule; images are shifted, mirrored and perturbed adversarially.

    The test samples are used once, for the accuracy.
    """
    kind = NETWORK_KINDS[name]
    torch.manual_seed(0)
    model = kind.build().to(args.device).train()
    x, y = (part.to(args.device) for part in kind.data(args.data, "train"))
    batch = min(512, max(16, len(x) // 8))
    optimiser = torch.optim.AdamW(model.parameters(), kind.rate, weight_decay=0.1 if x.ndim == 4 else 0.01)
    steps = kind.epochs * -(-len(x) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, kind.rate, total_steps=steps, pct_start=0.1)
    for _ in range(kind.epochs):
        for part in torch.randperm(len(x)).to(args.device).split(batch):
            seen = attacked(model, _moved(x[part]), y[part], _ADVERSARIAL_EPS) if x.ndim == 4 else x[part]
            loss = nn.functional.cross_entropy(model(seen), y[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    model.eval()
    x, y = kind.data(args.data, "test")
    with torch.no_grad():
        decided = torch.cat([model(part.to(args.device)).argmax(1).cpu() for part in x.split(500)])
    accuracy = float((decided == y).float().mean())
    weights = {key: value.cpu().contiguous() for key, value in model.state_dict().items()}
    save_file(weights, args.out / f"{name}.safetensors", {"accuracy": f"{accuracy:.4f}", "seed": "0"})
    print(f"{name}: {sum(value.numel() for value in model.parameters())} parameters, test accuracy {accuracy:.4f}")


def _moved(x: Tensor, reach: int = 4) -> Tensor:
    """Shift all images of a batch by the same offset, and mirror each at random."""
    down, right = torch.randint(0, 2 * reach + 1, (2,)).tolist()
    padded = nn.functional.pad(x, (reach,) * 4)[..., down : down + x.shape[2], right : right + x.shape[3]]
    mirrored = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return torch.where(mirrored, padded.flip(-1), padded)


def loaded(name: str, args: argparse.Namespace) -> nn.Module:
    """Load the trained network."""
    model = NETWORK_KINDS[name].build()
    if name != "vit":
        model.load_state_dict(load_file(args.out / f"{name}.safetensors"))
    return model.eval()


def samples(name: str, args: argparse.Namespace) -> tuple[Any, Tensor, list[int]]:
    """Return the graph, and the first test samples that are classified correctly, (n, *shape), with their numbers."""
    model, (x, y) = loaded(name, args), NETWORK_KINDS[name].data(args.data, "test")
    with torch.no_grad():
        right = [k for k in range(min(len(x), 20 * args.samples)) if int(model(x[k : k + 1]).argmax()) == int(y[k])]
        right = right[: args.samples]
        if isinstance(model, networks.Text):
            x, model = model.letters(x[right]), model.reader
        else:
            x = x[right]
    if name == "vit-onnx":
        file = args.out / "vit.onnx"
        torch.onnx.export(model, (x[:1],), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}})
        return pm.load(file), x, right
    return pm.trace(model, x[:1]), x, right


def draw(name: str, args: argparse.Namespace) -> None:
    """Draw the map of the first sample, at the second smallest radius."""
    kind, (graph, x, numbers) = NETWORK_KINDS[name], samples(name, args)
    ball = pm.Ball(kind.radii[1], domain=kind.domain)
    found = pm.EVA(graph, ball, groups=kind.groups, sharing="one-pass", progress=False, rigorous=False).explain(x[:1])
    letters: list[str] = []
    if name == "text":
        word = networks.word_of(kind.data(args.data, "test")[0][numbers[0]])
        letters = [f"{k + 1}: {letter}" for k, letter in enumerate(word.ljust(networks.MAX_WORD_LETTERS, "-"))]
    _picture(found, letters).savefig(args.out / f"{name}.png")


def _picture(found: pm.Explanation, letters: Sequence[str]) -> Any:
    """Return the figure of the explanation; for a word, a bar chart with one bar for each letter."""
    if not letters:
        return found.plot()
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3), layout="constrained")
    axes.bar(letters, found.scores[0].tolist(), color="teal")
    axes.set_xlabel(caption(found))
    axes.set_title(fill(title(found, 0, networks.LANGUAGES), 70), loc="left", fontsize=10)
    return figure


def measure(name: str, args: argparse.Namespace) -> Iterator[Line]:
    """Bound AO(B) from both sides, sample by sample."""
    kind, (graph, x, numbers) = NETWORK_KINDS[name], samples(name, args)
    for one, number in zip(x.to(args.device).split(1), numbers, strict=True):
        for eps in kind.radii:
            begin = time.perf_counter()
            found = pm.overlap(
                graph,
                one,
                pm.Ball(eps, domain=kind.domain),
                bounds=pm.bounds.Exact(seconds=_SEARCH_SECONDS),
                rigorous=False,
            )
            where = {"network": name, "eps": eps, "device": args.device, "index": number}
            sides = {"nominal": float(found.nominal), "lower": float(found.full_lower), "upper": float(found.full)}
            yield {**where, **sides, "s": time.perf_counter() - begin}


def summary(lines: Sequence[Line]) -> str:
    """Return a row for each network and radius."""
    rows = []
    for key, some in by(lines, "network", "eps", "device"):
        of = {side: average(line[side] for line in some) for side in ("nominal", "lower", "upper")}
        proven = sum(line["upper"] < 0 for line in some) / len(some)
        rows.append({**key, "samples": len(some), **of, "proven": proven, "s": average(line["s"] for line in some)})
    return table(rows)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=("train", "measure", "draw"))
    parser.add_argument("names", nargs="+", choices=NETWORK_KINDS, metavar="NAME")
    parser.add_argument("--out", type=Path, required=True, help="the folder of weights and lines")
    parser.add_argument("--data", type=Path, help="the folder with CIFAR-10's files")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--summary", action="store_true", help="only show what is there")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        if args.work == "train":
            train(name, args)
            continue
        if args.work == "draw":
            draw(name, args)
            continue
        kept = Lines(args.out, f"wide_{name}", share("1/1"))
        if not args.summary:
            kept.write(measure(name, args))
        print(summary(kept.read()))


if __name__ == "__main__":
    main()
