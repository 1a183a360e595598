"""CROWN back-substitution (Zhang et al. 2018): carry linear forms of a node's value back to the input.

`backward.py` maximises the resulting forms over the ball.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.walk import ancestors, pull
from proofmap.inputs.window_forms import WindowForms
from proofmap.rounding.exact_arithmetic import ExactArithmetic
from proofmap.rules import RULES, Form, Linear
from proofmap.rules.rule import AnyForm, Pullable
from proofmap.runtime.memory import bytes_needed

_EXACT = ExactArithmetic()


def backsubstitute(
    graph: Graph,
    start: str,
    form: AnyForm,
    owner: Tensor,
    relaxations: Mapping[str, Pullable],
    watch: Callable[[Node, Form], object] = lambda node, form: None,
    rounding: ExactArithmetic = _EXACT,
) -> tuple[dict[str, AnyForm], Tensor]:
    """Bound linear forms A of a node's value by forms of earlier nodes.

    Returns (forms, bias) with  <A, value of start> <= Σ <forms[n], value of n> + bias  for each of the K rows. Row k
    uses the relaxations of case owner[k].

    The forms end at the input and at nonlinear nodes without a relaxation. If only linear operations are passed, both
    sides are equal. Windows stay windows until they cover the map, or until an operation mixes distant positions.

    Args:
        watch: called with each node that is passed and the form of its value.
        rounding: the bias includes these rounding errors: of all operations that are passed, and at the input, over
            the whole ball.
    """
    forms, bias, error = backsubstitute_with_errors(graph, start, form, owner, relaxations, watch, rounding)
    return forms, bias + error


def backsubstitute_with_errors(
    graph: Graph,
    start: str,
    form: AnyForm,
    owner: Tensor,
    relaxations: Mapping[str, Pullable],
    watch: Callable[[Node, Form], object],
    rounding: ExactArithmetic,
    added: Mapping[str, Tensor] | None = None,
) -> tuple[dict[str, AnyForm], Tensor, Tensor]:
    """Substitute forms back as `backsubstitute` does, and return (forms, biases without errors, errors), (K,) each.

    added: dense forms (K, *shape) of the values of some nodes, which are added to the rows. A form of a node that the
    rows do not pass is left out.
    """
    paid: dict[str, int] = {}  # nodes whose rounding errors are already included in a relaxation
    bias = (form.values if isinstance(form, WindowForms) else form).new_zeros(len(form))
    error = torch.zeros_like(bias)

    def step(node: Node, form: Any) -> tuple[Any, ...] | None:
        nonlocal bias, error
        if added is not None and (more := added.get(node.name)) is not None:
            # The lines of the node's reader do not pay for the rounding errors of the added form.
            error = error + rounding.row_error(node, more, owner, first=False, paid_products=-1)
            form = (form.dense() if isinstance(form, WindowForms) else form) + more
            add_joined_errors(node.name, form)
        watch(node, form)
        rule = RULES[node.op]
        offset: Tensor | None
        if isinstance(rule, Linear):
            shapes = tuple(graph[i].shape for i in node.inputs)
            parts, offset = rounding.pull(node, shapes, form)
        elif node.name in relaxations:
            relaxation, included = rounding.move_outward(node, relaxations[node.name], form)
            paid.update(included)
            parts, offset = relaxation.pull(form, owner)
        else:
            return None
        if offset is not None:
            bias = bias + offset
        error = error + rounding.row_error(
            node, form, owner, first=node.name == start, paid_products=paid.get(node.name, -1)
        )
        return tuple(part.dense() if isinstance(part, WindowForms) and part.covers else part for part in parts)

    def add_joined_errors(name: str, form: Any) -> None:
        nonlocal error
        error = error + rounding.sum_error(name, form, owner)

    start_form: Any = form
    final_forms = pull(graph, start, start_form, step, add_joined_errors)
    if graph.input.name in final_forms:
        error = error + rounding.concretisation_error(final_forms[graph.input.name], owner)
    return final_forms, bias, error


def bytes_per_row(graph: Graph, start: str, members: int, itemsize: int) -> int:
    """Return the memory of one row of a form of `start`: the widest node that it can pass decides."""
    return bytes_needed("back", max(graph[name].size for name in ancestors(graph.nodes, start)) + members, itemsize)
