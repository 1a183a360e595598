"""The two walks through a graph: `push` carries values forward, `pull` carries linear forms backward.

The walks know nothing about bounds: the argument `step` computes one node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Reversible
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from proofmap.graph.ir import Graph, Node

Value = TypeVar("Value")


def push(graph: Graph, start: Value, step: Callable[..., Value], until: str | None = None) -> Value:
    """Carry `start`, the value of the input, to the output, or to the node `until`.

    `step(node, *values)` returns a node's value from those of its inputs. Nodes are visited in order, each once; a
    value is dropped after its last use.
    """
    end = graph.output if until is None else until
    values: dict[str, Value] = {}
    for node in graph.nodes:
        values[node.name] = step(node, *[values[name] for name in node.inputs]) if node.inputs else start
        if node.name == end:
            break
        for name in graph.drops[node.name]:
            del values[name]
    return values[end]


def peak_elements(graph: Graph, sizes: Mapping[str, int], beside: Mapping[str, int]) -> int:
    """Return the peak number of scalars in a `push`: values of `sizes`, and `beside` during each computation."""
    held = most = 0
    for node in graph.nodes:
        held += sizes[node.name]
        most = max(most, held + beside[node.name])
        held -= sum(sizes[name] for name in graph.drops[node.name])
    return most


def ancestors(nodes: Reversible[Node], *names: str) -> set[str]:
    """Return these names and the names of all nodes that they depend on."""
    needed = set(names)
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return needed


class Summable(Protocol):
    """A value that can arrive at a node along several edges and is added there."""

    def __add__(self: Form, other: Form, /) -> Form: ...


Form = TypeVar("Form", bound=Summable)


def pull(
    graph: Graph,
    start: str,
    form: Form,
    step: Callable[[Node, Form], tuple[Form | None, ...] | None],
    joined: Callable[[str, Form], object] = lambda name, form: None,
) -> dict[str, Form]:
    """Carry `form` from the node `start` towards the input.

    `step(node, form)` returns one form for each of the node's inputs (None: zeros), or None to stop at the node. The
    result has the forms at all nodes where the walk stopped, including the input. Nodes are visited in reverse order,
    each once, after all forms that reach a node have been added; `joined` is called with every such sum.
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
            if part is not None and name in pending:
                pending[name] = pending[name] + part
                joined(name, pending[name])
            elif part is not None:
                pending[name] = part
    return stopped
