"""Branch and bound on the balls of one sample: parts of B are split until no member can exceed what was reached in it.

Every part ends in one function of δ that bounds a row on it, and with that on its share of every member. A part is done
when on all members it stays within the gap of a point that was found there. Intervals and final bounds are computed in
float64; slopes and multipliers are looked for in float32, where any will do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.runtime.memory import is_out_of_memory
from proofmap.search.ball_maxima import Balls
from proofmap.search.beta_crown import Best, Choice
from proofmap.search.branching import FAST, SLOW, Splits, parts_of
from proofmap.search.cpu_threads import shared
from proofmap.search.goal import Found, Goal, Offer, Report
from proofmap.search.lp import solved
from proofmap.search.open_leaves import Leaves
from proofmap.search.tightening import refined
from proofmap.search.unit_intervals import Half, at_the_root, mended, renew
from proofmap.search.unstable_units import Units, outward, precise, wide

_ROOT_STEPS, _STEPS, _LONG = 100, 8, 40  # at the root, at a part, and at one that cannot be split
_HIDDEN_STEPS = 20  # for intervals at the root
_ROUNDS = 2  # of intervals at the root, on what may exceed what was reached
Halves = tuple[Interval, Best, Tensor, Tensor, Tensor]  # parts, what bounds them, rows, depths, what is known
Stage = tuple[float, int]  # a share of the time, and the parts by which every interval is made closer after it
STAGES: dict[str, tuple[Stage, ...]] = {"cpu": ((0.03, 64), (0.1, 512)), "cuda": ((0.04, 64), (0.25, 512))}
_CLOSER = 0.4  # of the time that is left, at most, for that
_WORTH = 0.9  # of the looseness of units: a tree on what leaves more of it is not worth a new start
_ROOT = 0.2  # of the time, for them, and as much for what splits imply
_AHEAD = {"cpu": 8, "cuda": 16}  # splits that are tried before one is made
_LEVELS = 6  # splits after which intervals are renewed,
_WANTED = {"cpu": 16, "cuda": 32}  # of so many candidates
_SOLVED = 16  # parts without a bend that are solved at a time
_POINTS, _PAUSE = 16, 16  # of the most urgent parts, tried as adversaries, and batches from one try to the next
_HEARD = 0.5  # seconds from one report to the next
_NUMBERS = {"cpu": 2**25, "cuda": 2**34}  # coefficients that are multiplied for a batch of parts
_PARTS = {"cpu": 256, "cuda": 4096}  # in a batch
_EACH = 64  # bytes of a unit while a split is tried
_FIRST = 1e6  # how much more urgent B is than its members


def search(
    units: Units,
    balls: Balls,
    reached: Tensor,
    goal: Goal,
    offer: Offer,
    report: Report,
    stages: Sequence[Stage] | None = None,
) -> Found:
    """Close the sides of every member, reached (1 + G,) from below.

    What a stage leaves open is searched again with closer intervals, each of which had a tree of its own; where they
    come little closer, the tree that is there goes on.
    """
    tree = Tree(units, balls, reached, goal, offer)
    parts, stopped, begin = 0, "", time.monotonic()
    try:
        for share, each in STAGES[reached.device.type] if stages is None else stages:
            if not tree.units.deep:
                break
            stopped = _grow(tree, begin + share * (goal.until - begin), report)
            closer = tree.closer(each) if stopped == "time" else None
            if closer is None:
                break
            parts += tree.parts
            tree = closer
        stopped = _grow(tree, goal.until, report)
    except KeyboardInterrupt:
        stopped = "interrupted"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        stopped = "memory"
    return Found(tree.upper, parts + tree.parts, stopped)


def _grow(tree: Tree, until: float, report: Report) -> str:
    """Let a tree grow, for no less than its root took; what stopped it."""
    begin = time.monotonic()
    if not tree.planted:
        tree.plant()
    heard = time.monotonic()
    stopped, until = "", min(tree.goal.until, max(until, 2 * heard - begin))
    while len(tree.leaves) and not (stopped := tree.spent(until)):
        tree.grow()
        if time.monotonic() > heard + _HEARD:
            report(float(tree.reached[0]), float(tree.upper[0]), tree.parts)
            heard = time.monotonic()
    return stopped


class Tree:
    """One search. Whatever breaks off a step, `upper` holds: parts that were taken count until their halves do."""

    def __init__(
        self, units: Units, balls: Balls, reached: Tensor, goal: Goal, offer: Offer, known: Tensor | None = None
    ) -> None:
        self.units: Units = units
        self.balls = balls
        self.splits: Splits = Splits(units, balls)
        self.goal = goal
        self.offer = offer
        self.reached: Tensor = reached
        self.parts: int = 0
        self.batches: int = 0
        self.planted: bool = False
        # what holds before anything was split
        self.root: Tensor = torch.full_like(reached, inf) if known is None else known
        self.cut: float = -inf  # inputs where a row is at most this may have been left out
        self.done: Tensor = torch.full_like(reached, -inf)  # the highest of the parts that are closed
        self.taken: Tensor | None = self.root  # the highest of those that are being split
        self.leaves: Leaves = self._none()
        kind = reached.device.type
        count, variables = units.inputs.weight.shape
        room = goal.memory // (2 * _AHEAD[kind] * (_EACH * count + 8 * variables + 1))
        self.batch: int = max(8, min(_PARTS[kind], room, _NUMBERS[kind] // max(1, count * (variables + count))))
        self.at_once: int = max(1, (2**24 if kind == "cpu" else 2**31) // (8 * (variables + 8 * count + 1)))

    def closer(self, parts: int) -> Tree | None:
        """A new tree, on intervals each of which had a tree of so many parts; None where they are hardly closer."""
        now = time.monotonic()
        until = now + _CLOSER * (self.goal.until - now)
        units = refined(self.units, self.balls, self.goal, parts=parts, at_once=self.at_once, until=until)
        if units.looseness > _WORTH * self.units.looseness:
            return None
        return Tree(units, self.balls, self.reached, self.goal, self.offer, self.upper)

    def _none(self) -> Leaves:
        return Leaves({"value": self.reached.new_empty(0, len(self.reached))}, self.reached[:0])

    @property
    def upper(self) -> Tensor:
        """The upper sides, as they are now."""
        sides = [self.done, *self.leaves.column("value").split(2**16)]
        top = torch.stack([side if side.ndim == 1 else side.amax(0) for side in sides if len(side)]).amax(0)
        if self.taken is not None:
            top = torch.maximum(top, self.taken)
        return torch.minimum(top.clamp(min=self.cut), self.root)

    def spent(self, until: float) -> str:
        """Why to stop, if there is a reason."""
        return self.goal.spent(self.reached, self.leaves.bytes, until)

    @property
    def _floor(self) -> Tensor:
        """What a member need not be proven to stay below, (1 + G,)."""
        return self.goal.floor(self.reached)

    def _urgency(self, value: Tensor) -> Tensor:
        """How far parts (B, 1 + G) are above what they have to be: on B first, then on the member that is worst."""
        excess = value - self._floor
        return torch.where(excess[:, 0] > 0, excess[:, 0] + _FIRST, excess.amax(1))

    def plant(self) -> None:
        """Bound every row on the whole ball, and keep those that may decide."""
        units, count = self.units, len(self.units.rows)
        number = torch.arange(count, device=self.reached.device)
        x = wide(units.interval, count)
        above = self._values(number, x, Choice.start(x)).minimum(self.root)
        self.root = self.taken = above.amax(0)
        left = self.goal.until - time.monotonic()
        until = (time.monotonic() + _ROOT * left, time.monotonic() + 2 * _ROOT * left)
        root = at_the_root(units, self.balls, steps=_HIDDEN_STEPS, at_once=self.at_once, until=until[0])
        self.units = replace(units, interval=root)
        self.splits = Splits(self.units, self.balls)
        x = wide(root, count)
        best = self.splits.improved(number, x, Choice.start(outward(x)), _ROOT_STEPS, None, FAST)
        self.splits.imply(best, at_once=self.at_once, until=until[1])
        for _ in range(_ROUNDS):
            if time.monotonic() < until[1]:
                x, gone = self._renewed(x, number, best.choice, None)
                number, x, above, best = number[~gone], x.pick(~gone), above[~gone], best.pick(~gone)
                best = self.splits.improved(number, x, best.choice, _ROOT_STEPS, None, FAST)
        self._settle(x, best, number, torch.zeros_like(number), above)
        self.taken, self.planted = None, True

    def _renewed(self, x: Interval, row: Tensor, choice: Choice, wanted: Tensor | None) -> tuple[Interval, Tensor]:
        """Closer intervals of parts, as far as a row exceeds what every member may have, and which parts are gone."""
        self.cut = float(self._floor.min())
        rows = self.units.rows.pick(row)
        half = Half.of(self.units, replace(rows, bias=rows.bias - self.cut), x, choice.to(torch.float64))
        return renew(self.units, self.balls, x, at_once=self.at_once, wanted=wanted, half=half)

    def grow(self) -> None:
        """Split the most urgent parts; those that have nothing to split get closer by more steps."""
        urgent = self.leaves.urgent(self.batch)
        self.taken = urgent["value"].amax(0)
        self.leaves.drop(self.batch)
        whole = urgent["candidates"][:, 0] < 0
        if bool(whole.any()):
            self._polish({name: column[whole] for name, column in urgent.items()})
        if not bool(whole.all()):
            self._split({name: column[~whole] for name, column in urgent.items()})
        self.taken = None

    def _polish(self, part: Mapping[str, Tensor]) -> None:
        """Of parts that are linear, some are solved, the others wait."""
        later = {name: column[_SOLVED:] for name, column in part.items()}
        part = {name: column[:_SOLVED] for name, column in part.items()}
        if len(later["row"]):
            self.leaves.add(later, self._urgency(later["value"]))
        (x, choice), member = parts_of(part), self._member(part)
        rows = self.units.rows.pick(part["row"])
        multipliers, delta, works = solved(self.units, self.balls, rows, precise(x), member)
        choice = Choice(choice.slopes, torch.where(works[:, None], multipliers.float(), choice.multipliers))
        self._offer(delta[works], member[works])
        best = self.splits.improved(part["row"], x, choice, _LONG, member, SLOW)
        self._settle(precise(x), best, part["row"], part["depth"], part["value"])

    def _split(self, part: Mapping[str, Tensor]) -> None:
        """Both sides of a unit of every part."""
        for gone, halves in shared(self._halved, part):
            self.parts += gone
            if halves is not None:
                self._settle(*halves)

    def _halved(self, part: Mapping[str, Tensor]) -> tuple[int, Halves | None]:
        """How many halves of parts are empty, and the others. Threads do this at once: nothing is changed."""
        x, choice = parts_of(part)
        lower, upper, both = self.splits.halves(x, self._choose(part, x, choice))
        depth = part["depth"][both] + 1
        closer, empty = mended(lower, upper)
        again = (depth % _LEVELS == 0).nonzero().flatten()
        if len(again):
            wanted = torch.zeros_like(lower[again], dtype=torch.bool)
            wanted.scatter_(
                1, part["candidates"][both[again], : _WANTED[lower.device.type]].long().clamp(min=0), value=True
            )
            of = both[again]
            renewed, gone = self._renewed(closer.pick(again), part["row"][of], choice.pick(of), wanted)
            closer = closer.put(again, renewed)
            empty[again] |= gone
        kept = (~empty).nonzero().flatten()
        if not len(kept):
            return len(empty), None
        of, closer = both[kept], closer.pick(kept)
        row = part["row"][of]
        best = self.splits.improved(row, closer, choice.pick(of), _STEPS, self._member(part)[of], FAST)
        return len(empty) - len(kept), (closer, best, row, depth[kept], part["value"][of])

    def _member(self, part: Mapping[str, Tensor]) -> Tensor:
        """The member that each part is to come down on, (B,): B itself, or else that which it is furthest above."""
        excess = part["value"] - self._floor
        return torch.where(excess[:, 0] > 0, 0, excess.argmax(1))

    def _choose(self, part: Mapping[str, Tensor], x: Interval, choice: Choice) -> Tensor:
        """The unit of each part to split, (B,)."""
        ahead = part["candidates"][:, : _AHEAD[x.lower.device.type]].long()
        return self.splits.choose(part["row"], x, choice, ahead, float(self._floor[0]), part["value"][:, 0])

    def _values(self, row: Tensor, x: Interval, choice: Choice) -> Tensor:
        """Upper bounds of rows on every member, in float64: (B, 1 + G)."""
        found = self.splits.bounded(row, x, choice)
        return found.bias[:, None] + self.balls.every(found.form)

    def _settle(self, x: Interval, best: Best, row: Tensor, depth: Tensor, above: Tensor) -> None:
        """Bound parts for good: those that no member needs are done, the others become leaves."""
        value = torch.minimum(self._values(row, x, best.choice), above)
        self.parts += len(value)
        self._try(best, value)
        urgency = self._urgency(value)
        left = urgency > 0
        leaves = {**self.splits.columns(row, x, best, value), "depth": depth}
        if bool(left.any()):
            self.leaves.add({name: column[left] for name, column in leaves.items()}, urgency[left])
        if not bool(left.all()):
            self.done = torch.maximum(self.done, value[~left].amax(0))

    def _try(self, best: Best, value: Tensor) -> None:
        """The δ of the most urgent parts as adversaries, from time to time."""
        self.batches += 1
        if self.batches % _PAUSE != 1:
            return
        excess, member = (value - self._floor).max(1)
        high = excess.topk(min(_POINTS, len(value))).indices
        self._offer(best.delta[high], member[high])

    def _offer(self, delta: Tensor, member: Tensor) -> None:
        reached = self.offer(delta, member)
        if bool((reached > self.reached).any()):
            self.reached = reached
            self.leaves.rank(self._urgency(self.leaves.column("value")))
