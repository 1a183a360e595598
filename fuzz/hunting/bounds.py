"""Check the bounds of a graph on balls: every method's bounds must hold at sampled, corner and attacked points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fuzz.hunting.draw import Draw
from fuzz.hunting.finding import Found, Tally, raw_error
from fuzz.hunting.points import points_of, values_of
from fuzz.hunting.rounding import floor_of, sizes, units
from fuzz.hunting.walks import Ground, check, check_linear, watched
from proofmap import Ball, Family, Graph
from proofmap.bounds import METHODS, Cases, Exact, Method, Sharing, named, solve
from proofmap.errors import BoundError
from proofmap.graph.rewrite.output_heads import Reduction, output_and_one
from proofmap.verify.objectives import Direction, Logits, Output
from proofmap.verify.overlap import Overlap, OverlapSettings, family_overlap
from proofmap.verify.radius import certified_radius
from tests.bounds.setting import BUDGET, both_sides

SEARCH_SECONDS = 0.1  # time limit of a search for each sample; tiny networks mostly need less

_JOINED = ("ibp+forward", "forward+backward", "ibp+backward", "ibp+forward+backward", "crown-ibp+forward")


def tried(graph: Graph, family: Family, draw: Draw, tally: Tally) -> Iterator[Found]:
    """Yield the findings about a graph on a family of balls."""
    try:
        trial = _Trial(graph, family, draw, tally)
    except Found as finding:
        yield finding
        return
    yield from trial.findings()


class _Trial:
    """One graph with one family of balls in one precision, with points and the bounds of every method."""

    def __init__(self, graph: Graph, family: Family, draw: Draw, tally: Tally) -> None:
        self.graph, self.family, self.draw, self.tally = graph, family, draw, tally
        singles = family.split()
        self.ground = Ground(singles, points_of(graph, singles, draw.generator))
        logits = values_of(graph, self.ground.points)[graph.output].flatten(2)
        self.logits = logits.unflatten(1, (family.count, family.members))  # (P, N, members, classes)
        self.sizes: dict[str, Tensor] = {}  # the largest size of a logit (N,), by method
        tally.balls += singles.count
        tally.points += self.ground.points.shape[0] * singles.count

    def findings(self) -> Iterator[Found]:
        """Run every check, and yield their findings; a finding does not stop the later checks."""
        checks: list[Callable[[], None]] = [self._linear]
        for name in (*METHODS, self.draw.pick(_JOINED)):
            sharing = self.draw.pick(get_args(Sharing))
            objective = self.draw.pick([one for one in get_args(Logits) if name != "exact" or one != "apart"])
            checks += [lambda n=name, s=sharing: self._sides(n, s)]  # type: ignore[misc]
            checks += [lambda n=name, s=sharing, o=objective: self._overlap(n, s, o)]  # type: ignore[misc]
        checks += [self._nothing_moves, self._orders, self._memory]
        if self.draw.chance(0.2):
            checks.append(self._radius)
        checks.append(self._output)
        for one in checks:
            finding = self._outcome(one)
            if finding is not None:
                yield finding

    def _outcome(self, one: Callable[[], None]) -> Found | None:
        try:
            one()
        except Found as finding:
            return finding
        except BoundError as error:
            self.tally.refused[f"BoundError: {str(error)[:60]}"] += 1
            return Found("wrong refusal", str(error)) if "0.0 GB" in str(error) else None
        except Exception as error:
            return raw_error("a method of bounding", error)
        return None

    # --- soundness ---

    def _linear(self) -> None:
        check_linear(self.graph, self.ground, self.tally, self.draw.generator)

    def _sides(self, name: str, sharing: Sharing) -> None:
        """Check the bounds of all logits, and every step that led to them."""
        with watched() as walks:
            lower, upper = both_sides(self.graph, self.family, named(name), sharing)
        size = torch.zeros(self.ground.singles.count, self.graph.classes, dtype=torch.float64)
        for walk in walks:
            size = torch.maximum(size, check(walk, self.ground, self.tally, self.draw.generator))
        size = size.unflatten(0, (self.family.count, self.family.members))
        self.sizes[name] = size.amax((1, 2))
        self._holds(f"{name}, {sharing}: a logit", reach(self.logits), upper, size)
        self._holds(f"{name}, {sharing}: minus a logit", reach(-self.logits), -lower, size)

    def _holds(self, what: str, reached: Tensor, bound: Tensor, size: Tensor) -> None:
        """Require reached <= bound, both (N, members, R), up to rounding errors."""
        dtype = bound.dtype
        excess = reached - bound.double()
        share = float((excess / (units(dtype) * size + floor_of(dtype))).nan_to_num(inf).max())
        self.tally.bounds += bound.numel()
        if share > 1:
            frozen = "" if bool((excess[:, 0] > 0).any()) else ", with a group frozen"
            raise Found("unsound", f"{what} reaches {float(excess.max()):.3g} beyond its bound{frozen} ({dtype})")
        self.tally.near(share)

    def _overlap(self, name: str, sharing: Sharing, objective: Logits) -> None:
        """Check the overlap at points against its bounds, for a random target class."""
        target = torch.tensor(self.draw.wholes(self.family.count, 0, self.graph.classes - 1))
        rival = (target + 1) % self.graph.classes if self.draw.chance(0.3) else None
        method = Exact(seconds=SEARCH_SECONDS) if name == "exact" else named(name)
        how = OverlapSettings(method, BUDGET, sharing, objective)
        overlap = family_overlap(self.graph, self.family, target, how, rival)
        reached = overlap_at(self.logits, target, rival, objective)
        bound = torch.cat([overlap.full[:, None], overlap.frozen], 1)[..., None]
        self._holds(f"{name}, {sharing}: the overlap {objective!r}", reached, bound, 2 * self._size(name))
        self._nominal(overlap, target, rival, objective, self._size(name))

    def _output(self) -> None:
        """Check the change of a random output, or of a random region of outputs, against its bounds."""
        if self.graph.taken_off is not None:  # the outputs are then other numbers than the logits
            return
        (start,) = self.draw.wholes(1, 0, self.graph.classes - 1)
        (stop,) = self.draw.wholes(1, start + 1, self.graph.classes)
        name, sharing = self.draw.pick(list(METHODS)), self.draw.pick(get_args(Sharing))
        reduce, direction = self.draw.pick(get_args(Reduction)), self.draw.pick(get_args(Direction))
        objective = Output((slice(start, stop),), direction, reduce=reduce)
        graph = output_and_one(self.graph, range(start, stop), reduce)
        method = Exact(seconds=SEARCH_SECONDS) if name == "exact" else named(name)
        overlap = family_overlap(graph, self.family, None, OverlapSettings(method, BUDGET, sharing, objective))
        assert overlap.value is not None
        picked = self.logits[..., start:stop]
        change = (picked.mean(3) if reduce == "mean" else picked.amax(3)) - overlap.value.double()[None, :, None]
        moved = {"up": change, "down": -change, "both": change.abs()}[direction]
        bound = torch.cat([overlap.full[:, None], overlap.frozen], 1)[..., None]
        self._holds(
            f"{name}, {sharing}: the change of {objective.text}", reach(moved[..., None]), bound, 4 * self._size(name)
        )

    def _nominal(self, overlap: Overlap, target: Tensor, rival: Tensor | None, objective: Logits, size: Tensor) -> None:
        """Check the overlap at x: it equals its definition, and no bound lies below it."""
        at_x = values_of(self.graph, self.family.x[None])[self.graph.output].flatten(2).unsqueeze(2)
        expected = overlap_at(at_x, target, rival, objective)[:, 0, 0]
        dtype = overlap.nominal.dtype
        slack = units(dtype) * 2 * size.amax((1, 2)) + floor_of(dtype)
        off = (overlap.nominal.double() - expected).abs()
        if bool((off > slack).any()):
            raise Found("unsound", f"the overlap {objective!r} at x itself is {float(off.max()):.3g} off ({dtype})")
        if bool((overlap.nominal.double() - overlap.full.double() > slack).any()):
            raise Found("unsound", f"the overlap {objective!r} at x itself is above the bound of its ball ({dtype})")

    def _size(self, name: str) -> Tensor:
        """Return the largest size of a logit on each ball, (N, members, 1)."""
        if name not in self.sizes:
            with watched() as walks:
                both_sides(self.graph, self.family, named(name), "one-pass")
            self.sizes[name] = torch.zeros(self.family.count, dtype=torch.float64)
            for walk in walks:
                size = sizes(walk.knowledge.graph, walk.knowledge.intervals)[self.graph.output].flatten(1).amax(1)
                ball, single = self.ground.within(walk.knowledge.balls)
                self.sizes[name].index_reduce_(0, single // self.family.members, size[ball], "amax")
        return self.sizes[name][:, None, None].expand(-1, self.family.members, 1)

    # --- agreement of methods ---

    def _nothing_moves(self) -> None:
        """At radius zero, every method must give the logits of the forward pass."""
        still = Ball(0.0).at(self.family.x, self.family.mask)
        expected = values_of(self.graph, self.family.x[None])[self.graph.output].flatten(2)[0]
        method: Method = named(self.draw.pick([*METHODS, *_JOINED]))
        with watched() as walks:
            lower, upper = both_sides(self.graph, still, method, "shared")
        size = sizes(walks[0].knowledge.graph, walks[0].knowledge.intervals)[self.graph.output].flatten(1).amax()
        slack = units(lower.dtype) * size + floor_of(lower.dtype)
        for bound in (lower, upper):
            off = (bound.double() - expected[:, None]).abs().amax()
            if bool(off > slack):
                raise Found("unsound", f"at radius zero {method} is {float(off):.3g} from the forward pass")

    def _orders(self) -> None:
        """A member's bound is at most its ball's, `shared` at most `one-pass`, an intersection at most its parts."""
        name = self.draw.pick(_JOINED)
        _, shared = both_sides(self.graph, self.family, named(name), "shared")
        _, one_pass = both_sides(self.graph, self.family, named(name), "one-pass")
        parts = [both_sides(self.graph, self.family, named(part), "shared")[1] for part in name.split("+")]
        slack = units(shared.dtype) * self._size(name) + floor_of(shared.dtype)
        others = {"its ball": shared[:, :1], "one-pass": one_pass, **dict(zip(name.split("+"), parts, strict=True))}
        for what, above in others.items():
            excess = (shared - above).double()
            if bool((excess > slack).any()):
                raise Found("disagreement", f"{name}, shared, is {float(excess.max()):.3g} above {what}")

    def _memory(self) -> None:
        """A memory budget of one row at a time must not change a bound."""
        name, sharing = self.draw.pick(list(METHODS)), self.draw.pick(get_args(Sharing))
        unit = torch.eye(self.graph.classes, dtype=self.family.x.dtype).expand(self.family.count, -1, -1)
        wide, narrow = (solve(self.graph, Cases(self.family), unit, named(name), sharing, b) for b in (BUDGET, 1))
        slack = units(wide.dtype) * self._size(name) + floor_of(wide.dtype)
        if bool(((wide - narrow).abs().double() > slack).any()):
            off = float((wide - narrow).abs().max())
            raise Found("disagreement", f"{name}, {sharing}: a small memory budget changes a bound by {off:.3g}")

    def _radius(self) -> None:
        """Attack balls of certified radii. If a method has no bound at some radius, the search must not raise."""
        x, norm = self.family.x, self.draw.pick([1.0, 2.0, inf])
        try:
            radius = certified_radius(self.graph, x, norm=norm, steps=3, memory=BUDGET)
        except BoundError as error:
            raise Found("wrong refusal", f"certified_radius raises where a ball has no bound: {error}") from error
        family = Ball(radius.clamp(max=1e6), norm).at(x)
        logits = values_of(self.graph, points_of(self.graph, family, self.draw.generator))[self.graph.output].flatten(2)
        decided = self.graph(x).argmax(1)
        margin = logits.gather(2, decided[None, :, None].expand(len(logits), -1, 1)) - logits
        slack = 2 * units(x.dtype) * self._size("ibp").amax()
        if bool((margin.amin((0, 2)) < -slack)[radius > 0].any()):
            raise Found("unsound", f"a certified radius, norm {norm:g}, does not hold ({x.dtype})")


def reach(values: Tensor) -> Tensor:
    """Return the largest of values (P, N, members, R) on each member; a ball has the points of all its members."""
    best = values.amax(0)  # (N, members, R)
    return torch.cat([best.amax(1, keepdim=True), best[:, 1:]], 1)


def overlap_at(logits: Tensor, target: Tensor, rival: Tensor | None, objective: Logits) -> Tensor:
    """Compute the overlap of logits (P, N, members, classes) from its definition: (N, members, 1)."""
    aim = logits.gather(3, target[None, :, None, None].expand(*logits.shape[:3], 1))
    rivals = one_hot(target, logits.shape[3]).bool().logical_not() if rival is None else one_hot(rival, logits.shape[3])
    others = rivals.bool()[None, :, None]
    rest = logits.masked_fill(~others, -inf)
    match objective:
        case "margin":
            return reach(rest.amax(3, keepdim=True) - aim)
        case "class":
            return reach(-aim)
        case "apart":
            return reach(rest).amax(2, keepdim=True) + reach(-aim)
        case "mean":
            mean = logits.masked_fill(~others, 0.0).sum(3, keepdim=True) / others.sum(3, keepdim=True)
            return reach(mean - aim)


def precisions_agree(graph: Graph, wide: Family, narrow: Family) -> None:
    """Compare interval arithmetic in float32 with float64: it makes no choices, so that both must agree."""
    fine = graph.to(wide.x.device, torch.float32)
    _, expected = both_sides(fine.to(wide.x.device, torch.float64), wide, named("ibp"), "shared")
    with watched() as walks:
        _, got = both_sides(fine, narrow, named("ibp"), "shared")
    largest = max(float(sizes(w.knowledge.graph, w.knowledge.intervals)[graph.output].max()) for w in walks)
    off = float((got.double() - expected).abs().max())
    if off > units(torch.float32) * largest + floor_of(torch.float32):
        raise Found("disagreement", f"interval arithmetic in float32 is {off:.3g} from that in float64")
