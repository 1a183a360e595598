"""Bound propagation: one walk over the graph bounds all nodes, for a ball and the members of its family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
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
from proofmap.errors import BoundError, RoomError, RoundingError
from proofmap.graph.ir import Graph
from proofmap.graph.rewrite.bilinear import with_entrywise_products
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.rounding.rigorous_support import check_error_bounds
from proofmap.rules import Interval
from proofmap.runtime import progress
from proofmap.runtime.memory import bytes_needed, keep_freed, run_in_chunks, run_rows
from proofmap.runtime.precision import full_precision, plain_sums
from proofmap.runtime.time_limit import check_time, time_limit

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
    """Return certified upper bounds (C, members, R) of the rows of `specification` (C, R, classes) on every member.

    sharing: "separate" bounds every member on its own. "one-pass" uses the relaxations of the full ball B for all
    members. "shared" relaxes on B, concretises the forms of hidden layers for each member, and makes one last pass for
    each member. It then takes the smaller of this and one-pass, so that no member's bound is above the bound of B.

    floor (C,): rows whose bound is at most this value need not be tight, since the maximum is known to reach it.
    rigorous: the bounds hold for the network over the reals, and as float32 evaluates it. If splits or a cut leave an
    empty case, its bounds are -inf.

    >>> cases, first = pm.bounds.Cases(ball.at(x)), torch.eye(10)[:1].expand(2, 1, 10)
    >>> graph = pm.trace(model, x)
    >>> pm.bounds.solve(graph, cases, first, pm.bounds.Backward(), "shared", 10**9).shape    # of the logit of class 0
    torch.Size([2, 1, 1])
    """
    return solve_plans(graph, cases, specification, method, sharing, budget, floor, rigorous=rigorous)[0]


def solve_plans(
    graph: Graph,
    cases: Cases,
    specification: Tensor,
    method: Method,
    sharing: Sharing,
    budget: int,
    floor: Tensor | None = None,
    *,
    rigorous: bool = False,
    keep_hidden: bool = False,
    until: float = inf,
) -> tuple[Tensor, dict[str, Interval]]:
    """Bound the rows as `solve` does; with `keep_hidden`, also return intervals (C, *shape) of hidden nodes on B.

    The hidden nodes are the inputs of the nonlinear nodes of `with_pairwise_maxima(graph)`. They come from the plans
    with passes for hidden nodes. If there are several, the intervals are intersected.

    until: a time of `time.monotonic`. The passes for hidden nodes end then, and the nodes left keep the intervals of
    interval arithmetic. The last pass of "shared", which tightens the bounds of members, ends too.
    """
    keep_freed()
    with full_precision(specification.device), plain_sums() if rigorous else nullcontext(), torch.no_grad():
        if rigorous:
            check_error_bounds(graph)
            assert cases.cut is None, "the rounding errors of cuts are not known"
        plans = tuple(replace(plan, rigorous=rigorous) for plan in method.plans)
        best = torch.tensor(inf, dtype=specification.dtype, device=specification.device)
        hidden: dict[str, Interval] = {}
        for k, plan in enumerate(plans):
            keep = keep_hidden and bool(plan.hidden)
            task = _SolveTask(graph, plan, budget, cases, specification, floor, keep, until)
            with progress.part(k / len(plans), (k + 1) / len(plans)), _advice_on_rounding(rigorous):
                value, found = _solve(task, sharing)
            best = torch.minimum(best, value)
            hidden |= {name: (hidden.get(name, one) & one).uncrossed() for name, one in found.items()}
        sound = best.isfinite() | best.isneginf() if cases.parted else best.isfinite()
        if not bool(sound.all()):
            values = ", or values that of float32" if rigorous else ""
            raise BoundError(
                f"the bounds left the range of {best.dtype}{values}: take a smaller eps, tighter bounds or x.double()"
            )
        return best if sharing == "separate" else torch.minimum(best, best[:, :1]), hidden


@contextmanager
def _advice_on_rounding(rigorous: bool) -> Iterator[None]:
    """Name the fast mode in errors of rigorous bounds: rounding can widen an interval beyond a function's domain."""
    try:
        yield
    except BoundError as error:
        if not rigorous or isinstance(error, RoomError):
            raise
        raise RoundingError(str(error)) from error


@dataclass(frozen=True, eq=False)
class _SolveTask:
    """Rows of a specification to bound on some cases, by one plan, within a memory budget."""

    graph: Graph
    plan: Plan
    budget: int
    cases: Cases
    specification: Tensor  # (C, R, classes)
    floor: Tensor | None  # (C,)
    keep_hidden: bool  # whether the intervals of hidden nodes are returned
    until: float  # the end of the passes for hidden nodes and of the last pass, on the clock of `time.monotonic`

    def on(self, cases: Cases, index: Tensor) -> _SolveTask:
        """Return the task for other cases. Case k takes the specification and floor of this task's case index[k]."""
        floor = None if self.floor is None else self.floor[index]
        return replace(self, cases=cases, specification=self.specification[index], floor=floor)


