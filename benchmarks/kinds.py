"""A table of kinds of models and of the calls that work for them, made by trying each call for docs/wider.md.

python benchmarks/kinds.py [--only NAME ...] [--write]

Every kind is a small network with random weights. The columns are five calls: a map without proofs (EmpiricalEVA), an
upper bound by `Backward`, the same with rounding covered, a search by `Exact` with a time limit, and a certificate of
EVA, which is written to a file. A cell has the seconds of its call, or the number of the refusal below the table.
`--write` puts table and sentences between the marks in docs/wider.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph.onnx.write import as_onnx
from proofmap.zoo.vit import VisionTransformer

_PAGE = Path(__file__).parents[1] / "docs" / "wider.md"
_START, _END = "<!-- kinds: start -->", "<!-- kinds: end -->"
_SEARCH_SECONDS = 3.0  # time limit of the search
_EPS = 1e-3


@dataclass(frozen=True)
class Kind:
    """A model, its input, and the objective that it is asked about."""

    model: Any
    x: Any
    objective: Any = "margin"
    ball: Any = field(default_factory=lambda: pm.Ball(_EPS))


class Residual(nn.Module):
    """A convolution with batch norm, and a block with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
        )
        self.head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        logits: Tensor = self.head(y + self.block(y))
        return logits


class Recurrent(nn.Module):
    """The last state of an LSTM, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(3, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.cell(x)[0][:, -1])
        return logits


class Both(nn.Module):
    """A network of a picture and a row of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.picture, self.row, self.head = nn.Linear(36, 8), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, picture: Tensor, row: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.picture(picture.flatten(1)) + self.row(row)))
        return logits


def dense(inputs: int, outputs: int) -> nn.Sequential:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


def convolutions() -> nn.Sequential:
    """Return a network with a max pool."""
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    return nn.Sequential(*layers)


def quantised() -> Kind:
    """Return an ONNX file that onnxruntime quantised with calibration (QDQ)."""
    import onnx
    from onnxruntime import quantization

    folder = Path(tempfile.mkdtemp())
    onnx.save(as_onnx(pm.trace(convolutions().eval(), torch.rand(1, 1, 8, 8))), folder / "plain.onnx")
    name = onnx.load(folder / "plain.onnx").graph.input[0].name

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Eight random inputs."""

        def __init__(self) -> None:
            self.left = iter([{name: np.random.default_rng(k).random((1, 1, 8, 8), np.float32)} for k in range(8)])

        def get_next(self) -> Any:
            return next(self.left, None)

    quantization.quantize_static(folder / "plain.onnx", folder / "quantised.onnx", Calibration())
    return Kind(pm.load(folder / "quantised.onnx"), torch.rand(1, 1, 8, 8))


def pipeline() -> Kind:
    """Return a scikit-learn pipeline of a scaler and a network, with two classes."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_breast_cancer(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=300, random_state=0)).fit(x, y)
    return Kind(pm.from_sklearn(fitted), torch.as_tensor(x[:1]).float())


def hugging_face() -> Kind:
    """Return a small vision transformer of Hugging Face."""
    transformers: Any = import_module("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    return Kind(transformers.ViTForImageClassification(config), torch.rand(1, 3, 16, 16))


def segmentation() -> nn.Sequential:
    """Return a network with two scores for each pixel."""
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))


