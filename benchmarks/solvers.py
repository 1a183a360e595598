"""Exact, HiGHS and Marabou on the same questions: bounds of overlaps, seconds, and contradictions.

python benchmarks/solvers.py --out FOLDER [--threads 1] [--seconds 12] [--gap 1e-3] [--summary]
    [--eps 0.01 0.02] [--images 0 1] [--members 1]  the packaged MLP; a random convolutional network on one image
    [--tiny 4]                                      random networks with a handful of neurons
    [--onnx FILE --vnnlib FILE ...]                 the boxes and classes of VNN-LIB properties

A question is the maximum over B, or over one B_u, of the margins f_c' - f_c. For a property, only its sign is asked.
Exact answers for the whole family of balls at once, so its seconds are listed once for all of its questions. HiGHS has
the same time limit for each question. Marabou has it for each of two queries: can a margin reach Exact's lower bound -
0.01 (expected: sat), and its upper bound + 0.01 (expected: unsat)? Exact runs in float64, like the others. Every point
is evaluated by the network before it counts. The exit code is 1 if two answers contradict each other by more than 1e-5.
If Marabou rules out a value that such a point reaches, the table says that Marabou is wrong: its linear arithmetic has
an error (`marabou.py`).

Every question is a line of JSON in the folder --out, and is not asked again. --summary prints the results so far.

`pip install '.[solvers]'` installs HiGHS and, for supported versions of Python, Marabou. Without it, their columns are
missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph.ir import Graph
from proofmap.sources import Preparation, read_specification

if TYPE_CHECKING:
    from benchmarks import highs, marabou, measuring
    from benchmarks.lines import Line, Lines, table
    from benchmarks.programs import Array, margins_of, program
else:
    import highs  # a script imports from its own folder
    import measuring
    from lines import Line, Lines, table
    from programs import Array, margins_of, program

    if find_spec("maraboupy"):
        import marabou

CONTRADICTION_TOLERANCE = 1e-5  # two answers may differ by this much
MARABOU_OFFSET = 1e-2  # distance of Marabou's thresholds from Exact's bounds


@dataclass(frozen=True, eq=False)
class Question:
    """A family of balls around one input, and the members in question."""

    name: str
    graph: Graph  # in float64, like x
    x: Tensor  # (1, *shape)
    ball: pm.Ball
    mask: Tensor | None
    target: int
    members: tuple[int, ...]  # 0 is B, 1 + u is B_u
    enough: float = -inf  # bounds at or below this value are tight enough

    def named(self, member: int) -> str:
        """Return the name of the question about one member."""
        return self.name + (f", group {member - 1} frozen" if member else "")

    def reached(self, points: list[Array], member: int) -> float:
        """Return the largest margin at points, each moved into the ball; nan without points."""
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
    """Yield all questions, one family after the other."""
    digits = pm.data.digits()[0].double()
    cells = pm.groups.grid(12)((1, 28, 28))
    mlp = [("mlp", pm.zoo.mnist_mlp(), eps, image) for eps in args.eps for image in args.images]
    for name, model, eps, image in [*mlp, ("conv", convolutional(), 0.01, 0)]:
        x = digits[image][None]
        graph = pm.trace(model, x.float()).to(torch.device("cpu"), torch.float64)
        ball = pm.Ball(eps, domain=(0.0, 1.0))
        drops = pm.overlap(graph, x, ball, groups=cells, sharing="one-pass", rigorous=False).drop[0]
        chosen = (0, *(drops.topk(args.members).indices + 1).tolist())
        yield Question(f"{name} {image} ε {eps:g}", graph, x, ball, cells, int(graph(x).argmax()), chosen)
    yield two_neurons()
    for seed in range(args.tiny):
        yield tiny(seed)
    if args.onnx is not None:
        yield from properties(args.onnx, args.vnnlib)


def two_neurons() -> Question:
    """One input, two neurons that are positive everywhere: the example of `marabou.py` as a network."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    values = ([[-0.005], [4.28]], [0.77, 3.44], [[0.0, 0.0], [-0.85, -1.44]], [0.0, 0.0])
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = torch.tensor(value, dtype=torch.float64)
    x = torch.tensor([[0.975]], dtype=torch.float64)
    return Question("two neurons", pm.trace(model, x), x, pm.Ball(0.025), None, 0, (0,))


def tiny(seed: int) -> Question:
    """Return two layers of a handful of neurons, with random weights three times as large as torch's."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    for parameter in model.parameters():
        parameter.data *= 3
    x = torch.rand(1, 4, dtype=torch.float64)
    graph = pm.trace(model, x)
    mask = torch.tensor([0, 0, 1, 1])
    return Question(f"tiny {seed}", graph, x, pm.Ball(0.4), mask, int(graph(x).argmax()), (0, 1))


def convolutional() -> nn.Module:
    """Return two small convolutions, with random weights three times as large as torch's."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 3, 4, stride=3), nn.Conv2d(3, 4, 3, stride=2)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))
    for parameter in model.parameters():
        parameter.data *= 3
    return model


def properties(network: Path, files: list[Path]) -> Iterator[Question]:
    """Yield the box of each file; its cases say of one class that another one is at least as large."""
    graph = pm.load(network).to(torch.device("cpu"), torch.float64)
    for file in files:
        for region in read_specification(file, Preparation(shape=graph.input.shape)):
            rows = torch.cat([case.weight for case in region.unsafe])
            (target,) = ((rows > 0).sum(0) == len(rows)).nonzero().flatten().tolist()
            family = region.ball(torch.device("cpu"))
            ball = pm.Ball(family.upper)
            yield Question(file.name.removesuffix(".vnnlib.gz"), graph, family.x, ball, None, target, (0,), enough=0.0)