def _solve(task: _SolveTask, sharing: Sharing) -> tuple[Tensor, dict[str, Interval]]:
    """Bound the specification in pieces of cases, or of single members, that fit the budget.

    Returns the bounds (C, members, R), and the intervals of hidden nodes on the full balls if the task keeps them.
    """
    plan, balls = task.plan, task.cases.balls
    if plan.hidden:  # passes that bound hidden nodes can bound the differences of pairs too
        task = replace(task, graph=with_pairwise_maxima(task.graph, balls.x))
    if any(one.optimises for one in plan.passes):
        task = replace(task, graph=with_entrywise_products(task.graph))
    count, rows, _ = task.specification.shape
    members = balls.members
    every = torch.arange(count * members, device=balls.x.device)
    if plan.rigorous and not (plan.hidden or plan.final) and sharing != "separate" and members > 1:
        return _by_arithmetic(task), {}
    hidden: list[dict[str, Interval]] = []
    if sharing == "separate" or not plan.final:  # interval arithmetic has no forms to share
        value = task.specification.new_empty(count * members, rows)

        def alone(start: int, stop: int) -> None:
            part = every[start:stop]
            single = replace(task.on(task.cases.split(part), part // members), floor=None)
            bounds, state = _walk(single, shared=False)
            value[start:stop] = bounds[:, 0]
            hidden.append(_hidden_intervals(task, state, part % members == 0))

        run_in_chunks(count * members, _cases_in(task, 1), alone)
        return value.reshape(count, members, rows), _concatenate(hidden)

    result = task.specification.new_empty(count, members, rows)
    shared = sharing == "shared" and members > 1 and any(one.refines for one in plan.final)

    def together(start: int, stop: int) -> None:
        part = every[start:stop]
        result[start:stop], state = _walk(task.on(task.cases.pick(part), part), shared)
        hidden.append(_hidden_intervals(task, state, torch.ones_like(part, dtype=torch.bool)))

    run_in_chunks(count, _cases_in(task, members if shared else 1), together)
    return result, _concatenate(hidden)


def _hidden_intervals(task: _SolveTask, state: BoundState, wanted: Tensor) -> dict[str, Interval]:
    """Return the intervals of the inputs of nonlinear nodes for the wanted cases, if the task keeps them."""
    names = node_facts.hidden(task.graph) if task.keep_hidden else ()
    return {name: state.interval(name).pick(wanted) for name in names}


def _concatenate(parts: Sequence[dict[str, Interval]]) -> dict[str, Interval]:
    return {
        name: Interval(torch.cat([part[name].lower for part in parts]), torch.cat([part[name].upper for part in parts]))
        for name in (parts[0] if parts else ())
    }


def _by_arithmetic(task: _SolveTask) -> Tensor:
    """Bound by rigorous interval arithmetic alone. The rounding radii of a ball are also used for its members."""
    count, rows, _ = task.specification.shape
    members = task.cases.balls.members
    value = task.specification.new_empty(count * members, rows)
    every = torch.arange(count * members, device=value.device)

    def together(start: int, stop: int) -> None:
        some = task.on(task.cases.pick(every[start:stop]), every[start:stop])
        layers = LayerProgress.of(task.graph, rows, back=False)
        balls, _ = bound_nodes(task.graph, some.cases, task.plan, task.budget, layers)

        def alone(first: int, last: int) -> None:
            part = every[first:last]
            single = balls.of_members(part)
            forms = some.specification[part // members]
            wanted = torch.ones_like(forms[:, :, 0], dtype=torch.bool)
            value[start * members + first : start * members + last] = interval.final(single, forms, wanted)

        run_in_chunks((stop - start) * members, _cases_in(task, 1), alone)

    run_in_chunks(count, _cases_in(task, 1), together)
    return value.view(count, members, rows)


def _cases_in(task: _SolveTask, members: int) -> int:
    """Return how many cases fit the budget.

    Each needs the intervals and relaxations of all nodes, and its members' bounds of the hidden nodes.
    """
    graph, itemsize = task.graph, task.specification.element_size()
    hidden = sum(graph[name].size for name in node_facts.hidden(graph)) if members > 1 else 0
    each = _bytes_of_walk(task) + itemsize * 2 * members * hidden
    each += sum(one.bytes_per_case(graph, itemsize) for one in task.plan.passes)
    return max(1, task.budget // (2 * each))


def _bytes_of_walk(task: _SolveTask) -> int:
    """Return the memory of the intervals and relaxations of all nodes, for one ball."""
    return bytes_needed("walk", sum(node.size for node in task.graph.nodes), task.specification.element_size())


def _walk(task: _SolveTask, shared: bool) -> tuple[Tensor, BoundState]:
    """Make one walk over the graph. For single balls, members is 1.

    Returns bounds (C, members, R) and the state of all nodes.
    """
    plan, members = task.plan, task.cases.balls.members
    layers = LayerProgress.of(task.graph, task.specification.shape[1] * (members if shared else 1), bool(plan.hidden))
    state, bounders = bound_nodes(task.graph, task.cases, plan, task.budget, layers, shared, task.until)
    with layers.at_output():
        full = 1 / members if shared else 1.0
        with progress.part(0.0, full):
            final = [bounders[one] for one in plan.final]
            best = _bound_output(task, state, final)
        with progress.part(full, 1.0):
            best = _last_pass(task, state, final, best) if shared else best
    return best.masked_fill(state.empty[:, None, None], -inf) if task.cases.parted else best, state


def bound_nodes(
    graph: Graph,
    cases: Cases,
    plan: Plan,
    budget: int,
    layers: LayerProgress,
    for_members: bool = False,
    until: float = inf,
) -> tuple[BoundState, dict[Pass, Bounder]]:
    """Bound all nodes from the input to the output. Returns the state and the bounder of each pass.

    until: a time of `time.monotonic`. Hidden nodes that are not tightened by then keep their intervals. TimeoutError
    ends the walk between two nodes if a `time_limit` of the caller is over.
    """
    state = BoundState(
        graph, cases, budget, for_members=for_members, arithmetic=plan.interval_hidden, rigorous=plan.rigorous
    )
    bounders = {one: one.begin(state) for one in plan.passes}
    for node in graph.nodes:
        check_time()
        with layers.at(node.name):
            if node_facts.is_nonlinear(node):
                with suppress(TimeoutError), time_limit(until):
                    for one in plan.hidden:
                        bounders[one].tighten_inputs(node)
                if plan.final:
                    state.relax(node)
            state.interval(node.name)
            for bounder in bounders.values():
                bounder.visit(node)
    return state, bounders


def _bound_output(task: _SolveTask, state: BoundState, bounders: Sequence[Bounder]) -> Tensor:
    """Return bounds (C, members, R) of the rows of the specification, from the state of all nodes."""
    wanted = torch.ones_like(task.specification[:, :, 0], dtype=torch.bool)
    bounds = []
    if task.plan.interval_final or task.floor is not None:
        cheap = interval.final(state, task.specification, wanted)
        if task.floor is not None:
            wanted = cheap > task.floor[:, None]
        cheap = cheap if task.plan.interval_final else torch.where(wanted, inf, cheap)
        bounds.append(cheap[:, None].expand(-1, state.balls.members, -1))  # a bound on B holds for every member
    bounds += [bounder.final(task.specification, wanted) for bounder in bounders]
    return _smallest(bounds)


def _smallest(bounds: Sequence[Tensor]) -> Tensor:
    best = bounds[0]
    for bound in bounds[1:]:
        best = torch.minimum(best, bound)
    return best


def _last_pass(task: _SolveTask, state: BoundState, final: Sequence[Bounder], best: Tensor) -> Tensor:
    """Improve `best` (C, members, R) by relaxations of each member's own and one more pass for the rows that matter.

    For B itself this is the pass already made. With a floor, only the maximum over the rows matters. Then rows whose
    bound is at most the member's new bound of its highest row keep their old bounds. When the time of the task is over,
    the members left keep theirs.
    """
    graph, members, floor = task.graph, task.cases.balls.members, task.floor
    matters = torch.ones_like(best, dtype=torch.bool) if floor is None else best > floor[:, None, None]
    matters[:, 0] = False
    matters = matters.flatten(0, 1)  # (C · members, R)
    index = matters.any(1).nonzero().flatten()
    if not len(index):
        return best
    flat = best.flatten(0, 1).clone()
    rows = int(matters.sum(1).max())
    each = _bytes_of_walk(task) + rows * bytes_per_row(graph, graph.output, 1, best.element_size())

    def piece(start: int, stop: int) -> None:
        part = index[start:stop]
        single = state.of_members(part)
        for node in filter(node_facts.is_nonlinear, graph.nodes):
            single.relax(node)
        bounders = [one for bounder in final if (one := bounder.for_members(single, part)) is not None]
        specification = task.specification[part // members]

        def improve(wanted: Tensor) -> None:
            bounds = [bounder.final(specification, wanted)[:, 0] for bounder in bounders]
            if task.plan.interval_final:
                bounds.append(interval.final(single, specification, wanted))
            flat[part] = _smallest([flat[part], *bounds])

        wanted = matters[part]
        if floor is not None:  # the highest row first: rows that stay below it cannot decide the maximum
            highest = flat[part].masked_fill(~wanted, -inf).argmax(1, keepdim=True)
            improve(torch.zeros_like(wanted).scatter_(1, highest, True))
            wanted = wanted & (flat[part] > flat[part].gather(1, highest))
        improve(wanted)

    with suppress(TimeoutError), time_limit(task.until):
        run_rows(len(index), each, state.budget, best.device, piece)
    return flat.view_as(best)
