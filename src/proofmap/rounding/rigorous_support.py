"""Operations with a-priori error bounds: on which networks rigorous bounds are available."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from proofmap.errors import BoundError, RoundingError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import OPERATIONS, ROUNDED
from proofmap.rounding.magnitudes import CHANGED, MAGNITUDES
from proofmap.rules import RULES, Linear
from proofmap.rules.discontinuous import DiscontinuousFunction
from proofmap.rules.scalar_lines import Scalar
from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.runtime.user_warning import warn_user

if TYPE_CHECKING:
    from proofmap.bounds.method import Method

T = TypeVar("T")

# Operations on two or more variable values. Rounding errors of their inputs grow quickly in interval arithmetic.
MIXING = frozenset({"product", "contract", "softmax"})


def has_error_bounds(graph: Graph) -> bool:
    """Return whether the rounding errors of all operations of the graph are known."""
    return all(map(_has_error_bound, graph.nodes))


def decide_rigorous(graph: Graph, asked: bool | None, method: Method | None = None) -> bool:
    """Decide whether bounds by this method count all rounding errors: as asked, or by default (None) where they are
    known.

    The default is False for a search on a network with curves, products of two values or softmax, since a rigorous
    search of these is slower. Every public call decides this here, once, and its result reports the decision.
    """
    if asked is not None:
        return asked
    searched = method is not None and method.search is not None
    return has_error_bounds(graph) and not (searched and any(map(_curved, graph.nodes)))


def or_fast(asked: bool | None, work: Callable[[bool | None], T]) -> T:
    """Return work(asked). By default (None), work(False) where rounding errors leave no bound, with a warning.

    The results of the fast mode say that rounding is not covered.
    """
    try:
        return work(asked)
    except RoundingError as error:
        if asked is not None:
            raise
        found, why = work(False), error.reason
    warn_user(f"{NOT_COVERED}: with rounding errors there is no bound ({why}); rigorous=False avoids the attempt")
    return found


def _curved(node: Node) -> bool:
    rule = RULES.get(node.op)
    return node.op in MIXING or (isinstance(rule, Scalar) and rule.kink_sum(node) is None)


def _has_error_bound(node: Node) -> bool:
    if node.op == "change":
        return ROUNDED in node.attributes and node.attributes["of"].op in CHANGED
    return not node.inputs or isinstance(RULES.get(node.op), Linear) or (node.op in MAGNITUDES and not _jumps(node))


def _jumps(node: Node) -> bool:
    rule = RULES.get(node.op)
    return isinstance(rule, DiscontinuousFunction) and OPERATIONS[node.op].steep(node) and rule.jumps(node)


def check_error_bounds(graph: Graph) -> None:
    """Raise BoundError if the rounding errors of some operation are not known."""
    for node in graph.nodes:
        if not _has_error_bound(node):
            why = (
                "it jumps, and there a rounding moves a value by any amount"
                if _jumps(node)
                else "what it rounds is not known"
            )
            raise BoundError(f"no rigorous bounds for {node.op} (node {node.name!r}): {why}; leave rigorous out")
