"""The way back through a graph: what a form over one node means over the nodes it is computed from.

The walk knows nodes and addition, nothing of bounds: `step` says what one node does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from proofmap.graph.ir import Graph, Node


class Summable(Protocol):
    """What can arrive at a node along several edges."""

    def __add__(self: Form, other: Form, /) -> Form: ...


Form = TypeVar("Form", bound=Summable)


def pull(
    graph: Graph, start: str, form: Form, step: Callable[[Node, Form], tuple[Form | None, ...] | None]
) -> dict[str, Form]:
    """Carry `form` from the node `start` towards the input.

    `step(node, form)` gives one form for each of the node's inputs (None: zeros), or None to stop there. What was
    stopped is returned by name: the input and whatever else `step` did not go through. Nodes are met in reverse order,
    each once, after all forms that reach it have been added.
    """
    pending: dict[str, Form] = {start: form}
    stopped: dict[str, Form] = {}
    for node in reversed(graph.nodes):
        if node.name not in pending:
            continue
        arrived = pending.pop(node.name)
        parts = step(node, arrived) if node.inputs else None
        if parts is None:
            stopped[node.name] = arrived
            continue
        for name, part in zip(node.inputs, parts, strict=True):
            if part is not None:
                pending[name] = pending[name] + part if name in pending else part
    return stopped
