"""Branch and bound on the balls of one sample: parts of B are split until no member can exceed what was reached in it.

Every part ends in one function of δ that bounds a row on it, and with that on its share of every member. A part is done
when on all members it stays within the gap of a point that was found there. Intervals and final bounds are computed in
float64; slopes and multipliers are looked for in float32, where any will do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.memory import is_out_of_memory
from proofmap.rules import Interval
from proofmap.tree.balls import Balls
from proofmap.tree.goal import Found, Goal, Offer, Report
from proofmap.tree.intervals import Half, Implied, at_the_root, mended, renew
from proofmap.tree.leaves import Leaves
from proofmap.tree.relaxed import Best, Choice, bound, improve, lines_of, places
from proofmap.tree.straight import solved
from proofmap.tree.units import Rows, Units, outward, precise, wide

_ROOT_STEPS, _STEPS, _LONG = 30, 8, 40  # at the root, at a part, and at one that cannot be split
_HIDDEN_STEPS = 20  # for intervals at the root
_ROUNDS = 2  # of intervals at the root, on what may exceed what was reached
_ROOT = 0.2  # of the time, for them, and as much for what splits imply
_FAST, _SLOW = (0.3, 0.1), (0.03, 0.03)  # steps of slopes and of multipliers
_AHEAD = 16  # splits that are tried before one is made
_LEVELS = 6  # splits after which intervals are renewed
_RENEWED = 32  # units of a part whose intervals are renewed
_SOLVED = 16  # parts without a bend that are solved at a time
_POINTS, _PAUSE = 16, 16  # of the most urgent parts, tried as adversaries, and batches from one try to the next
_HEARD = 0.5  # seconds from one report to the next
_NUMBERS = {"cpu": 2**25, "cuda": 2**32}  # coefficients that are multiplied for a batch of parts
_PARTS = {"cpu": 256, "cuda": 4096}
_TRIED = {"cpu": 2**35, "cuda": 2**42}  # coefficients that trying every split may multiply


def search(units: Units, balls: Balls, reached: Tensor, goal: Goal, offer: Offer, report: Report) -> Found:
    """Close the sides of every member, reached (1 + G,) from below."""
    tree = Tree(units, balls, reached, goal, offer)
    stopped = ""
    try:
        tree.plant()
        heard = time.monotonic()
        while len(tree.leaves) and not (stopped := tree.spent()):
            tree.grow()
            if time.monotonic() > heard + _HEARD:
                report(float(tree.reached[0]), float(tree.upper[0]), tree.parts)
                heard = time.monotonic()
    except KeyboardInterrupt:
        stopped = "interrupted"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        stopped = "memory"
    return Found(tree.upper, tree.parts, stopped)


class Tree:
    """One search. Whatever breaks off a step, `upper` holds: parts that were taken count until their halves do."""

    def __init__(self, units: Units, balls: Balls, reached: Tensor, goal: Goal, offer: Offer) -> None:
        self.precise, self.exact = units, balls
        self.units, self.balls = units.single(), balls.to(torch.float32)
        self.goal, self.offer, self.reached = goal, offer, reached
        self.parts, self.batches = 0, 0
        self.root = torch.full_like(reached, inf)  # what holds before anything was split
        self.cut = -inf  # inputs where a row is at most this may have been left out
        self.done = torch.full_like(reached, -inf)  # the highest of the parts that are closed
        self.taken: Tensor | None = self.root  # the highest of those that are being split
        self.leaves = Leaves({"value": reached.new_empty(0, len(reached))}, reached[:0])
        kind = reached.device.type
        count, variables = units.inputs.weight.shape
        self.batch = min(_PARTS[kind], max(8, _NUMBERS[kind] // max(1, count * (variables + count))))
        self.at_once = max(1, (2**24 if kind == "cpu" else 2**31) // (8 * (variables + 8 * count + 1)))

    @property
    def upper(self) -> Tensor:
        """The upper sides, as they are now."""
        sides = [self.done, *self.leaves.column("value").split(2**16)]
        top = torch.stack([side if side.ndim == 1 else side.amax(0) for side in sides if len(side)]).amax(0)
        if self.taken is not None:
            top = torch.maximum(top, self.taken)
        return torch.minimum(top.clamp(min=self.cut), self.root)

    def spent(self) -> str:
        """Why to stop, if there is a reason: what is used up, or that nothing can be proven any more."""
        if self.goal.halted.is_set():
            return "interrupted"
        if time.monotonic() > self.goal.until:
            return "time"
        if self.goal.refuted(self.reached):
            return "refuted"
        return "memory" if self.leaves.bytes > self.goal.memory else ""

    @property
    def _floor(self) -> Tensor:
        """What a member need not be proven to stay below, (1 + G,)."""
        return self.goal.floor(self.reached)

    def _urgency(self, value: Tensor) -> Tensor:
        """How far parts (B, 1 + G) are above what they have to be, on the member where that is most: (B,)."""
        return (value - self._floor).amax(1)

    def plant(self) -> None:
        """Bound every row on the whole ball, and keep those that may decide."""
        units, count = self.precise, len(self.precise.rows)
        number = torch.arange(count, device=self.reached.device)
        x = wide(units.interval, count)
        above = self._values(units.rows, x, Choice.start(x))
        self.root = self.taken = above.amax(0)
        left = self.goal.until - time.monotonic()
        until = (time.monotonic() + _ROOT * left, time.monotonic() + 2 * _ROOT * left)
        root = at_the_root(units, self.exact, steps=_HIDDEN_STEPS, at_once=self.at_once, until=until[0])
        x = wide(root, count)
        best = self._improved(number, outward(x), Choice.start(outward(x)), _ROOT_STEPS, None, _FAST)
        tried = self._to_try(best, root)
        self.implied = Implied.of(units, self.exact, root, tried, at_once=self.at_once, until=until[1])
        for _ in range(_ROUNDS):
            if time.monotonic() < until[1]:
                x, gone = self._renewed(x, number, best.choice, None)
                number, x, above, best = number[~gone], x.pick(~gone), above[~gone], best.pick(~gone)
                best = self._improved(number, outward(x), best.choice, _ROOT_STEPS, None, _FAST)
        self._settle(x, best, number, torch.zeros_like(number), above)
        self.taken = None

    def _renewed(self, x: Interval, row: Tensor, choice: Choice, wanted: Tensor | None) -> tuple[Interval, Tensor]:
        """Closer intervals of parts, as far as a row exceeds what every member may have, and which parts are gone."""
        self.cut = float(self._floor.min())
        rows = self.precise.rows.pick(row)
        half = Half.of(self.precise, replace(rows, bias=rows.bias - self.cut), x, choice.to(torch.float64))
        return renew(self.precise, self.exact, x, at_once=self.at_once, wanted=wanted, half=half)

    def _to_try(self, best: Best, root: Interval) -> Tensor:
        """The open ReLUs that lose most, as many as there is time for."""
        count, variables = self.precise.inputs.weight.shape
        loss = torch.where((root.lower < 0) & (root.upper > 0), best.losses.double().amax(0), 0)
        for level in self.precise.levels:
            if level.node is not None:
                loss[level.columns] = 0
        most = int(_TRIED[loss.device.type] // max(1, 4 * count * count * (variables + count)))
        return loss.topk(min(most, int((loss > 0).sum()))).indices

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
        (x, choice), member = _parts_of(part), self._member(part)
        rows = self.precise.rows.pick(part["row"])
        multipliers, delta, works = solved(self.precise, self.exact, rows, precise(x), member)
        choice = Choice(choice.slopes, torch.where(works[:, None], multipliers.float(), choice.multipliers))
        self._offer(delta[works], member[works])
        best = self._improved(part["row"], x, choice, _LONG, member, _SLOW)
        self._settle(precise(x), best, part["row"], part["depth"], part["value"])

    def _split(self, part: Mapping[str, Tensor]) -> None:
        x, choice = _parts_of(part)
        lower, upper, both = self._halves(x, self._choose(part, x, choice))
        depth = part["depth"][both] + 1
        closer, empty = mended(lower, upper)
        again = (depth % _LEVELS == 0).nonzero().flatten()
        if len(again):
            wanted = torch.zeros_like(lower[again], dtype=torch.bool)
            wanted.scatter_(1, part["candidates"][both[again]].long().clamp(min=0), value=True)
            of = both[again]
            renewed, gone = self._renewed(closer.pick(again), part["row"][of], choice.pick(of), wanted)
            closer = closer.put(again, renewed)
            empty[again] |= gone
        self.parts += int(empty.sum())
        kept = (~empty).nonzero().flatten()
        if len(kept):
            of, closer = both[kept], closer.pick(kept)
            row = part["row"][of]
            best = self._improved(row, outward(closer), choice.pick(of), _STEPS, self._member(part)[of], _FAST)
            self._settle(closer, best, row, depth[kept], part["value"][of])

    def _member(self, part: Mapping[str, Tensor]) -> Tensor:
        """The member that each part is furthest above, (B,)."""
        return (part["value"] - self._floor).argmax(1)

    def _choose(self, part: Mapping[str, Tensor], x: Interval, choice: Choice) -> Tensor:
        """The unit of each part to split: that whose halves have the smallest sum, by one look at each candidate."""
        ahead = part["candidates"][:, :_AHEAD].long()
        index = torch.arange(len(ahead), device=ahead.device).repeat_interleave(ahead.shape[1])
        lower, upper, both = self._halves(x.pick(index), ahead.clamp(min=0).flatten())
        of = index[both]
        here = outward(Interval(torch.minimum(lower, upper), torch.maximum(lower, upper)))
        lines = lines_of(self.units, here, choice.slopes[of])
        found = bound(self.units, self.units.rows.pick(part["row"][of]), here, lines, choice.multipliers[of])
        least = float(self._floor[0])
        value = (found.bias + self.balls.supremum(found.form)).minimum(part["value"][of, 0].float())
        value = torch.where((lower > upper).any(1), least, value.clamp(min=least))
        total = value.view(2, *ahead.shape).sum(0).masked_fill(ahead < 0, inf)
        return ahead.gather(1, total.argmin(1, keepdim=True)).squeeze(1)

    def _halves(self, x: Interval, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Both sides of a unit (B,) of each part, above, then below: ends (2 B, K) in float64, and whose they are."""
        count = len(unit)
        row = torch.arange(count, device=unit.device)
        at = places(self.units, x)[row, unit].double()
        both, side = row.repeat(2), torch.ones_like(unit).repeat(2)
        side[count:] = -1
        lower, upper = self.implied.after(x.pick(both), unit.repeat(2), side)
        lower[row, unit] = torch.maximum(lower[row, unit], at)
        upper[row + count, unit] = torch.minimum(upper[row + count, unit], at)
        return lower, upper, both

    def _improved(
        self, row: Tensor, x: Interval, choice: Choice, steps: int, member: Tensor | None, rates: tuple[float, float]
    ) -> Best:
        rows = self.units.rows.pick(row)
        return improve(self.units, self.balls, rows, x, choice, steps=steps, member=member, rates=rates)

    def _values(self, rows: Rows, x: Interval, choice: Choice) -> Tensor:
        """Upper bounds of rows on every member, in float64: (B, 1 + G)."""
        found = bound(self.precise, rows, x, lines_of(self.precise, x, choice.slopes), choice.multipliers)
        return found.bias[:, None] + self.exact.every(found.form)

    def _settle(self, x: Interval, best: Best, row: Tensor, depth: Tensor, above: Tensor) -> None:
        """Bound parts for good: those that no member needs are done, the others become leaves."""
        rows, choice = self.precise.rows.pick(row), best.choice.to(torch.float64)
        value = torch.minimum(self._values(rows, x, choice), above)
        self.parts += len(value)
        self._try(best, value)
        urgency = self._urgency(value)
        left = urgency > 0
        leaves = {
            "lower": outward(x).lower,
            "upper": outward(x).upper,
            "slopes": best.choice.slopes,
            "multipliers": best.choice.multipliers,
            "candidates": self._candidates(x, best),
            "row": row,
            "depth": depth,
            "value": value,
        }
        if bool(left.any()):
            self.leaves.add({name: column[left] for name, column in leaves.items()}, urgency[left])
        if not bool(left.all()):
            self.done = torch.maximum(self.done, value[~left].amax(0))

    def _candidates(self, x: Interval, best: Best) -> Tensor:
        """The open units that lose most, in this order, -1 for none: (B, n)."""
        open_ = lines_of(self.precise, x, best.choice.slopes.double()).open
        loss = torch.where(open_, best.losses, -inf)
        top = loss.topk(min(_RENEWED, loss.shape[1]), dim=1)
        found = torch.where(top.values > -inf, top.indices, -1)
        return found if found.shape[1] else found.new_full((len(found), 1), -1)

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


def _parts_of(leaves: Mapping[str, Tensor]) -> tuple[Interval, Choice]:
    return Interval(leaves["lower"], leaves["upper"]), Choice(leaves["slopes"], leaves["multipliers"])
