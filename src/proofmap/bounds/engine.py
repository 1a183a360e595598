"""Bounds for a whole family of balls: one walk over the graph, shared by all members as far as it can be."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Literal

import torch
from torch import Tensor

from proofmap import progress
from proofmap.bounds import backward, interval
from proofmap.bounds.backward import BackwardPass, bytes_per_row
from proofmap.bounds.forward import ForwardPass
from proofmap.bounds.layers import Layers
from proofmap.bounds.method import Method, Plan
from proofmap.bounds.passes import Pass
from proofmap.bounds.sieve import Sieve, unstable
from proofmap.bounds.state import State, everything
from proofmap.errors import BoundError
from proofmap.family import Family
from proofmap.graph.ir import Graph, Node
from proofmap.graph.pairs import in_pairs
from proofmap.memory import bytes_of, in_pieces, piece_of
from proofmap.precision import full_precision
from proofmap.rules import RULES, Interval, Nonlinear

Sharing = Literal["shared", "one-pass", "separate"]


def solve(
    graph: Graph,
    family: Family,
    specification: Tensor,
    method: Method,
    sharing: Sharing,
    budget: int,
    floor: Tensor | None = None,
) -> Tensor:
    """Certified upper bounds (N, members, R) of the rows of `specification` (N, R, classes) over every member.

    separate: every ball on its own. one-pass: relaxations of the full ball B serve all members. shared: hidden layers
    by forms relaxed on B, concretised for each member, then one last pass for each member; and the smaller of that
    and one-pass, so that no member's bound is above that of B.

    `floor` (N,): rows whose bound is at most this need not be tight (they cannot decide a maximum that is known to
    reach it).
    """
    with full_precision(family.x.device):
        plans = method.plans
        best = torch.tensor(inf, dtype=specification.dtype, device=specification.device)
        for k, plan in enumerate(plans):
            with progress.part(k / len(plans), (k + 1) / len(plans)):
                best = torch.minimum(best, _solve_plan(graph, family, specification, plan, sharing, budget, floor))
        if not bool(torch.isfinite(best).all()):
            raise BoundError(
                f"the bounds left the range of {best.dtype}: take a smaller eps, tighter bounds or x.double()"
            )
        return best if sharing == "separate" else torch.minimum(best, best[:, :1])


def _solve_plan(
    graph: Graph, family: Family, specification: Tensor, plan: Plan, sharing: Sharing, budget: int, floor: Tensor | None
) -> Tensor:
    """In pieces of samples (or of single balls) that fit the budget."""
    if plan.hidden:  # what bounds hidden entries can bound differences
        graph = in_pairs(graph, family.x)
    count, rows, _ = specification.shape
    members = family.members
    if sharing == "separate" or not plan.final:  # interval arithmetic has no forms that could be shared
        value = specification.new_empty(count * members, rows)
        cases = torch.arange(count * members, device=value.device)

        def balls(start: int, stop: int) -> None:
            part = cases[start:stop]
            single = family.split(part)
            value[start:stop] = _walk(graph, single, specification[part // members], plan, False, budget, None)[:, 0]

        in_pieces(count * members, _samples_in(budget, graph, plan, 1, value.element_size()), balls)
        return value.reshape(count, members, rows)

    result = specification.new_empty(count, members, rows)
    shared = sharing == "shared" and members > 1 and BackwardPass in plan.final

    def samples(start: int, stop: int) -> None:
        index = torch.arange(start, stop, device=result.device)
        least = None if floor is None else floor[start:stop]
        result[start:stop] = _walk(graph, family.pick(index), specification[start:stop], plan, shared, budget, least)

    in_pieces(count, _samples_in(budget, graph, plan, members if shared else 1, result.element_size()), samples)
    return result


def _samples_in(budget: int, graph: Graph, plan: Plan, members: int, itemsize: int) -> int:
    """How many samples fit: intervals and relaxations of all nodes, and the members' bounds of the hidden entries."""
    hidden = sum(graph[name].size for name in _hidden(graph)) if members > 1 else 0
    bytes_per_sample = _bytes_of_walk(graph, itemsize) + itemsize * 2 * members * hidden
    if ForwardPass in plan.hidden or ForwardPass in plan.final:
        bytes_per_sample += ForwardPass.bytes_per_sample(graph, itemsize)
    return max(1, budget // (2 * bytes_per_sample))


def _bytes_of_walk(graph: Graph, itemsize: int) -> int:
    """The intervals and relaxations of all nodes, for one ball."""
    return bytes_of("walk", sum(node.size for node in graph.nodes), itemsize)


def _hidden(graph: Graph) -> set[str]:
    """The nodes whose bounds a relaxation needs."""
    return {name for node in graph.nodes[1:] if isinstance(RULES[node.op], Nonlinear) for name in node.inputs}


def _walk(
    graph: Graph, family: Family, specification: Tensor, plan: Plan, shared: bool, budget: int, floor: Tensor | None
) -> Tensor:
    """One walk: (N, members, R), members being 1 for single balls."""
    state = State(graph, family, budget, members=shared, keep=plan.interval_hidden)
    passes = {kind: kind(state) for kind in dict.fromkeys((*plan.hidden, *plan.final))}
    hidden = [passes[kind] for kind in plan.hidden]
    backward_pass = passes.get(BackwardPass)
    sieve = Sieve(state, backward_pass) if isinstance(backward_pass, BackwardPass) else None
    layers = Layers.of(graph, specification.shape[1] * (family.members if shared else 1), bool(hidden))
    for node in graph.nodes:
        with layers.at(node.name):
            _settle(state, node, hidden, sieve, relax=bool(plan.final))
            for one in passes.values():
                one.visit(node)
    with layers.at_the_end():
        full = 1 / family.members if shared else 1.0
        with progress.part(0.0, full):
            best = _final(state, specification, plan, passes, floor)
        with progress.part(full, 1.0):
            return _last_pass(state, specification, plan, best, floor) if shared else best


def _final(
    state: State,
    specification: Tensor,
    plan: Plan,
    passes: Mapping[type[Pass], Pass],
    floor: Tensor | None,
) -> Tensor:
    """Bounds (N, members, R) of the rows of the specification, by what is known of all nodes."""
    wanted = torch.ones_like(specification[:, :, 0], dtype=torch.bool)
    bounds = []
    if plan.interval_final or floor is not None:
        cheap = _interval_final(state, specification)
        if floor is not None:
            wanted = cheap[:, 0] > floor[:, None]
        bounds.append(cheap if plan.interval_final else torch.where(wanted[:, None], inf, cheap))
    bounds += [passes[kind].final(specification, wanted) for kind in plan.final]
    best = bounds[0]
    for bound in bounds[1:]:
        best = torch.minimum(best, bound)
    return best


def _settle(state: State, node: Node, hidden: list[Pass], sieve: Sieve | None, *, relax: bool) -> None:
    """The node's interval and relaxation, after its inputs have been tightened where that can help."""
    if node.op == "input":
        state.intervals[node.name] = Interval(*state.family.box())
        return
    rule = RULES[node.op]
    if isinstance(rule, Nonlinear):
        for one in hidden:
            if sieve is not None and isinstance(one, BackwardPass):
                sieve.narrow(node, rule)
            for name, rows in unstable(state, node, rule):
                state.tighten(name, one.tighten(name, rows))
        if relax:
            state.relaxations[node.name] = rule.relax(node, *(state.intervals[name] for name in node.inputs))
    state.intervals[node.name] = rule.interval(node, *(state.intervals[name] for name in node.inputs))


def _interval_final(state: State, specification: Tensor) -> Tensor:
    """On B, which holds for every member."""
    count, rows, _ = specification.shape
    owner, _ = everything(count, rows, specification.device)
    start = specification.flatten(0, 1).unflatten(1, state.graph[state.graph.output].shape)
    value = interval.bound_forms(state.graph, start, owner, state.intervals)
    return value.reshape(count, 1, rows).expand(-1, state.family.members, -1)


def _last_pass(state: State, specification: Tensor, plan: Plan, best: Tensor, floor: Tensor | None) -> Tensor:
    """`best` (N, members, R) improved: for each member but B, relaxations from its own hidden bounds and one pass back
    from the rows that still matter. For B itself this is the pass already made.

    With a floor, the maximum over rows is what counts: rows that stay below the member's front row keep their bounds.
    """
    graph, family = state.graph, state.family
    members = family.members
    matters = torch.ones_like(best, dtype=torch.bool) if floor is None else best > floor[:, None, None]
    matters[:, 0] = False
    matters = matters.flatten(0, 1)  # (cases, R)
    cases = matters.any(1).nonzero().flatten()
    if not len(cases):
        return best
    flat = best.flatten(0, 1).clone()
    itemsize = best.element_size()
    rows = int(matters.sum(1).max())
    case = _bytes_of_walk(graph, itemsize) + rows * bytes_per_row(graph, graph.output, 1, itemsize)

    def piece(start: int, stop: int) -> None:
        part = cases[start:stop]
        balls = family.split(part)
        relaxations, intervals = state.member_relaxations(part, balls)

        def improve(owner: Tensor, row: Tensor) -> None:
            form = specification[part[owner] // members, row].unflatten(1, graph[graph.output].shape)
            value = backward.bound_forms(graph, graph.output, form, owner, relaxations, balls)[:, 0]
            if plan.interval_final:
                value = torch.minimum(value, interval.bound_forms(graph, form, owner, intervals))
            at = (part[owner], row)
            flat[at] = torch.minimum(flat[at], value)

        mine = matters[part]
        if floor is not None:  # the row in front first: what stays below it cannot decide the maximum
            front = flat[part].masked_fill(~mine, -inf).argmax(1)
            improve(torch.arange(len(part), device=part.device), front)
            mine = mine & (flat[part] > flat[part, front][:, None])
        improve(*mine.nonzero(as_tuple=True))

    in_pieces(len(cases), piece_of(state.budget, best.device) // case, piece)
    return flat.view_as(best)
