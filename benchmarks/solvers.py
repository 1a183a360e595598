"""The same questions to Exact, to HiGHS and to Marabou: both sides of overlaps, seconds, and that nobody contradicts.

python benchmarks/solvers.py --out FOLDER [--threads 1] [--seconds 12] [--gap 1e-3] [--summary]
    [--eps 0.01 0.02] [--images 0 1] [--members 1]  the packaged MLP; a random convolutional network on one image
    [--tiny 4]                                      random networks of a handful of neurons
    [--onnx FILE --vnnlib FILE ...]                 the boxes and classes of VNN-LIB properties

A question is max over B, or over one B_u, of the margins f_c' - f_c; of a property, only whether that is above 0.
Exact answers for the whole family of balls at once, so that its seconds stand once for all of its questions; HiGHS has
as long for each, and Marabou for each of two: whether a margin can reach Exact's lower side less 0.01 (expected: sat)
and its upper side plus 0.01 (unsat). Exact runs in float64, as the others do. What anybody finds is run through the
network before it counts. Exit code 1 where two answers contradict each other by more than 1e-5. Where Marabou rules out
what such a point reaches, the table says that it is wrong: its linear arithmetic is (`marabou.py`).

Every question is a line of JSON in the folder --out, and is not asked again. --summary shows what is there.

`pip install '.[solvers]'` brings HiGHS and, for a Python that it supports, Marabou; without it its columns are missing.
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
    import highs  # a script finds what lies beside it
    import measuring
    from lines import Line, Lines, table
    from programs import Array, margins_of, program

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
    enough: float = -inf  # need not be known closer where it is at most this

    def named(self, member: int) -> str:
        """What is asked of one of them."""
        return self.name + (f", group {member - 1} frozen" if member else "")

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
    """One input, two neurons that are above 0 everywhere: what `marabou.py` shows as a network."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    values = ([[-0.005], [4.28]], [0.77, 3.44], [[0.0, 0.0], [-0.85, -1.44]], [0.0, 0.0])
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = torch.tensor(value, dtype=torch.float64)
    x = torch.tensor([[0.975]], dtype=torch.float64)
    return Question("two neurons", pm.trace(model, x), x, pm.Ball(0.025), None, 0, (0,))


def tiny(seed: int) -> Question:
    """Two layers of a handful of neurons with random weights, three times as large as torch draws them."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    for parameter in model.parameters():
        parameter.data *= 3
    x = torch.rand(1, 4, dtype=torch.float64)
    graph = pm.trace(model, x)
    mask = torch.tensor([0, 0, 1, 1])
    return Question(f"tiny {seed}", graph, x, pm.Ball(0.4), mask, int(graph(x).argmax()), (0, 1))


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
            yield Question(file.name.removesuffix(".vnnlib.gz"), graph, family.x, ball, None, target, (0,), enough=0.0)


def answers(args: argparse.Namespace, lines: Lines) -> Iterator[Line]:
    """What each solver says of every member that has no line."""
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
            for side, threshold in (("below", lower[member] - BESIDE), ("above", upper[member] + BESIDE)):
                verdict, point, seconds = marabou.exceeds(asked, threshold, args.seconds, args.threads)
                found = question.reached([] if point is None else [point], member)
                row[side] = [verdict, found, seconds]
        yield row


def contradictions(row: Line) -> list[str]:
    """What one solver says that another rules out."""
    lower, upper, _ = row["exact"]
    said = []
    if row["highs"][0] > upper + ROUNDING:
        said.append(f"HiGHS has a point at {row['highs'][0]}, above Exact's {upper}")
    if row["highs"][1] < lower - ROUNDING:
        said.append(f"HiGHS bounds by {row['highs'][1]}, below Exact's point at {lower}")
    for side in ("below", "above"):
        found = row.get(side, ("open", nan, 0.0))[1]
        if found > upper + ROUNDING:
            said.append(f"Marabou has a point at {found}, above Exact's {upper}")
    if abs(row["reached"] - lower) > ROUNDING:
        said.append(f"Exact's point reaches {row['reached']}, not its {lower}")
    return said


def refuted(row: Line) -> bool:
    """Whether Marabou rules out what the network reaches at Exact's point."""
    lower, verdict = row["exact"][0], row.get("below", ("open",))[0]
    return bool(verdict == "unsat" and row["reached"] > lower - BESIDE + ROUNDING)


def show(lines: Sequence[Line]) -> list[Line]:
    """A row for each question, sides to four places."""
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
    """Ask everybody what has no line yet, and show all there is."""
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