def answers(args: argparse.Namespace, lines: Lines) -> Iterator[Line]:
    """Yield the answers of each solver for every member without a line."""
    for question in questions(args):
        keys = {member: _key(question.named(member), args) for member in question.members}
        missing = lines.missing(list(keys.values()))
        if missing:
            yield from _asked(question, {member: key for member, key in keys.items() if key in missing}, args)


def _key(name: str, args: argparse.Namespace) -> Line:
    return {"question": name, "seconds": args.seconds, "gap": args.gap}


def _asked(question: Question, keys: dict[int, Line], args: argparse.Namespace) -> Iterator[Line]:
    ask = partial(pm.overlap, question.graph, question.x, question.ball, groups=question.mask, target=question.target)
    search = partial(ask, bounds=pm.bounds.Exact(args.gap, args.seconds), enough=question.enough)
    with measuring.parts() as parts:
        over, spent = measuring.clocked(search, "cpu")
    lower = torch.cat([over.full_lower, over.frozen_lower[0]]).tolist()
    upper = torch.cat([over.full, over.frozen[0]]).tolist()
    family = question.ball.at(question.x, question.mask)
    for member, key in keys.items():
        rows = margins_of(question.target, question.graph.classes)
        asked = program(question.graph, family.split(torch.tensor([member])), rows)
        points, above, seconds = highs.maximise(asked, args.seconds, args.threads, args.gap)
        assert over.points is not None
        row = {
            **key,
            "reached": question.reached([over.points[0, member].numpy()], member),
            "exact": [lower[member], upper[member], spent],
            "parts": sum(parts),
            "highs": [question.reached(points, member), above, seconds],
        }
        if find_spec("maraboupy"):
            for side, threshold in (
                ("below", lower[member] - MARABOU_OFFSET),
                ("above", upper[member] + MARABOU_OFFSET),
            ):
                verdict, point, seconds = marabou.exceeds(asked, threshold, args.seconds, args.threads)
                found = question.reached([] if point is None else [point], member)
                row[side] = [verdict, found, seconds]
        yield row


def contradictions(row: Line) -> list[str]:
    """Return the answers of one solver that another one rules out."""
    lower, upper, _ = row["exact"]
    said = []
    if row["highs"][0] > upper + CONTRADICTION_TOLERANCE:
        said.append(f"HiGHS has a point at {row['highs'][0]}, above Exact's {upper}")
    if row["highs"][1] < lower - CONTRADICTION_TOLERANCE:
        said.append(f"HiGHS bounds by {row['highs'][1]}, below Exact's point at {lower}")
    for side in ("below", "above"):
        found = row.get(side, ("open", nan, 0.0))[1]
        if found > upper + CONTRADICTION_TOLERANCE:
            said.append(f"Marabou has a point at {found}, above Exact's {upper}")
    if abs(row["reached"] - lower) > CONTRADICTION_TOLERANCE:
        said.append(f"Exact's point reaches {row['reached']}, not its {lower}")
    return said


def refuted(row: Line) -> bool:
    """Return whether Marabou rules out a value that the network reaches at Exact's point."""
    lower, verdict = row["exact"][0], row.get("below", ("open",))[0]
    return bool(verdict == "unsat" and row["reached"] > lower - MARABOU_OFFSET + CONTRADICTION_TOLERANCE)


def show(lines: Sequence[Line]) -> list[Line]:
    """Return a row for each question, with bounds to four digits."""
    rows = []
    for line in lines:
        row = {"question": line["question"], "limit": line["seconds"]}
        for who in ("exact", "highs"):
            low, high, spent = line[who]
            row |= {who: f"[{low:.4f}, {high:.4f}]", f"{who}, s": f"{spent:.1f}"}
        for side in ("below", "above"):
            verdict, _, spent = line.get(side, ("-", nan, nan))
            verdict += ", wrong" if side == "below" and refuted(line) else ""
            row |= {f"marabou {side}": verdict, f"{side}, s": f"{spent:.1f}"}
        rows.append({**row, "parts": line["parts"]})
    return rows


def main() -> None:
    """Ask all solvers the open questions, and print all results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the lines")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=12.0, help="for each question")
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--eps", type=float, nargs="*", default=[0.01, 0.02])
    parser.add_argument("--images", type=int, nargs="+", default=[0, 1], help="of the packaged digits")
    parser.add_argument(
        "--members", type=int, default=1, help="balls with a frozen cell that are asked for, each image"
    )
    parser.add_argument("--tiny", type=int, default=4, help="random networks")
    parser.add_argument("--onnx", type=Path)
    parser.add_argument("--vnnlib", type=Path, nargs="*", default=[])
    parser.add_argument("--summary", action="store_true", help="only show what is there")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    lines = Lines(args.out, "solvers", (1, 1))
    if not args.summary:
        print(f"{measuring.machine('cpu')}, float64", flush=True)
        lines.write(answers(args, lines))
    found = lines.read()
    print(table(show(found)) if found else f"no lines in {args.out} yet")
    wrong = [f"{line['question']}: {said}" for line in found for said in contradictions(line)]
    theirs = sum(map(refuted, found))
    print("\n".join([f"{len(found)} questions, {len(wrong)} contradictions, Marabou wrong in {theirs}", *wrong]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
