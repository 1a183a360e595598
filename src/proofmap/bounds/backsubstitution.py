"""Linear forms carried backwards through a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.walk import ancestors, pull
from proofmap.inputs.window_forms import Windows
from proofmap.rounding.bound_errors import Rounding
from proofmap.rules import RULES, Form, Linear
from proofmap.rules.rule import AnyForm, Pulled
from proofmap.runtime.memory import bytes_of


def backsubstitute(
    graph: Graph,
    start: str,
    form: AnyForm,
    owner: Tensor,
    relaxations: Mapping[str, Pulled],
    watch: Callable[[Node, Form], object] = lambda node, form: None,
    rounding: Rounding | None = None,
) -> tuple[dict[str, AnyForm], Tensor]:
    """(forms, bias): <A, value of start> <= Σ <forms[n], value of n> + bias, row by row.

    K rows over the value of start; row k belongs to case owner[k] of the relaxations. The forms end at the input
    and at nonlinear nodes without a relaxation; through linear operations alone the two sides are equal. Windows
    stay windows until they have grown to the map, or to where an operation mixes far places. `watch` is shown
    every form on the way, with the node that it is a form of. With `rounding`, the bias holds what roundings cost on
    the way, and over the ball where a form ends at the input.
    """
    paid: dict[str, int] = {}  # nodes whose roundings are in the lines of what reads them, or in their own
    bias = (form.values if isinstance(form, Windows) else form).new_zeros(len(form))

    def step(node: Node, form: Any) -> tuple[Any, ...] | None:
        nonlocal bias
        watch(node, form)
        rule = RULES[node.op]
        offset: Tensor | None
        if isinstance(rule, Linear):
            shapes = tuple(graph[i].shape for i in node.inputs)
            parts, offset = rule.pull(node, shapes, form) if rounding is None else rounding.pull(node, form)
        elif node.name in relaxations:
            relaxation = relaxations[node.name]
            if rounding is not None:
                relaxation, covered = rounding.outward(node, relaxation, form)
                paid.update(covered)
            parts, offset = relaxation.pull(form, owner)
        else:
            return None
        if offset is not None:
            bias = bias + offset
        if rounding is not None:
            bias = bias + rounding.passing(node, form, owner, first=node.name == start, paid=paid.get(node.name, -1))
        return tuple(part.dense() if isinstance(part, Windows) and part.covers else part for part in parts)

    def joined(name: str, form: Any) -> None:
        nonlocal bias
        if rounding is not None:
            bias = bias + rounding.joined(name, form, owner)

    start_form: Any = form
    ends = pull(graph, start, start_form, step, joined)
    if rounding is not None and graph.input.name in ends:
        bias = bias + rounding.arriving(ends[graph.input.name], owner)
    return ends, bias


def bytes_per_row(graph: Graph, start: str, members: int, itemsize: int) -> int:
    """What a row takes on its way back from `start`, by the widest layer that it can meet."""
    return bytes_of("back", max(graph[name].size for name in ancestors(graph.nodes, start)) + members, itemsize)
