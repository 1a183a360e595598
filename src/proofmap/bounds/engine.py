"""Bounds for a whole family of balls: one walk over the graph, shared by all members as far as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import torch
from torch import Tensor

from proofmap.bounds import interval, node_facts
from proofmap.bounds.backsubstitution import bytes_per_row
from proofmap.bounds.cases import Cases
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Method, Plan
from proofmap.bounds.passes import Bounder, Pass
from proofmap.bounds.state import BoundState
from proofmap.errors import BoundError
from proofmap.graph.ir import Graph
from proofmap.graph.rewrite.bilinear import in_products
from proofmap.graph.rewrite.pairwise_maximum import in_pairs
from proofmap.rounding.coverage import check_covered
from proofmap.runtime import progress
from proofmap.runtime.memory import bytes_of, in_pieces, keep_freed, rows_of
from proofmap.runtime.precision import full_precision, plain_sums

Sharing = Literal["shared", "one-pass", "separate"]


def solve(
    graph: Graph,
    cases: Cases,
    specification: Tensor,
    method: Method,
    sharing: Sharing,
    budget: int,
    floor: Tensor | None = None,
    *,
    rigorous: bool = False,
) -> Tensor:
    """Certified upper bounds (C, members, R) of the rows of `specification` (C, R, classes) over every member.

    separate: every ball on its own. one-pass: relaxations of the full ball B serve all members. shared: hidden layers
    by forms relaxed on B, concretised for each member, then one last pass for each member; and the smaller of that
    and one-pass, so that no member's bound is above that of B.

    `floor` (C,): rows whose bound is at most this need not be tight (they cannot decide a maximum that is known to
    reach it). rigorous: they hold for the network over the reals and as float32 runs it (`rounded`). Where splits or a
    cut leave nothing of a case, its bounds are -inf.

    >>> cases, first = pm.bounds.Cases(ball.at(x)), torch.eye(10)[:1].expand(2, 1, 10)
    >>> graph = pm.trace(model, x)
    >>> pm.bounds.solve(graph, cases, first, pm.bounds.Backward(), "shared", 10**9).shape    # of the logit of class 0
    torch.Size([2, 1, 1])
    """
    keep_freed()
    with full_precision(specification.device), plain_sums() if rigorous else nullcontext(), torch.no_grad():
        if rigorous:
            check_covered(graph)
            assert cases.cut is None, "the roundings of cuts are not known"
        plans = tuple(replace(plan, rigorous=rigorous) for plan in method.plans)
        best = torch.tensor(inf, dtype=specification.dtype, device=specification.device)
        for k, plan in enumerate(plans):
            work = _SolveTask(graph, plan, budget, cases, specification, floor)
            with progress.part(k / len(plans), (k + 1) / len(plans)):
                best = torch.minimum(best, _solve(work, sharing))
        sound = best.isfinite() | best.isneginf() if cases.parted else best.isfinite()
        if not bool(sound.all()):
            values = ", or values that of float32" if rigorous else ""
            raise BoundError(
                f"the bounds left the range of {best.dtype}{values}: take a smaller eps, tighter bounds or x.double()"
            )
        return best if sharing == "separate" else torch.minimum(best, best[:, :1])


@dataclass(frozen=True, eq=False)
class _SolveTask:
    """BoundRows of a specification to bound on some cases, by one plan, in so many bytes."""

    graph: Graph
    plan: Plan
    budget: int
    cases: Cases
    specification: Tensor  # (C, R, classes)
    floor: Tensor | None  # (C,)

    def on(self, cases: Cases, index: Tensor) -> _SolveTask:
        """The same for others: each has the rows of one of these."""
        floor = None if self.floor is None else self.floor[index]
        return replace(self, cases=cases, specification=self.specification[index], floor=floor)


def _solve(work: _SolveTask, sharing: Sharing) -> Tensor:
    """In pieces of cases (or of single balls) that fit the budget."""
    plan, balls = work.plan, work.cases.balls
    if plan.hidden:  # what bounds hidden entries can bound differences
        work = replace(work, graph=in_pairs(work.graph, balls.x))
    if any(one.chooses for one in plan.passes):
        work = replace(work, graph=in_products(work.graph))
    count, rows, _ = work.specification.shape
    members = balls.members
    every = torch.arange(count * members, device=balls.x.device)
    if plan.rigorous and not (plan.hidden or plan.final) and sharing != "separate" and members > 1:
        return _by_arithmetic(work)
    if sharing == "separate" or not plan.final:  # interval arithmetic has no forms that could be shared
        value = work.specification.new_empty(count * members, rows)

        def alone(start: int, stop: int) -> None:
            part = every[start:stop]
            single = replace(work.on(work.cases.split(part), part // members), floor=None)
            value[start:stop] = _walk(single, shared=False)[:, 0]

        in_pieces(count * members, _cases_in(work, 1), alone)
        return value.reshape(count, members, rows)

    result = work.specification.new_empty(count, members, rows)
    shared = sharing == "shared" and members > 1 and any(one.refines for one in plan.final)

    def together(start: int, stop: int) -> None:
        part = every[start:stop]
        result[start:stop] = _walk(work.on(work.cases.pick(part), part), shared)

    in_pieces(count, _cases_in(work, members if shared else 1), together)
    return result


def _by_arithmetic(work: _SolveTask) -> Tensor:
    """Interval arithmetic alone, with all roundings: radii of a ball serve its members."""
    count, rows, _ = work.specification.shape
    members = work.cases.balls.members
    value = work.specification.new_empty(count * members, rows)
    every = torch.arange(count * members, device=value.device)

    def together(start: int, stop: int) -> None:
        some = work.on(work.cases.pick(every[start:stop]), every[start:stop])
        layers = LayerProgress.of(work.graph, rows, back=False)
        balls, _ = bound_nodes(work.graph, some.cases, work.plan, work.budget, layers)

        def alone(first: int, last: int) -> None:
            part = every[first:last]
            single = balls.of_members(part)
            forms = some.specification[part // members]
            wanted = torch.ones_like(forms[:, :, 0], dtype=torch.bool)
            value[start * members + first : start * members + last] = interval.final(single, forms, wanted)

        in_pieces((stop - start) * members, _cases_in(work, 1), alone)

    in_pieces(count, _cases_in(work, 1), together)
    return value.view(count, members, rows)


def _cases_in(work: _SolveTask, members: int) -> int:
    """How many cases fit: intervals and relaxations of all nodes, and the members' bounds of the hidden entries."""
    graph, itemsize = work.graph, work.specification.element_size()
    hidden = sum(graph[name].size for name in node_facts.hidden(graph)) if members > 1 else 0
    each = _bytes_of_walk(work) + itemsize * 2 * members * hidden
    each += sum(one.bytes_per_case(graph, itemsize) for one in work.plan.passes)
    return max(1, work.budget // (2 * each))


def _bytes_of_walk(work: _SolveTask) -> int:
    """The intervals and relaxations of all nodes, for one ball."""
    return bytes_of("walk", sum(node.size for node in work.graph.nodes), work.specification.element_size())


def _walk(work: _SolveTask, shared: bool) -> Tensor:
    """One walk: (C, members, R), members being 1 for single balls."""
    plan, members = work.plan, work.cases.balls.members
    layers = LayerProgress.of(work.graph, work.specification.shape[1] * (members if shared else 1), bool(plan.hidden))
    state, bounders = bound_nodes(work.graph, work.cases, plan, work.budget, layers, shared)
    with layers.at_the_end():
        full = 1 / members if shared else 1.0
        with progress.part(0.0, full):
            final = [bounders[one] for one in plan.final]
            best = _of_output(work, state, final)
        with progress.part(full, 1.0):
            best = _last_pass(work, state, final, best) if shared else best
    return best.masked_fill(state.empty[:, None, None], -inf) if work.cases.parted else best


def bound_nodes(
    graph: Graph, cases: Cases, plan: Plan, budget: int, layers: LayerProgress, for_members: bool = False
) -> tuple[BoundState, dict[Pass, Bounder]]:
    """What a walk to the output learns of all nodes, and the passes that it was made by."""
    state = BoundState(
        graph, cases, budget, for_members=for_members, arithmetic=plan.interval_hidden, rigorous=plan.rigorous
    )
    bounders = {one: one.begin(state) for one in plan.passes}
    for node in graph.nodes:
        with layers.at(node.name):
            if node_facts.is_nonlinear(node):
                for one in plan.hidden:
                    bounders[one].tighten_inputs(node)
                if plan.final:
                    state.relax(node)
            state.interval(node.name)
            for bounder in bounders.values():
                bounder.visit(node)
    return state, bounders


def _of_output(work: _SolveTask, state: BoundState, bounders: Sequence[Bounder]) -> Tensor:
    """Bounds (C, members, R) of the rows of the specification, by what is known of all nodes."""
    wanted = torch.ones_like(work.specification[:, :, 0], dtype=torch.bool)
    bounds = []
    if work.plan.interval_final or work.floor is not None:
        cheap = interval.final(state, work.specification, wanted)
        if work.floor is not None:
            wanted = cheap > work.floor[:, None]
        cheap = cheap if work.plan.interval_final else torch.where(wanted, inf, cheap)
        bounds.append(cheap[:, None].expand(-1, state.balls.members, -1))  # on B, which holds for every member
    bounds += [bounder.final(work.specification, wanted) for bounder in bounders]
    return _smallest(bounds)


def _smallest(bounds: Sequence[Tensor]) -> Tensor:
    best = bounds[0]
    for bound in bounds[1:]:
        best = torch.minimum(best, bound)
    return best


def _last_pass(work: _SolveTask, state: BoundState, final: Sequence[Bounder], best: Tensor) -> Tensor:
    """`best` (C, members, R) improved: for each member but B, relaxations from its own hidden bounds and one pass back
    from the rows that still matter. For B itself this is the pass already made.

    With a floor, the maximum over rows is what counts: rows that stay below the member's front row keep their bounds.
    """
    graph, members, floor = work.graph, work.cases.balls.members, work.floor
    matters = torch.ones_like(best, dtype=torch.bool) if floor is None else best > floor[:, None, None]
    matters[:, 0] = False
    matters = matters.flatten(0, 1)  # (C · members, R)
    index = matters.any(1).nonzero().flatten()
    if not len(index):
        return best
    flat = best.flatten(0, 1).clone()
    rows = int(matters.sum(1).max())
    each = _bytes_of_walk(work) + rows * bytes_per_row(graph, graph.output, 1, best.element_size())

    def piece(start: int, stop: int) -> None:
        part = index[start:stop]
        single = state.of_members(part)
        for node in filter(node_facts.is_nonlinear, graph.nodes):
            single.relax(node)
        bounders = [one for bounder in final if (one := bounder.for_members(single, part)) is not None]
        specification = work.specification[part // members]

        def improve(wanted: Tensor) -> None:
            bounds = [bounder.final(specification, wanted)[:, 0] for bounder in bounders]
            if work.plan.interval_final:
                bounds.append(interval.final(single, specification, wanted))
            flat[part] = _smallest([flat[part], *bounds])

        wanted = matters[part]
        if floor is not None:  # the row in front first: what stays below it cannot decide the maximum
            front = flat[part].masked_fill(~wanted, -inf).argmax(1, keepdim=True)
            improve(torch.zeros_like(wanted).scatter_(1, front, True))
            wanted = wanted & (flat[part] > flat[part].gather(1, front))
        improve(wanted)

    in_pieces(len(index), rows_of(state.budget, best.device) // each, piece)
    return flat.view_as(best)
