"""Branch and bound on unstable units for one sample: one tree serves the ball B and all its members.

The bound of a part is one affine function of δ. It bounds a row of the specification on the part of B, and so on the
part of every member. A part is closed when its bounds on all members are within the gap of the lower bounds. Intervals
and final bounds are computed in float64. Slopes and multipliers are optimised in float32, because any value is valid.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.runtime.memory import is_out_of_memory
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import BestChoice, ParameterChoice
from proofmap.search.branching import FAST_RATES, SLOW_RATES, Brancher, unpack_leaves
from proofmap.search.frontier import Offer, OpenLeaves, Report, SearchResult, StoppingRule
from proofmap.search.lp import solve_case_lps, solve_leaf_lps
from proofmap.search.parallel import map_shares
from proofmap.search.part_lps import is_small, solve_part_lps
from proofmap.search.tightening import tighten_units
from proofmap.search.unit_intervals import PartHalfSpace, repair_crossings, root_intervals, tighten_intervals
from proofmap.search.unstable_units import Units, repeat_interval, round_outward, to_float64

_ROOT_STEPS, _PART_STEPS = 100, 8  # Adam's steps at the root, and at a part
_LINEAR_PART_STEPS = 40  # Adam's steps at a part without open units
_INTERVAL_STEPS = 20  # Adam's steps for the intervals at the root
_ROOT_ROUNDS = 2  # rounds of tightening the root's intervals where a row can exceed the thresholds
Halves = tuple[Interval, BestChoice, Tensor, Tensor, Tensor]  # intervals, parameters, rows, depths, known bounds
Stage = tuple[float, int]  # a share of the time, then the parts of each tree that tightens intervals
# More parts tighten more, and take longer: few of them first, on each kind of device.
STAGES: dict[str, tuple[Stage, ...]] = {"cpu": ((0.03, 64), (0.1, 512)), "cuda": ((0.04, 64), (0.25, 512))}
_TIGHTENING_TIME_SHARE = 0.4  # share of the remaining time for that, at most
_RESTART_LOOSENESS_SHARE = 0.9  # restart only if tightening leaves at most this share of the units' looseness
_ROOT_TIME_SHARE = 0.2  # share of the time for the root's intervals, and as much for implied intervals
_LOOKAHEAD_CANDIDATES = {"cpu": 8, "cuda": 16}  # candidate splits that are bounded before one is chosen
_SPLITS_PER_TIGHTENING = 6  # depth between two renewals of a part's intervals
_TIGHTENED_CANDIDATES = {"cpu": 16, "cuda": 32}  # candidates whose intervals are renewed then
_LPS_PER_BATCH = 8  # open parts of a batch whose programs are solved, on small dense networks
_LP_START_SHARE = 0.15  # share of the time before programs are solved: splits alone decide most small networks
_LP_TRIALS = 256  # programs go on while one in so many closes a part
_LPS_PER_STEP = 16  # parts without open units that are solved by LP in one step
_OFFERED_POINTS, _BATCHES_PER_OFFER = 16, 16  # points tried as adversaries at a time, and batches between two tries
_REPORT_SECONDS = 0.5  # seconds between two progress reports
_BATCH_COEFFICIENTS = {"cpu": 2**25, "cuda": 2**34}  # multiplications per batch
_BATCH_PARTS = {"cpu": 256, "cuda": 4096}  # parts per batch, at most
_LOOKAHEAD_BYTES_PER_UNIT = 64  # memory per unit and tried split
_DEPTH_URGENCY = 1e9  # urgency of each split, where the deepest parts come first
_FULL_BALL_URGENCY = 1e6  # added to the urgency of parts that keep B open, which come before its members


@dataclass(frozen=True)
class LPRecord:
    """The programs of parts so far: whether they close parts."""

    closed: int = 0
    solved: int = 0

    def learn(self, closed: int, solved: int) -> LPRecord | None:
        """Return the record with more programs, or None if too few of them close a part."""
        record = LPRecord(self.closed + closed, self.solved + solved)
        return None if record.solved > _LP_TRIALS * (1 + record.closed) else record


def branch_and_bound(
    units: Units,
    balls: SampleBalls,
    reached: Tensor,
    rule: StoppingRule,
    offer: Offer,
    report: Report,
    stages: Sequence[Stage] | None = None,
    shares: Tensor | None = None,
    lps: bool = False,
) -> SearchResult:
    """Compute upper bounds (1 + G,) of all members that are close to the lower bounds `reached`.

    After each stage that runs out of time, the intervals of the units are tightened (`tightening`), and a new tree
    starts with them. If tightening gains little, the present tree continues.

    Args:
        shares: The first shares λ (C, R) of the rows of each unsafe case, if `units` have cases.
        lps: On small dense networks, HiGHS solves the programs of open parts (`part_lps`).
    """
    tree = SearchTree(units, balls, reached, rule, offer, root_shares=shares, lps=lps)
    parts, stopped, begin = 0, "", time.monotonic()
    try:
        for share, tree_parts in STAGES[reached.device.type] if stages is None else stages:
            if not tree.units.deep:
                break
            stopped = _run_tree(tree, begin + share * (rule.deadline - begin), report)
            closer = tree.with_tighter_units(tree_parts) if stopped == "time" else None
            if closer is None:
                break
            parts += tree.parts
            tree = closer
        stopped = _run_tree(tree, rule.deadline, report)
    except KeyboardInterrupt:
        stopped = "interrupted"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        stopped = "memory"
    return SearchResult(tree.upper, parts + tree.parts, stopped)


def _run_tree(tree: SearchTree, until: float, report: Report) -> str:
    """Split leaves until a stop, but at least as long as the root took; return the reason of the stop."""
    begin = time.monotonic()
    if not tree.has_root:
        tree.bound_root()
    heard = time.monotonic()
    stopped, until = "", min(tree.rule.deadline, max(until, 2 * heard - begin))
    while len(tree.leaves) and not (stopped := tree.stop_reason(until)):
        tree.split_leaves()
        if time.monotonic() > heard + _REPORT_SECONDS:
            report(float(tree.reached[0]), float(tree.upper[0]), tree.parts)
            heard = time.monotonic()
    return stopped


class SearchTree:
    """One tree. `upper` is valid at any moment: popped parts count until their halves are stored."""

    def __init__(
        self,
        units: Units,
        balls: SampleBalls,
        reached: Tensor,
        rule: StoppingRule,
        offer: Offer,
        known: Tensor | None = None,
        root_shares: Tensor | None = None,
        *,
        lps: bool = False,
    ) -> None:
        self.root_shares = root_shares  # (C, R) of the cases of `units`
        self.lps: LPRecord | None = None  # not None while programs of parts are solved
        now = time.monotonic()
        self.lps_from: float = now + _LP_START_SHARE * (rule.deadline - now) if lps and is_small(units, balls) else inf
        self.units: Units = units
        self.balls = balls
        self.brancher: Brancher = Brancher(units, balls)
        self.rule = rule
        self.offer = offer
        self.reached: Tensor = reached
        self.parts: int = 0
        self.batches: int = 0
        self.has_root: bool = False
        # upper bounds before the first split
        self.root_upper: Tensor = torch.full_like(reached, inf) if known is None else known
        self.excluded_upper: float = -inf  # inputs at which all rows are at most this may have been excluded
        self.closed_upper: Tensor = torch.full_like(reached, -inf)  # the largest bounds of closed parts
        self.split_upper: Tensor | None = self.root_upper  # the largest bounds of the parts being split
        self.leaves: OpenLeaves = OpenLeaves({"value": reached.new_empty(0, len(reached))}, reached[:0])
        kind = reached.device.type
        count, variables = units.inputs.weight.shape
        room = rule.memory // (
            2 * _LOOKAHEAD_CANDIDATES[kind] * (_LOOKAHEAD_BYTES_PER_UNIT * count + 8 * variables + 1)
        )
        self.batch: int = max(
            8, min(_BATCH_PARTS[kind], room, _BATCH_COEFFICIENTS[kind] // max(1, count * (variables + count)))
        )
        self.at_once: int = max(1, (2**24 if kind == "cpu" else 2**31) // (8 * (variables + 8 * count + 1)))

    def with_tighter_units(self, parts: int) -> SearchTree | None:
        """Return a new tree with intervals tightened by trees of `parts` parts; None if the gain is small."""
        now = time.monotonic()
        until = now + _TIGHTENING_TIME_SHARE * (self.rule.deadline - now)
        interval = tighten_units(self.units, self.balls, self.rule, parts=parts, at_once=self.at_once, until=until)
        closer = replace(self.units, interval=interval)
        if closer.looseness > _RESTART_LOOSENESS_SHARE * self.units.looseness:
            return None
        return SearchTree(
            self.units.eliminate_stable(interval),
            self.balls,
            self.reached,
            self.rule,
            self.offer,
            self.upper,
            self.root_shares,
            lps=self.lps is not None or self.lps_from < inf,
        )

    @property
    def upper(self) -> Tensor:
        """The upper bounds (1 + G,) at this moment."""
        bounds = [self.closed_upper, *self.leaves.column("value").split(2**16)]
        top = torch.stack([part if part.ndim == 1 else part.amax(0) for part in bounds if len(part)]).amax(0)
        if self.split_upper is not None:
            top = torch.maximum(top, self.split_upper)
        return torch.minimum(top.clamp(min=self.excluded_upper), self.root_upper)

    def stop_reason(self, until: float) -> str:
        """Return the reason to stop now, or "" to go on."""
        return self.rule.stop_reason(self.reached, self.leaves.bytes, until)

    @property
    def _thresholds(self) -> Tensor:
        """The values (1 + G,) below which upper bounds need no improvement."""
        return self.rule.thresholds(self.reached)

    def _urgency(self, value: Tensor) -> Tensor:
        """Return the urgency of bounds (B, 1 + G): the excess on B first, if positive, else the largest excess."""
        excess = value - self._thresholds
        return torch.where(excess[:, 0] > 0, excess[:, 0] + _FULL_BALL_URGENCY, excess.amax(1))

    def bound_root(self) -> None:
        """Bound every row on the whole ball, and store the rows that exceed a threshold as leaves."""
        units, count = self.units, self.units.searched
        number = torch.arange(count, device=self.reached.device)
        x = repeat_interval(units.interval, count)
        above = self._member_bounds(number, x, self._start(x)).minimum(self.root_upper)
        self.root_upper = self.split_upper = above.amax(0)
        left = self.rule.deadline - time.monotonic()
        until = (time.monotonic() + _ROOT_TIME_SHARE * left, time.monotonic() + 2 * _ROOT_TIME_SHARE * left)
        root = root_intervals(units, self.balls, steps=_INTERVAL_STEPS, at_once=self.at_once, until=until[0])
        self.units = replace(units, interval=root)
        self.brancher = Brancher(self.units, self.balls)
        x = repeat_interval(root, count)
        first, end = self._start(round_outward(x)), self.rule.deadline
        best = self.brancher.optimise(number, x, first, _ROOT_STEPS, None, FAST_RATES, end)
        self.brancher.compute_implied(best.losses.amax(0), at_once=self.at_once, until=until[1])
        for _ in range(_ROOT_ROUNDS):
            if time.monotonic() < until[1]:
                x, gone = self._tightened(x, number, best.choice, None, until[1])
                number, x, above, best = number[~gone], x.pick(~gone), above[~gone], best.pick(~gone)
                best = self.brancher.optimise(number, x, best.choice, _ROOT_STEPS, None, FAST_RATES, end)
        self._add_parts(x, best, number, torch.zeros_like(number), above)
        self.split_upper, self.has_root = None, True

    def _start(self, x: Interval) -> ParameterChoice:
        """Return the first parameters of all rows; cases start with shares between their best row and equal ones."""
        choice, shares = ParameterChoice.start(x), self.root_shares
        return choice if shares is None else replace(choice, shares=shares.to(choice.slopes))

    def _tightened(
        self, x: Interval, row: Tensor, choice: ParameterChoice, wanted: Tensor | None, until: float
    ) -> tuple[Interval, Tensor]:
        """Tighten intervals of parts where a row exceeds all thresholds: (intervals, parts without such inputs)."""
        self.excluded_upper = float(self._thresholds.min())
        rows = self.units.combined(row, None if choice.shares is None else choice.shares.double())
        half = PartHalfSpace.of(
            self.units, replace(rows, bias=rows.bias - self.excluded_upper), x, choice.to(torch.float64)
        )
        return tighten_intervals(self.units, self.balls, x, at_once=self.at_once, wanted=wanted, half=half, until=until)

    def split_leaves(self) -> None:
        """Split the most urgent parts; parts without open units are solved by LP instead."""
        if time.monotonic() > self.lps_from:
            self.lps, self.lps_from = LPRecord(), inf
        count = self.batch if self.lps is None else _LPS_PER_BATCH // 2
        urgent = self.leaves.most_urgent(count)
        self.split_upper = urgent["value"].amax(0)
        self.leaves.drop(count)
        whole = urgent["candidates"][:, 0] < 0
        if bool(whole.any()):
            self._refine_linear_parts({name: column[whole] for name, column in urgent.items()})
        if not bool(whole.all()):
            self._split({name: column[~whole] for name, column in urgent.items()})
        self.split_upper = None

    def _refine_linear_parts(self, part: Mapping[str, Tensor]) -> None:
        """Solve some parts without open units by LP; the others become leaves again."""
        later = {name: column[_LPS_PER_STEP:] for name, column in part.items()}
        part = {name: column[:_LPS_PER_STEP] for name, column in part.items()}
        if len(later["row"]):
            self.leaves.add(later, self._urgency(later["value"]))
        (x, choice), member = unpack_leaves(part), self._target_member(part)
        rows = self.units.combined(part["row"], choice.shares)
        multipliers, delta, works = solve_leaf_lps(
            self.units, self.balls, rows, to_float64(x), member, self.rule.deadline
        )
        choice = replace(choice, multipliers=torch.where(works[:, None], multipliers.float(), choice.multipliers))
        if choice.shares is not None:
            choice, delta = solve_case_lps(
                self.units, self.balls, part["row"], to_float64(x), choice, delta, self.rule.deadline
            )
        self._offer(delta[works], member[works])
        best = self.brancher.optimise(part["row"], x, choice, _LINEAR_PART_STEPS, member, SLOW_RATES)
        self._add_parts(to_float64(x), best, part["row"], part["depth"], part["value"])

    def _split(self, part: Mapping[str, Tensor]) -> None:
        """Split every part at a unit, and store the halves."""
        for gone, halves in map_shares(self._halves_of, part):
            self.parts += gone
            if halves is not None:
                self._add_parts(*halves)

    def _halves_of(self, part: Mapping[str, Tensor]) -> tuple[int, Halves | None]:
        """Return the number of empty halves, and the other halves. Changes no state, because threads share the work."""
        x, choice = unpack_leaves(part)
        lower, upper, both = self.brancher.halves(x, self._choose_units(part, x, choice))
        depth = part["depth"][both] + 1
        closer, empty = repair_crossings(lower, upper)
        again = (depth % _SPLITS_PER_TIGHTENING == 0).nonzero().flatten()
        if len(again):
            wanted = torch.zeros_like(lower[again], dtype=torch.bool)
            wanted.scatter_(
                1,
                part["candidates"][both[again], : _TIGHTENED_CANDIDATES[lower.device.type]].long().clamp(min=0),
                value=True,
            )
            of = both[again]
            renewed, gone = self._tightened(
                closer.pick(again), part["row"][of], choice.pick(of), wanted, self.rule.deadline
            )
            closer = closer.put(again, renewed)
            empty[again] |= gone
        left = (~empty).nonzero().flatten()
        if not len(left):
            return len(empty), None
        of, closer = both[left], closer.pick(left)
        row = part["row"][of]
        steps = _PART_STEPS if self.lps is None else 0
        best = self.brancher.optimise(row, closer, choice.pick(of), steps, self._target_member(part)[of], FAST_RATES)
        return len(empty) - len(left), (closer, best, row, depth[left], part["value"][of])

    def _target_member(self, part: Mapping[str, Tensor]) -> Tensor:
        """Return the member (B,) on which each part is bounded: B if open, else the one with the largest excess."""
        excess = part["value"] - self._thresholds
        return torch.where(excess[:, 0] > 0, 0, excess.argmax(1))

    def _choose_units(self, part: Mapping[str, Tensor], x: Interval, choice: ParameterChoice) -> Tensor:
        """Return the unit (B,) at which to split each part."""
        ahead = part["candidates"][:, : _LOOKAHEAD_CANDIDATES[x.lower.device.type]].long()
        if self.lps is not None:
            return ahead[:, 0]
        return self.brancher.choose_units(
            part["row"], x, choice, ahead, float(self._thresholds[0]), part["value"][:, 0]
        )

    def _member_bounds(self, row: Tensor, x: Interval, choice: ParameterChoice) -> Tensor:
        """Return upper bounds of rows on every member, in float64: (B, 1 + G)."""
        found = self.brancher.bound(row, x, choice)
        return found.bias[:, None] + self.balls.member_suprema(found.form)

    def _add_parts(self, x: Interval, best: BestChoice, row: Tensor, depth: Tensor, above: Tensor) -> None:
        """Compute the final bounds of parts: parts that exceed no threshold are closed, the others become leaves."""
        value = torch.minimum(self._member_bounds(row, x, best.choice), above)
        if self.lps is not None:
            best, value = self._with_lps(x, best, row, value)
        self.parts += len(value)
        self._offer_points(best, value)
        urgency = self._urgency(value)
        left = urgency > 0
        if self.lps is not None:  # deepest first: programs close parts only after many splits
            urgency = urgency + _DEPTH_URGENCY * depth
        leaves = {**self.brancher.leaf_columns(row, x, best, value), "depth": depth}
        if bool(left.any()):
            self.leaves.add({name: column[left] for name, column in leaves.items()}, urgency[left])
        if not bool(left.all()):
            self.closed_upper = torch.maximum(self.closed_upper, value[~left].amax(0))

    def _with_lps(self, x: Interval, best: BestChoice, row: Tensor, value: Tensor) -> tuple[BestChoice, Tensor]:
        """Solve the programs of the most urgent open parts, as long as these close more parts per second."""
        urgency = self._urgency(value)
        some = urgency.topk(min(_LPS_PER_BATCH, len(urgency))).indices
        some = some[urgency[some] > 0]
        if self.lps is None or not len(some):
            return best, value
        solved = solve_part_lps(
            self.units, self.balls, row[some], x.pick(some), best.choice.pick(some), self.rule.deadline
        )
        closer = torch.minimum(self._member_bounds(row[some], x.pick(some), solved.choice), value[some])
        better = (closer < value[some]).any(1) & solved.solved
        taken, wide = some[better], solved.solved[:, None]
        old = best.choice
        new = solved.choice.pick(better)
        choice = ParameterChoice(
            old.slopes.index_copy(0, taken, new.slopes.to(old.slopes)),
            old.multipliers.index_copy(0, taken, new.multipliers.to(old.multipliers)),
            None
            if old.shares is None or new.shares is None
            else old.shares.index_copy(0, taken, new.shares.to(old.shares)),
        )
        losses = best.losses.index_copy(0, some, torch.where(wide, solved.gap.to(best.losses), best.losses[some]))
        delta = best.delta.index_copy(0, some, torch.where(wide, solved.delta.to(best.delta), best.delta[some]))
        value = value.index_copy(0, some, closer)
        left = self._urgency(closer) > 0
        if bool(left.any()):
            self._offer(solved.delta[left], torch.zeros_like(some[left]))
        self.lps = self.lps.learn(int((~left).sum()), len(some))
        return BestChoice(choice, best.value, losses, delta), value

    def _offer_points(self, best: BestChoice, value: Tensor) -> None:
        """Try the maximisers δ of the most urgent parts as adversaries, once in several batches."""
        self.batches += 1
        if self.batches % _BATCHES_PER_OFFER != 1:
            return
        excess, member = (value - self._thresholds).max(1)
        high = excess.topk(min(_OFFERED_POINTS, len(value))).indices
        self._offer(best.delta[high], member[high])

    def _offer(self, delta: Tensor, member: Tensor) -> None:
        reached = self.offer(delta, member)
        if bool((reached > self.reached).any()):
            self.reached = reached
            self.leaves.set_urgency(self._urgency(self.leaves.column("value")))