KINDS: dict[str, Callable[[], Kind]] = {
    "dense network": lambda: Kind(dense(10, 3), torch.rand(1, 10)),
    "convolutions and a max pool": lambda: Kind(convolutions(), torch.rand(1, 1, 8, 8)),
    "residual network with batch norm": lambda: Kind(Residual(), torch.rand(1, 3, 8, 8)),
    "sigmoid and tanh": lambda: Kind(
        nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 3)), torch.rand(1, 6)
    ),
    "one logit": lambda: Kind(dense(10, 1), torch.rand(1, 10)),
    "regression": lambda: Kind(dense(10, 1), torch.rand(1, 10), pm.objectives.Output(0)),
    "several labels": lambda: Kind(dense(10, 4), torch.rand(1, 10), pm.objectives.Label(2)),
    "segmentation": lambda: Kind(segmentation(), torch.rand(1, 1, 8, 8), pm.objectives.Output((1, 4, 4))),
    "two inputs": lambda: Kind(Both(), (torch.rand(1, 1, 6, 6), torch.rand(1, 4)), ball=(pm.Ball(_EPS), pm.Ball(_EPS))),
    "transformer": lambda: Kind(VisionTransformer(16, 1, 2, 16, "layer"), torch.rand(1, 3, 32, 32)),
    "transformer of Hugging Face": hugging_face,
    "LSTM": lambda: Kind(Recurrent(), torch.rand(1, 5, 3)),
    "float16": lambda: Kind(dense(10, 3).half(), torch.rand(1, 10)),
    "static quantisation (ONNX)": quantised,
    "scikit-learn pipeline": pipeline,
}


def a_map(kind: Kind) -> None:
    """Explain without proofs."""
    pm.EmpiricalEVA(kind.model, kind.ball, objective=kind.objective, samples=50).explain(kind.x)


def bounds(kind: Kind) -> None:
    """Bound the overlap, without rounding."""
    pm.overlap(kind.model, kind.x, kind.ball, objective=kind.objective, bounds=pm.bounds.Backward(), rigorous=False)


def rigorous(kind: Kind) -> None:
    """Bound the overlap with rounding covered."""
    pm.overlap(kind.model, kind.x, kind.ball, objective=kind.objective, bounds=pm.bounds.Backward(), rigorous=True)


def exact(kind: Kind) -> None:
    """Search for both bounds."""
    search = pm.bounds.Exact(seconds=_SEARCH_SECONDS)
    pm.overlap(kind.model, kind.x, kind.ball, objective=kind.objective, bounds=search)


def certificate(kind: Kind) -> None:
    """Write a certificate of an explanation."""
    found = pm.EVA(kind.model, kind.ball, objective=kind.objective).explain(kind.x)
    found.certificate().save(Path(tempfile.mkdtemp()) / "one.proof")


COLUMNS = {"map": a_map, "bounds": bounds, "rounding": rigorous, "exact": exact, "certificate": certificate}


def tried(build: Callable[[], Kind], work: Callable[[Kind], None]) -> tuple[float, str]:
    """Return the seconds of a call, and the sentence of its refusal, or ""."""
    torch.manual_seed(0)
    kind = build()
    if isinstance(kind.model, nn.Module):
        kind.model.eval()
    start = time.perf_counter()
    try:
        work(kind)
    except pm.ProofmapError as error:
        return 0.0, f"{error}".replace("\n", " ")
    return time.perf_counter() - start, ""


def table(names: list[str]) -> str:
    """Return the table in Markdown, and the sentences of all refusals."""
    refusals: list[str] = []
    lines = [f"| kind of model | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    for name in names:
        cells = []
        for work in COLUMNS.values():
            seconds, refusal = tried(KINDS[name], work)
            if refusal and refusal not in refusals:
                refusals.append(refusal)
            cells.append(f"no ({refusals.index(refusal) + 1})" if refusal else f"{seconds:.2g}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], file=sys.stderr, flush=True)
    notes = [f"{number}. `{refusal}`" for number, refusal in enumerate(refusals, 1)]
    return "\n".join([*lines, "", *notes])


def main() -> int:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description="What works for which kind of model.")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--write", action="store_true", help="put the table into docs/wider.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # onnxruntime's quantisation advises to pre-process
    tried(KINDS["dense network"], a_map)  # the first call loads modules
    made = table(args.only)
    if not args.write:
        print(made)
        return 0
    before, _, rest = _PAGE.read_text(encoding="utf-8").partition(_START)
    _PAGE.write_text(f"{before}{_START}\n{made}\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
