"""One call for who knows none of this: a map and the strongest proof that fit into a time, and why these."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from proofmap.bounds import Exact
from proofmap.errors import BoundError, first_line
from proofmap.explainers.baselines import FirstOrder
from proofmap.explainers.explainer import Explainer, check_model
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.methods.blend import BlendEVA
from proofmap.explainers.methods.empirical import EmpiricalEVA
from proofmap.explainers.methods.eva import EVA
from proofmap.explainers.methods.smooth import SmoothEVA
from proofmap.explainers.tangent import slopes
from proofmap.graph import Graph, Network, as_graph
from proofmap.graph.classes import logits_of, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.opaque import opaque_node
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.runtime.progress_bar import Bar
from proofmap.settings import check_number
from proofmap.text.figure_titles import title
from proofmap.text.proven_ranks import ranks, searched, standing
from proofmap.text.wording import around, plural, radius, share
from proofmap.verify.radius import RadiusTrials, radius_until

if TYPE_CHECKING:
    from proofmap.plots.explanation_figure import Picture

__all__ = ["Answer", "explain"]

_WIDE = 0.35  # of the range of the values: the radius of a map
_BLENDED, _LEAN = 200, 50  # draws of a blend, and the fewest; each takes two gradients
_ATTACKS = 120  # gradients that its attacks take
_DRAWS, _FEW = 50, 8  # gradients of a mean, and the fewest that it is made of
_SAMPLED = 100  # points of a map without gradients
_MAP = 0.4  # of the time, for the map
_SEARCHED = 0.5  # of what is left, for the radius; more while none is proven
_EXACT = 0.8  # of what is then left, for closing the scores: the rest is for what surrounds it
_LEAST = 1.0  # seconds a sample, under which no scores are closed
_ROW = 0.01  # of a run of the network, for each hidden value that is bounded: a guess that errs on the slow side
_CELLS = 12  # a side, of the groups whose scores are proven


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """A map, the proof beside it where there is one, and what was done and why, sentence by sentence.

    >>> answer = pm.explain(model, x, seconds=0.2)
    >>> isinstance(answer, pm.explainers.Answer), len(answer.said)
    (True, 3)
    """

    map: Explanation
    proof: Explanation | None
    said: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.said)

    def plot(self) -> Picture:
        """The map under its verdict: a title says what is proven of each sample, a subtitle which map is shown.

        `proof.plot()` draws the scores of the proof.
        """
        from proofmap.plots.explanation_figure import Heading, draw  # and with it matplotlib, which takes a while

        kind = f"map: {self.map.method}, {around(self.map.settings)}; an estimate, not proven"
        return draw(self.map, headings=[Heading(self._verdict(k), kind) for k in range(len(self.map))])

    def _verdict(self, k: int) -> str:
        """What is proven of sample k."""
        if self.proof is not None and _radius_of(self.proof, k) > 0:
            return title(self.proof, k, None)
        reason = self.said[1] if self.proof is None else f"{_NOTHING}: no radius around this input could be proven"
        return f"class {int(self.map.target[k])} · {reason[0].lower()}{reason[1:]}"


def explain(
    model: Network,
    x: Samples,
    *,
    target: Target = None,
    groups: grouping.Groups = None,
    domain: tuple[float | Tensor, float | Tensor] | Literal["auto"] | None = "auto",
    seconds: float = 60.0,
    progress: bool = True,
) -> Answer:
    """Explain the decision at each sample of x (N, *shape): a map and the strongest proof that fit the time.

    seconds: for all samples together, as far as can be told before: a step that has begun is finished. groups: what is
    scored together; by default each pixel or column in the map, and 12 x 12 cells of a picture in the proof. domain:
    the range of the values, None for no limits; by default (0, 1) where all are within it. target: the class.

    >>> answer = pm.explain(model, x, seconds=0.2)
    >>> answer.map.attributions.shape
    torch.Size([2, 1, 28, 28])
    """
    begin = time.monotonic()
    check_model(model)
    check_number("got seconds", seconds, "a number above 0", lambda number: number > 0)
    x = as_samples(x, model).detach()
    limits, ranged = _limits(x, domain)
    Ball(0.0, domain=limits).at(x)  # refuses what is outside
    traced = as_graph(model, x)
    graph = traced.to(x.device, x.dtype)
    with torch.no_grad():
        aim = target_of(target, logits_of(graph, x))
    task = _Asked(traced, graph, x, aim, groups, limits, progress)
    found, mapped = task.map(_MAP * seconds)
    proof, proven = task.proof(begin + seconds)
    spent = f"It took {time.monotonic() - begin:.1f} of {seconds:g} seconds for {plural(len(x), 'sample')}. {ranged}"
    return Answer(found, proof, (mapped, proven, spent))


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is to be explained, all checked."""

    model: Graph  # as it was traced
    graph: Graph  # in the precision of x, on its device
    x: Tensor
    target: Tensor  # (N,)
    groups: grouping.Groups
    domain: tuple[Any, Any] | None
    progress: bool

    def map(self, seconds: float) -> tuple[Explanation, str]:
        """The map that fits, and why it was chosen."""
        ball = Ball(_WIDE * _width(self.x, self.domain), domain=self.domain)
        foreign = opaque_node(self.graph)
        if foreign is not None and not foreign[1].gradients:
            return self._sampled(ball, seconds)
        each = _clocked(lambda: slopes(self.graph, self.x[:1], self.target[:1], "class")) * len(self.x)
        blended = min(_BLENDED, 2 * int((seconds / each - _ATTACKS) / 4))
        if blended >= _LEAN and _has_ends(self.domain):
            return self._blend(blended)
        draws = min(_DRAWS, 2 * int(seconds / each / 2))
        if draws < _FEW:
            found = self._explained(FirstOrder(self.model, ball, groups=self.groups, progress=self.progress))
            return found, (
                "The map is FirstOrder's: what the network does to first order at the input, by one gradient a sample; "
                f"{_FEW} of them, the fewest that a mean is made of, do not fit the time. {_OPEN}"
            )
        made = SmoothEVA(self.model, ball, groups=self.groups, samples=draws, progress=self.progress)
        found = self._explained(made)
        fit = "" if draws == _DRAWS else f", as many as fit the time of the usual {_DRAWS}"
        told = standing(found, 0) if len(found) == 1 else ""
        return found, (
            f"The map is SmoothEVA's: what carries the evidence over a large ball, {around(found.settings)}, by the "
            f"mean of {draws} gradients{fit}; it needs gradients alone, and the network has them. "
            f"{_OPEN}{f' {told[:1].upper()}{told[1:]}.' if told else ''}"
        )

    def _blend(self, draws: int) -> tuple[Explanation, str]:
        ball = Ball(1.0, domain=self.domain, relative=True)
        made = BlendEVA(self.model, ball, groups=self.groups, samples=draws, progress=self.progress)
        fit = "" if draws == _BLENDED else f", as many draws as fit the time of the usual {_BLENDED}"
        return self._explained(made), (
            "The map is BlendEVA's: what carries the evidence over the whole range of the values, what adversaries use "
            f"and what noise destroys, by {2 * draws + _ATTACKS} gradients{fit}; of the maps that were compared on "
            f"pictures it is the first, or near the first, by most measures. {_OPEN}"
        )

    def _sampled(self, ball: Ball, seconds: float) -> tuple[Explanation, str]:
        groups = self._cells
        members = 1 + int(grouping.mask_of(groups, self.x).max()) + 1
        each = _clocked(lambda: self.graph(self.x[:1])) * len(self.x) * members
        samples = max(2, min(_SAMPLED, int(seconds / each)))
        found = self._explained(EmpiricalEVA(self.model, ball, groups=groups, samples=samples, progress=self.progress))
        return found, (
            f"The map is EmpiricalEVA's, from {samples} points of the ball {around(found.settings)} and the same with "
            f"each group put back: no gradients go through the network. {_OPEN}"
        )

    def proof(self, until: float) -> tuple[Explanation | None, str]:
        """The strongest proof that fits, and what it says or why there is none."""
        foreign = opaque_node(self.graph)
        if foreign is not None:
            return None, f"{_NOTHING}: {foreign[1].named()} has no rule, and what cannot be bounded cannot be proven."
        hidden = sum(node.size for node in self.graph.nodes[1:])
        run = _clocked(lambda: self.graph(self.x[:1]))
        if _ROW * hidden * run * len(self.x) > until - time.monotonic():
            return None, f"{_NOTHING}: bounds of {hidden} hidden values a sample do not fit the time."
        try:
            return self._proven(until)
        except BoundError as error:
            return None, f"{_NOTHING}: {first_line(error)}"

    def _proven(self, until: float) -> tuple[Explanation | None, str]:
        now = time.monotonic()
        with Bar(len(self.x), "radius", show=self.progress) as bar, bar.work(len(self.x)):
            middle = now + _SEARCHED * (until - now)
            tried = radius_until(self.graph, self.x, domain=self.domain, target=self.target, until=middle, end=until)
        eps = tried.proven
        if not bool((eps > 0).any()):
            return None, f"{_NOTHING}: {_unproven(tried)}."
        alone = _EXACT * (until - time.monotonic()) / len(self.x)
        method = Exact(seconds=alone) if alone >= _LEAST else None
        ball = Ball(eps, domain=self.domain)
        found = self._explained(EVA(self.model, ball, groups=self._cells, bounds=method, progress=self.progress))
        rounding = "" if found.overlap.rigorous else f" {NOT_COVERED.capitalize()}."
        how = "the scores of the proof are differences of bounds, as there was no time to close them"
        if method is not None:
            most = plural(ceil(alone), "second")
            how = f"a search of at most {most} a sample closed the scores of the proof as far as it came"
        return found, f"Proven: {_holds(found, eps)}; {how}.{rounding}"

    @property
    def _cells(self) -> grouping.Groups:
        """What is scored in a proof: more groups than these take long and are read by nobody."""
        shape = self.x.shape[1:]
        picture = len(shape) in (2, 3) and min(shape[-2:]) >= 2 * _CELLS
        if self.groups is not None:
            return self.groups
        return grouping.grid(_CELLS) if picture else grouping.pixels()

    def _explained(self, explainer: Explainer) -> Explanation:
        return explainer.explain(self.x, self.target)


