"""Models with operations that have no bounding rule, for the tests; each can be run."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from proofmap.graph import Graph, trace
from tests.graph.onnx.files import floats, loaded, make

node = helper.make_node


def seeded(make_one: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_one().eval()


def as_they_are(rows: Tensor) -> Tensor:
    return rows


def in_order(rows: Tensor) -> Tensor:
    return rows.sort(2).values


class Running(nn.Module):
    """A recurrent layer by hand: running products of the rows, with a nonlinear function."""

    def __init__(self, bend: Callable[[Tensor], Tensor], first: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)
        self.bend, self.first = bend, first

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.bend(self.layer(x).tanh().cumprod(1 if self.first else 0))
        return rows, rows


class Sequence(nn.Module):
    """Process the rows of a sample one after the other."""

    def __init__(self, bend: Callable[[Tensor], Tensor], first: bool = True) -> None:
        super().__init__()
        self.rnn = Running(bend, first)
        self.head = nn.Linear(5, 3)
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        rows = self.rnn(x if self.first else x.transpose(0, 1))[0]
        logits: Tensor = self.head(rows[:, -1] if self.first else rows[-1])
        return logits


class Angles(nn.Module):
    """Normalise by an operation without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sinh()


class Attend(nn.Module):
    """Attention by hand with a nonlinear function of the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.inner(x).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-2, -1)).atan().softmax(-1)
        return self.outer((weights @ v).transpose(1, 2).flatten(2)), weights.mean(1)


class Attending(nn.Module):
    def __init__(self, weights: bool) -> None:
        super().__init__()
        self.attend = Attend()
        self.head = nn.Linear(4, 3)
        self.weights = weights

    def forward(self, x: Tensor) -> Tensor:
        rows, weights = self.attend(x)
        logits: Tensor = self.head((weights @ rows if self.weights else rows).mean(1))
        return logits


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, activation=torch.atan, batch_first=True)
        self.encoder.norm1, self.encoder.norm2 = Angles(), Angles()  # type: ignore[assignment]
        self.head = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(x).mean(1))
        return logits


class Sorting(nn.Module):
    """An operation without a rule, called as a function, between layers with rules."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU())
        self.hidden = nn.Linear(48, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.sinh(self.features(x.unsqueeze(1)).flatten(1).sort(1).values)
        logits: Tensor = self.head(torch.relu(self.hidden(rows)))
        return logits


class Branching(nn.Module):
    """A branch on values, sample by sample: no tracer can follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 3), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.one(row) if float(row.detach().sum()) > 8 else self.two(row) for row in x.flatten(1)])


class Counted(nn.Module):
    """A computation in numpy, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.from_numpy(np.sort(x.detach().flatten(1).cpu().numpy(), axis=1)).to(x)
        logits: Tensor = self.head(rows).detach()
        return logits


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumprod(1)


# name -> the model, the operations in the error, the node to split at, and whether gradients exist
MODELS: dict[str, tuple[nn.Module, tuple[str, ...], str, bool]] = {
    "recurrent": (seeded(lambda: Sequence(as_they_are)), ("aten.cumprod (node 'rnn')",), "rnn", True),
    "recurrent, samples second": (
        seeded(lambda: Sequence(as_they_are, False)),
        ("aten.cumprod (node 'rnn')",),
        "select",
        True,
    ),
    "recurrent and sorted": (
        seeded(lambda: Sequence(in_order)),
        ("aten.cumprod (node 'rnn')", "aten.sort (node 'rnn')"),
        "rnn",
        True,
    ),
    "attention": (seeded(lambda: Attending(False)), ("aten.atan (node 'attend')",), "attend", True),
    "attention with weights": (seeded(lambda: Attending(True)), ("aten.atan (node 'attend')",), "mean_1", True),
    "transformer": (
        seeded(Transformer),
        ("aten.sinh (node 'encoder.norm1')", "aten.atan (node 'encoder')", "aten.sinh (node 'encoder.norm2')"),
        "encoder",
        True,
    ),
    "functions": (seeded(Sorting), ("aten.sort (node 'sort')", "aten.sinh (node 'sinh')"), "sinh", True),
    "branches": (seeded(Branching), ("torch.export cannot follow",), "output", True),
    "numpy": (seeded(Counted), ("torch.export cannot follow",), "output", False),
    "alone": (
        seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3), Product())),
        ("aten.cumprod (node '2')",),
        "2",
        True,
    ),
}


def inputs(n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return samples (n, 4, 4) in [0, 1] for every model here, and for the files."""
    return torch.rand(n, 4, 4, generator=torch.Generator().manual_seed(5)).to(dtype)


def remainder(x: str, y: str, name: str) -> onnx.NodeProto:
    """Return an operation without a rule that onnxruntime runs in double precision."""
    return node("Mod", [x, "third"], [y], name=name, fmod=1)


def foreign_file(batch: int | str = "n", *, kind: int = TensorProto.FLOAT, last: bool = False) -> onnx.ModelProto:
    """Return a file x (batch, 4, 4) -> (batch, 3): two operations without a rule, a network, and perhaps one more."""
    double = kind == TensorProto.DOUBLE
    cast = np.float64 if double else np.float32
    weights = {"w1": floats(6, 16), "b1": floats(6), "w2": floats(3, 6, seed=2), "b2": floats(3, seed=3)}
    constants = {name: value.astype(cast) for name, value in weights.items()}
    if double:
        constants["third"] = np.array(0.3, cast)
    nodes = [
        node("Flatten", ["x"], ["f"]),
        remainder("f", "s", "wave") if double else node("Sinh", ["f"], ["s"], name="wave"),
        node("Gelu" if last else "Relu", ["s"], ["r"], name="bend"),
        node("Tanh", ["r"], ["t"], name="other"),
        remainder("t", "g", "sign") if double else node("Tan", ["t"], ["g"], name="sign"),
        node("Add", ["g", "t"], ["m"], name="meet"),
        node("Gemm", ["m", "w1", "b1"], ["h"], name="hidden", transB=1),
        node("Relu", ["h"], ["a"], name="act"),
        node("Gemm", ["a", "w2", "b2"], ["z" if last else "y"], name="logits", transB=1),
    ]
    if last:
        nodes.append(node("Sinh", ["z"], ["y"], name="end"))
    return make(nodes, (batch, 4, 4), constants, opset=20 if last else 13, kind=kind)


def file_graph(folder: Path, batch: int | str = "n", *, kind: int = TensorProto.FLOAT) -> Graph:
    return loaded(foreign_file(batch, kind=kind), folder)


@cache
def graph_of(name: str) -> Graph:
    return trace(MODELS[name][0], inputs(1))
