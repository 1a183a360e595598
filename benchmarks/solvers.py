"""The same questions to Exact, to HiGHS and to Marabou: both sides of overlaps, seconds, and that nobody contradicts.

python benchmarks/solvers.py [--threads 1] [--seconds 60] [--gap 1e-3] [--json FILE]
    [--eps 0.01 0.02] [--images 0 1 2 3] [--members 1]      the packaged MLP and a random convolutional network
    [--onnx FILE --vnnlib FILE ...]                         the boxes and classes of VNN-LIB properties

A question is max over B, or over one B_u, of the margins f_c' - f_c. Exact answers for the whole family of balls at
once, so that its seconds stand once for all of its questions; HiGHS has as long for each, and Marabou for each of two:
whether a margin can reach Exact's lower side less 0.01 (expected: sat) and its upper side plus 0.01 (unsat). Exact runs
in float64, as the others do. What others find is run through the network before it counts. Exit code 1 where two
answers contradict each other by more than 1e-5.

`pip install '.[solvers]'` brings HiGHS and, for a Python that it supports, Marabou; without it its columns are missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph.ir import Graph
from proofmap.sources import Preparation, read_specification

if TYPE_CHECKING:
    from benchmarks import highs, marabou, measuring
    from benchmarks.programs import Array, program
else:
    import highs  # a script finds what lies beside it
    import measuring
    from programs import Array, program

    if find_spec("maraboupy"):
        import marabou

ROUNDING = 1e-5  # what two answers may miss each other by
BESIDE = 1e-2  # how far from Exact's sides Marabou is asked


@dataclass(frozen=True, eq=False)
class Question:
    """A family of balls around one input, and which of its members are asked for."""

    name: str
    graph: Graph  # in float64, as x
    x: Tensor  # (1, *shape)
    ball: pm.Ball
    mask: Tensor | None
    target: int
    members: tuple[int, ...]  # 0 is B, 1 + u is B_u

    def reached(self, points: list[Array], member: int) -> float:
        """The largest margin at points, each moved into the ball; nan without any."""
        family = self.ball.at(self.x, self.mask)
        low, high = family.split(torch.tensor([member])).box()
        values = []
        for point in points:
            inside = torch.from_numpy(point).reshape(self.x.shape).clamp(low, high)
            logits = self.graph(inside).flatten()
            rest = torch.cat([logits[: self.target], logits[self.target + 1 :]])
            values.append(float(rest.max() - logits[self.target]))
        return max(values, default=nan)


def questions(args: argparse.Namespace) -> Iterator[Question]:
    """All of them, one family after the other."""
    digits = pm.data.digits()[0].double()[args.images]
    cells = pm.groups.grid(12)((1, 28, 28))
    for name, model in (("mlp", pm.zoo.mnist_mlp()), ("conv", convolutional())):
        graph = pm.trace(model, digits[:1].float()).to(torch.device("cpu"), torch.float64)
        for eps in args.eps:
            ball = pm.Ball(eps, domain=(0.0, 1.0))
            for image, x in zip(args.images, digits.split(1), strict=True):
                drops = pm.overlap(graph, x, ball, groups=cells, sharing="one-pass").drop[0]
                chosen = (0, *(drops.topk(args.members).indices + 1).tolist())
                yield Question(f"{name} {image} ε {eps:g}", graph, x, ball, cells, int(graph(x).argmax()), chosen)
    if args.onnx is not None:
        yield from properties(args.onnx, args.vnnlib)


def convolutional() -> nn.Module:
    """Two small convolutions with random weights, three times as large as torch draws them."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 3, 4, stride=3), nn.Conv2d(3, 4, 3, stride=2)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))
    for parameter in model.parameters():
        parameter.data *= 3
    return model


