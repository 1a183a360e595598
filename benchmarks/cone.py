"""How far the forms of the last pass differ from ball to ball, layer by layer.

python benchmarks/cone.py [--onnx FILE] [--mean R G B] [--std R G B] [--eps 0.002] [--images 1] [--data FOLDER]

With `sharing="shared"` every member B_u has relaxations of its own, which differ from B's only at entries that u can
reach, u's cone, and one pass back through them. Forms could be kept from B's pass where they are the same: this prints,
for the input of each layer, the share of lines that differ from B's, and the share of coefficients that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import Tensor

import proofmap as pm
from proofmap.bounds import engine
from proofmap.bounds.linear import rewrite
from proofmap.bounds.state import State
from proofmap.rules.lines import Lines

if TYPE_CHECKING:
    from benchmarks import convolutions
else:
    import convolutions  # a script finds what lies beside it


def walked(graph: pm.Graph, x: Tensor, ball: pm.Ball) -> State:
    """What is known of B and of its members before the last pass."""
    found: list[State] = []

    def keep(state: State, specification: Tensor, plan: Any, best: Tensor, floor: Tensor | None) -> Tensor:
        found.append(state)
        return best

    with mock.patch.object(engine, "_last_pass", keep):
        pm.overlap(graph, x, ball, groups=pm.groups.grid(12))
    (state,) = found
    return state


def margins(graph: pm.Graph, x: Tensor) -> Tensor:
    """The form f_c' - f_c of each sample, c' being second."""
    second = graph(x).topk(2).indices
    unit = torch.eye(graph.classes)
    return unit[second[:, 1]] - unit[second[:, 0]]


def main() -> None:
    """Print a line for each layer."""
    args = convolutions.parser_of(__doc__).parse_args()
    graph, x, ball = convolutions.problem(args)
    state = walked(graph, x, ball)
    members = state.family.members
    cases = torch.arange(len(x) * members)
    cases = cases[cases % members > 0]
    relaxations, _ = state.member_relaxations(cases, state.family.split(cases))
    form = margins(graph, x)
    seen: list[list[Any]] = [[], []]
    walked_graph = state.graph
    with torch.no_grad():
        rewrite(walked_graph, graph.output, form, torch.arange(len(x)), state.relaxations, seen[0].append)
        owner = torch.arange(len(cases))
        rewrite(walked_graph, graph.output, form[cases // members], owner, relaxations, seen[1].append)
    met = {graph.output}
    for node in reversed(walked_graph.nodes):
        if node.name in met:
            met.update(node.inputs[1:] if node.op == "larger" else node.inputs)
    way = [node for node in reversed(walked_graph.nodes) if node.op != "input" and node.name in met]
    print(f"{'layer':24} {'entries':>8} {'lines that differ':>18} {'coefficients that differ':>25}")
    for node, own, each in zip(way, *seen, strict=True):
        differ = (each != own[cases // members]).double().mean()
        base, mine = state.relaxations.get(node.name), relaxations.get(node.name)
        lines = "-"
        if isinstance(base, Lines) and isinstance(mine, Lines):
            lines = f"{(mine.upper_slope != base.upper_slope[cases // members]).double().mean():.4f}"
        print(f"{node.name:24} {node.size:8} {lines:>18} {differ:25.4f}")


if __name__ == "__main__":
    main()
