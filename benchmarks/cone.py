"""The share of linear forms that differ between a ball and its members, layer by layer.

python benchmarks/cone.py [--onnx FILE] [--mean R G B] [--std R G B] [--eps 0.002] [--images 1] [--data FOLDER]

With `sharing="shared"`, each member B_u has its own relaxations. They differ from those of B only at entries that u can
reach, the cone of u. Forms of B's pass could be reused where they are equal. This prints, for the input of each layer,
the share of forms that differ from B's, and the share of their coefficients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import Tensor

import proofmap as pm
from proofmap.bounds import engine
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.node_facts import is_nonlinear
from proofmap.bounds.state import BoundState
from proofmap.rules.scalar_lines import Lines

if TYPE_CHECKING:
    from benchmarks import convolutions
else:
    import convolutions  # a script imports from its own folder


def walked(graph: pm.Graph, x: Tensor, ball: pm.Ball) -> BoundState:
    """Return the bounds of B and of its members before the last pass."""
    walks: list[BoundState] = []

    def keep(work: Any, state: BoundState, final: Any, best: Tensor) -> Tensor:
        walks.append(state)
        return best

    with mock.patch.object(engine, "_last_pass", keep):
        pm.overlap(graph, x, ball, groups=pm.groups.grid(12), rigorous=False)
    (state,) = walks
    return state


def margins(graph: pm.Graph, x: Tensor) -> Tensor:
    """Return the form f_c' - f_c of each sample, where c' is the second largest class."""
    second = graph(x).topk(2).indices
    unit = torch.eye(graph.classes)
    return unit[second[:, 1]] - unit[second[:, 0]]


def main() -> None:
    """Print a line for each layer."""
    args = convolutions.parser_of(__doc__).parse_args()
    graph, x, ball = convolutions.problem(args)
    known = walked(graph, x, ball)
    members = known.balls.members
    index = torch.arange(len(x) * members)
    index = index[index % members > 0]
    sample = index // members
    with torch.no_grad():
        single = known.of_members(index)
        for node in filter(is_nonlinear, known.graph.nodes):
            single.relax(node)
        form = margins(graph, x)
        full, each = forms(known, form, torch.arange(len(x))), forms(single, form[sample], torch.arange(len(index)))
    print(f"{'layer':24} {'entries':>8} {'lines that differ':>18} {'coefficients that differ':>25}")
    for name, coefficients in each.items():
        differ = (coefficients != full[name][sample]).double().mean()
        base, closer = known.relaxations.get(name), single.relaxations.get(name)
        lines = "-"
        if isinstance(base, Lines) and isinstance(closer, Lines):
            lines = f"{(closer.upper_slope != base.upper_slope[sample]).double().mean():.4f}"
        print(f"{name:24} {known.graph[name].size:8} {lines:>18} {differ:25.4f}")


def forms(known: BoundState, start: Tensor, owner: Tensor) -> dict[str, Any]:
    """Return the forms at every node of the walk back from the output, by the node's name."""
    met: dict[str, Any] = {}
    backsubstitute(
        known.graph, known.graph.output, start, owner, known.relaxations, lambda node, f: met.update({node.name: f})
    )
    return met


if __name__ == "__main__":
    main()