def properties(network: Path, files: list[Path]) -> Iterator[Question]:
    """The box of each file, whose cases say of the same class that another one is at least as large."""
    graph = pm.load(network).to(torch.device("cpu"), torch.float64)
    for file in files:
        for region in read_specification(file, Preparation(shape=graph.input.shape)):
            rows = torch.cat([case.weight for case in region.unsafe])
            (target,) = ((rows > 0).sum(0) == len(rows)).nonzero().flatten().tolist()
            family = region.ball(torch.device("cpu"))
            ball = pm.Ball(family.upper)
            yield Question(file.name.removesuffix(".gz"), graph, family.x, ball, None, target, (0,))


def answers(question: Question, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What each solver says of each member."""
    ask = partial(pm.overlap, question.graph, question.x, question.ball, groups=question.mask, target=question.target)
    with measuring.parts() as parts:
        over, spent = measuring.clocked(partial(ask, bounds=pm.bounds.Exact(args.gap, args.seconds)), "cpu")
    lower = torch.cat([over.full_lower, over.frozen_lower[0]]).tolist()
    upper = torch.cat([over.full, over.frozen[0]]).tolist()
    family = question.ball.at(question.x, question.mask)
    for member in question.members:
        asked = program(question.graph, family.split(torch.tensor([member])), question.target)
        points, above, seconds = highs.maximise(asked, args.seconds, args.threads, args.gap)
        row = {
            "question": question.name + (f", cell {member - 1} frozen" if member else ""),
            "exact": [lower[member], upper[member], spent],
            "parts": sum(parts),
            "highs": [question.reached(points, member), above, seconds],
        }
        if find_spec("maraboupy"):
            for side, threshold in (("below", lower[member] - BESIDE), ("above", upper[member] + BESIDE)):
                verdict, point, seconds = marabou.exceeds(asked, threshold, args.seconds, args.threads)
                found = question.reached([] if point is None else [point], member)
                row[side] = [verdict, found, seconds]
        yield row


def contradictions(row: dict[str, Any]) -> list[str]:
    """What one solver says that another rules out."""
    lower, upper, _ = row["exact"]
    said = []
    if row["highs"][0] > upper + ROUNDING:
        said.append(f"HiGHS has a point at {row['highs'][0]}, above Exact's {upper}")
    if row["highs"][1] < lower - ROUNDING:
        said.append(f"HiGHS bounds by {row['highs'][1]}, below Exact's point at {lower}")
    for side in ("below", "above"):
        verdict, found, _ = row.get(side, ("open", nan, 0.0))
        if found > upper + ROUNDING:
            said.append(f"Marabou has a point at {found}, above Exact's {upper}")
        if verdict == "unsat" and side == "below":
            said.append(f"Marabou rules out {lower - BESIDE}, which Exact's point exceeds")
    return said


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    words = [f"{row['question']:<34}"]
    ours, theirs = (f"[{row[who][0]:9.4f}, {row[who][1]:9.4f}] {row[who][2]:6.1f}" for who in ("exact", "highs"))
    words += [f"{ours} {row['parts']:7}", theirs]
    words += [f"{row[side][0]:>5} {row[side][2]:6.1f}" for side in ("below", "above") if side in row]
    return "  ".join(words)


def main() -> None:
    """Ask everybody, print a line for each question, and the same as JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each question")
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--eps", type=float, nargs="*", default=[0.01, 0.02])
    parser.add_argument("--images", type=int, nargs="+", default=[0, 1, 2, 3], help="of the packaged digits")
    parser.add_argument(
        "--members", type=int, default=1, help="balls with a frozen cell that are asked for, each image"
    )
    parser.add_argument("--onnx", type=Path)
    parser.add_argument("--vnnlib", type=Path, nargs="*", default=[])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{measuring.machine('cpu')}, float64, {args.seconds:g} s and a gap of {args.gap:g} for each")
    print(f"{'question':<34}  {'Exact, s, parts':<39}  {'HiGHS, s':<31}  {'Marabou: below, s':>12}  {'above, s':>12}")
    rows, wrong = [], 0
    for question in questions(args):
        for row in answers(question, args):
            rows.append(row)
            print(line(row), flush=True)
            for said in contradictions(row):
                wrong += 1
                print(f"  CONTRADICTION: {said}", flush=True)
    print(f"{len(rows)} questions, {wrong} contradictions")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