_OPEN = "It is an estimate of importance; nothing of it is proven."
_NOTHING = "Nothing is proven"


def _radius_of(e: Explanation, k: int) -> float:
    """The radius of the ball of sample k."""
    eps: Any = e.settings["eps"]
    return float(eps[k] if isinstance(eps, list) else eps)


def _unproven(tried: RadiusTrials) -> str:
    """Why no radius was proven."""
    if not tried.count:
        return "the network does not give the explained class to any of the inputs"
    radii = plural(tried.count, "radius", "radii")
    return f"{radii} fitted the time, down to ε = {tried.smallest:.2g}, and none of them could be proven"


def _holds(e: Explanation, eps: Tensor) -> str:
    """What a proof says of its samples."""
    if len(e) > 1:
        proven, least = share(int((eps > 0).sum()), len(e), "sample"), radius(float(eps[eps > 0].min()))
        return f"the decision of {proven} holds up to a radius of its own, of {least} or more"
    sentence = ranks(e, 0).sentence if searched(e) else ""
    most = f", and {sentence}" if sentence else ""
    return f"no input of the ball {around(e.settings)} is classified otherwise{most}"


def _limits(x: Tensor, domain: tuple[Any, Any] | str | None) -> tuple[tuple[Any, Any] | None, str]:
    """The range of the values, and how it is known."""
    if domain is None or isinstance(domain, tuple):
        return domain, "The range of the values is the one that was given."
    if bool((x >= 0).all()) and bool((x <= 1).all()):
        return (
            0.0,
            1.0,
        ), "All values are within [0, 1], which was taken for their range; domain=(low, high) states another."
    return None, "Values are not all within [0, 1], so that no range was assumed; domain=(low, high) states one."


def _has_ends(domain: tuple[Any, Any] | None) -> bool:
    return domain is not None and all(bool(torch.as_tensor(end).isfinite().all()) for end in domain)


def _width(x: Tensor, domain: tuple[Any, Any] | None) -> float | Tensor:
    """How far values range: within the domain, as a number or a tensor that broadcasts to x, or among the samples."""
    if domain is None:
        return float(x.max() - x.min()) or 1.0
    width = torch.as_tensor(domain[1], dtype=torch.float64) - torch.as_tensor(domain[0], dtype=torch.float64)
    if not bool(width.isfinite().all()):
        return float(x.max() - x.min()) or 1.0
    return width.view(-1, *[1] * (x.ndim - 2)) if width.ndim == 1 and x.ndim > 2 else width


def _clocked(work: Callable[[], object]) -> float:
    """The seconds that it takes once it is warm."""
    work()
    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return max(time.perf_counter() - begin, 1e-6)
