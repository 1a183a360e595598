"""`pm.explain`: choose a map and the strongest proof that fit a time budget, and report the reasons."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proofmap.bounds import Exact
from proofmap.errors import BoundError, InputError, ProofmapError, first_line
from proofmap.explainers.baselines import FirstOrder
from proofmap.explainers.explainer import Explainer, check_model, record_of_inputs
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.methods.blend import BlendEVA
from proofmap.explainers.methods.empirical import EmpiricalEVA
from proofmap.explainers.methods.eva import EVA
from proofmap.explainers.methods.smooth import SmoothEVA
from proofmap.explainers.objective_gradients import value_and_gradient
from proofmap.explainers.statements.explained_inputs import with_inputs
from proofmap.explainers.statements.proven_ranks import ranks, searched, standing
from proofmap.graph import Graph, Network, as_graph
from proofmap.graph.classes import logits_of, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import join_inputs, of_one_input
from proofmap.graph.opaque import opaque_node
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import FIXED, Domains, GroupsOfInputs, is_several, join_groups, of_parts
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.runtime.time_limit import time_limit
from proofmap.settings import check_number
from proofmap.text.notebook_html import picture_html
from proofmap.text.verdict import Verdict
from proofmap.text.verdict_wording import FIRST_WORDS, sentence
from proofmap.text.wording import around, capitalised, plural, radius, share
from proofmap.verify.radius import LEAST_TRIAL_SECONDS, RadiusTrials, radius_until

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from proofmap.plots.figure_look import Number
    from proofmap.plots.figure_page import Picture

_MAP_RADIUS_SHARE = 0.35  # radius of a map's ball, as a share of the range of the values
_BLEND_DRAWS, _MIN_BLEND_DRAWS = 200, 50  # random points of BlendEVA: usual and smallest number; two gradients each
_BLEND_ATTACK_GRADIENTS = 120  # gradients that the attacks of BlendEVA take
_SMOOTH_DRAWS, _MIN_SMOOTH_DRAWS = 50, 8  # gradients of SmoothEVA: the usual number, the smallest
_MAX_SAMPLED_POINTS = 100  # points of EmpiricalEVA, for a network without gradients
_MAP_TIME_SHARE = 0.4  # share of the time budget for the map
_RADIUS_TIME_SHARE = 0.5  # share of the time after the map; more while no radius is proven
_EXACT_TIME_SHARE = 0.8  # share of the time after the radius for the search; the rest is overhead
_MIN_EXACT_SECONDS = 1.0  # per sample: with less time the scores are not searched
_RUNS_PER_HIDDEN_VALUE = 0.01  # time to bound one hidden value, in runs of the network: a high estimate
_PROOF_CELLS = 12  # cells along each side of an image, the groups whose scores are proven


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The answer of `pm.explain`: a map, a proof if there is one, and sentences that say what was done and why.

    map: an estimate of importance, not proven. proof: bounds of the decision over a ball, or None. said: the sentences.

    >>> answer = pm.explain(model, x, seconds=0.2)
    >>> isinstance(answer, pm.explainers.Answer), len(answer.said)
    (True, 3)
    """

    map: Explanation
    proof: Explanation | None
    said: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Answer, ...]:
        """The answer for each of several inputs, to plot one picture of each; the answer itself for one input."""
        maps = self.map.inputs
        if len(maps) == 1 and not self.map.input_roles:
            return (self,)
        proofs = (None,) * len(maps) if self.proof is None else self.proof.inputs
        return tuple(replace(self, map=map_, proof=proof) for map_, proof in zip(maps, proofs, strict=True))

    def __repr__(self) -> str:
        return "\n".join(self.said)

    def plot(
        self,
        class_names: Sequence[str] | None = None,
        *,
        tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | Sequence[str] | None = None,
        panels: str | Sequence[str] | None = None,
        mean: Number | None = None,
        std: Number | None = None,
    ) -> Picture:
        """Draw the map. Each sample has a title with the verdict of the proof and a subtitle that names the map.

        The options are those of `Explanation.plot`. `proof.plot()` draws the scores of the proof.
        """
        from proofmap.plots.explanation_figure import draw  # imports matplotlib, which takes a while
        from proofmap.plots.figure_look import Look
        from proofmap.plots.figure_page import Heading

        kind = f"Map: {self.map.method}, {around(self.map.settings)}. The map is an estimate, not a proof."
        headings = [Heading(self._verdict(k, class_names), kind) for k in range(len(self.map))]
        look = Look(ax, cmap, title, panels, mean, std)
        return draw(self.map, class_names=class_names, headings=headings, tokens=tokens, look=look)

    @cached_property
    def _png(self) -> bytes | None:
        """The figure for notebooks; None if it cannot be drawn, and then the sentences are shown alone."""
        try:
            return self.plot()._repr_png_()
        except ProofmapError:
            return None

    def _repr_html_(self) -> str:
        return picture_html(self._png, self.said)

    def _verdict(self, k: int, names: Sequence[str] | None) -> str:
        """Return the title of sample k: what is proven about it."""
        if self.proof is not None and _radius_of(self.proof, k) > 0:
            from proofmap.plots.figure_titles import title  # imports this package

            return title(self.proof, k, names)
        reason = self.said[1] if self.proof is None else f"{_NOT_PROVEN}: no radius of this input could be proven."
        target = int(self.map.target[k])
        return f"{f'class {target}' if names is None else names[target]} · {reason}"


def explain(
    model: Network,
    x: Inputs,
    *,
    target: Target = None,
    groups: GroupsOfInputs = None,
    domain: Domains = "auto",
    seconds: float = 60.0,
    progress: bool = True,
) -> Answer:
    """Explain the decision at each sample of x (N, *shape): a map and the strongest proof that fit the time.

    Args:
        model: The network.
        x: The samples; for a model of several inputs a tuple in the order of its arguments, or a dictionary by keyword.
        target: The class to explain, by default the predicted one.
        groups: The variables that get one score together. By default each pixel or column in the map, and 12 x 12
            cells of an image in the proof. For several inputs a tuple with an entry for each, None for the default.
        domain: The range (low, high) of the values; None for no limits. By default (0, 1) if all values are within it.
            For several inputs a tuple with an entry for each: a range, None, "auto", or "fixed" for an input that does
            not move. Inputs of integers are always fixed.
        seconds: The time for all samples together. Bounds that do not fit the time are given up at the next layer, so
            that the answer may take longer by one such step. At least a second is spent on a proof. Reading the model
            is not limited.
        progress: Show progress bars.

    Returns:
        The map, the proof if there is one, and sentences that say what was done and why.

    >>> answer = pm.explain(model, x, seconds=0.2)
    >>> answer.map.attributions.shape
    torch.Size([2, 1, 28, 28])
    """
    begin = time.monotonic()
    check_model(model)
    check_number("got seconds", seconds, "a number above 0", lambda number: number > 0)
    asked = _several(model, x, groups, domain) if is_several(x) else _one(model, x, groups, domain)
    x, range_sentence = asked.x, asked.range_sentence
    Ball(0.0, domain=asked.domain).at(x)  # raises InputError for values outside the domain
    traced = as_graph(asked.model, x)
    graph = traced.to(x.device, x.dtype)
    with torch.no_grad():
        aim = target_of(target, logits_of(graph, x))
    request = _ExplainRequest(traced, graph, x, aim, asked, progress)
    found, map_sentence = request.map(_MAP_TIME_SHARE * seconds, begin + seconds)
    proof, proof_sentence = request.proof(begin + seconds)
    spent = f"This took {time.monotonic() - begin:.1f} of {seconds:g} seconds for {plural(len(x), 'sample')}."
    return Answer(found, proof, (map_sentence, proof_sentence, f"{spent} {range_sentence}"))


@dataclass(frozen=True, eq=False)
class _Question:
    """The samples of a call of `explain`, with their groups and ranges. Several inputs are joined."""

    model: Network
    x: Tensor
    groups: grouping.Groups  # the map scores these
    cells: grouping.Groups  # the proof scores these
    domain: tuple[Any, Any] | None
    width: float | Tensor  # high - low, or the range of the values without limits
    range_sentence: str
    record: list[dict[str, Any]] | None = None  # several inputs


def _one(model: Network, x: Inputs, groups: Any, domain: Any) -> _Question:
    """Return the question about one input."""
    x = as_samples(x, model).detach()
    _, groups = of_one_input(None, groups)
    limits, said = _limits(x, domain)
    cells = _cells(x) if groups is None else groups
    return _Question(model, x, groups, cells, limits, _width(x, limits), said)


def _several(model: Network, x: Inputs, groups: Any, domain: Any) -> _Question:
    """Return the question about the joined vectors of several inputs."""
    joined = join_inputs(model, x)
    if joined.is_one:
        return _one(joined.model, joined.x, joined.mask(groups, None), domain)
    if domain is None or isinstance(domain, str):
        domain = tuple(domain if part.constant is None else None for part in joined.parts)
    floats = [part for part in joined.parts if part.constant is None]
    given = of_parts(domain, joined.parts, "domains")
    ranges, widths, said = [], [], []
    for part, limits, value in zip(floats, given, joined.values, strict=True):
        fixed = isinstance(limits, str) and limits == FIXED
        known, words = (limits, FIXED) if fixed else _known_limits(value, limits)
        width = torch.as_tensor(0.0 if fixed else _width(value, known), device=value.device)
        ranges.append(known)
        widths.append(width.to(value.dtype).expand(1, *value.shape[1:]).flatten(1))
        said.append(f"{part.name!r} {words}")
    moves = [not isinstance(known, str) for known in ranges]
    each = iter(ranges)
    ball = joined.unit_ball(inf, tuple(next(each) if part.constant is None else None for part in joined.parts))
    own = (Ball("auto", domain=known) if moving else None for known, moving in zip(ranges, moves, strict=True))
    balls = tuple(next(own) if part.constant is None else None for part in joined.parts)
    return _Question(
        joined.model,
        joined.x,
        join_groups(groups, moves, joined.values, joined.parts),
        join_groups(groups, moves, joined.values, joined.parts, _cells),
        ball.domain,
        torch.cat(widths, dim=1),
        f"Ranges of the inputs: {', '.join(said)}; set others with domain=(...), one entry for each input.",
        record_of_inputs(joined, balls),
    )


def _known_limits(x: Tensor, limits: Any) -> tuple[Any, str]:
    """Return the range of one of several inputs, and words for it."""
    if not isinstance(limits, str):
        return limits, "no limits" if limits is None else "the given range"
    if limits != "auto":
        raise InputError(f"got the domain {limits!r} of an input, expected (low, high), None, 'auto', or 'fixed'")
    if _in_unit_range(x):
        return (0.0, 1.0), "[0, 1], in which all its values are"
    return None, "no limits, as some values are outside [0, 1]"


@dataclass(frozen=True, eq=False)
class _ExplainRequest:
    """The checked arguments of `explain`."""

    model: Graph  # as traced
    graph: Graph  # in the precision of x, on its device
    x: Tensor
    target: Tensor  # (N,)
    asked: _Question
    progress: bool

    @property
    def groups(self) -> grouping.Groups:
        """The groups of the map."""
        return self.asked.groups

    @property
    def domain(self) -> tuple[Any, Any] | None:
        """The range of the values."""
        return self.asked.domain

    def map(self, seconds: float, until: float) -> tuple[Explanation, str]:
        """Return the best map that fits the time, and a sentence with the reason for it.

        until: a time of `time.monotonic`. A map that is not ready then is replaced by one gradient per sample.
        """
        ball = Ball(_MAP_RADIUS_SHARE * self.asked.width, domain=self.domain)
        foreign = opaque_node(self.graph)
        if foreign is not None and not foreign[1].gradients:
            return self._sampled(ball, seconds)
        try:
            with time_limit(until):
                return self._mean_map(ball, seconds)
        except TimeoutError:
            return self._one_gradient(ball)

    def _mean_map(self, ball: Ball, seconds: float) -> tuple[Explanation, str]:
        """Return the map from as many gradients as fit the time."""
        each = _seconds_of(lambda: value_and_gradient(self.graph, self.x[:1], self.target[:1], "class")) * len(self.x)
        blended = min(_BLEND_DRAWS, 2 * int((seconds / each - _BLEND_ATTACK_GRADIENTS) / 4))
        if blended >= _MIN_BLEND_DRAWS and _is_finite(self.domain):
            return self._blend(blended)
        draws = min(_SMOOTH_DRAWS, 2 * int(seconds / each / 2))
        if draws < _MIN_SMOOTH_DRAWS:
            return self._one_gradient(ball)
        made = SmoothEVA(self.model, ball, groups=self.groups, samples=draws, progress=self.progress)
        found = self._explained(made)
        fit = "" if draws == _SMOOTH_DRAWS else f" (usually {_SMOOTH_DRAWS}; the time allows no more)"
        ties = standing(found, 0) if len(found) == 1 else ""
        ties = f" {capitalised(ties)}." if ties else ""
        return found, (
            f"Map: SmoothEVA, the mean of {draws} gradients{fit} over a large ball, {around(found.settings)}. It shows "
            f"which groups carry the evidence for the class. {_ESTIMATE}{ties}"
        )

    def _one_gradient(self, ball: Ball) -> tuple[Explanation, str]:
        found = self._explained(FirstOrder(self.model, ball, groups=self.groups, progress=self.progress))
        return found, (
            "Map: FirstOrder, from one gradient per sample. It shows which groups change the output most, to first "
            f"order at the input. The time does not allow the {_MIN_SMOOTH_DRAWS} gradients that a mean needs. "
            f"{_ESTIMATE}"
        )

    def _blend(self, draws: int) -> tuple[Explanation, str]:
        ball = Ball(1.0, domain=self.domain, relative=True)
        made = BlendEVA(self.model, ball, groups=self.groups, samples=draws, progress=self.progress)
        fit = "" if draws == _BLEND_DRAWS else f" ({draws} random points instead of {_BLEND_DRAWS}, to fit the time)"
        return self._explained(made), (
            f"Map: BlendEVA, from {2 * draws + _BLEND_ATTACK_GRADIENTS} gradients{fit}. It mixes three parts over the "
            "whole range of the values: evidence for the class, changes that attacks make, and changes that noise "
            f"makes. In our comparison on images it is first, or close to first, by most metrics. {_ESTIMATE}"
        )

    def _sampled(self, ball: Ball, seconds: float) -> tuple[Explanation, str]:
        groups = self.asked.cells
        members = 1 + int(grouping.mask_of(groups, self.x).max()) + 1
        each = _seconds_of(lambda: self.graph(self.x[:1])) * len(self.x) * members
        samples = max(2, min(_MAX_SAMPLED_POINTS, int(seconds / each)))
        found = self._explained(EmpiricalEVA(self.model, ball, groups=groups, samples=samples, progress=self.progress))
        return found, (
            f"Map: EmpiricalEVA, from {samples} random points of the ball ({around(found.settings)}), each repeated "
            "with every single group unchanged. It needs no gradients, which this network does not have. "
            f"{_ESTIMATE}"
        )

    def proof(self, until: float) -> tuple[Explanation | None, str]:
        """Return the strongest proof that fits the time, and a sentence with its result or the reason for its lack."""
        foreign = opaque_node(self.graph)
        if foreign is not None:
            return (
                None,
                f"{_NOT_PROVEN}: {foreign[1].missing_in_words()} {'have' if len(foreign[1].missing) > 1 else 'has'} no "
                "rule, so that the network cannot be bounded.",
            )
        hidden = sum(node.size for node in self.graph.nodes[1:])
        run = _seconds_of(lambda: self.graph(self.x[:1]))
        if _RUNS_PER_HIDDEN_VALUE * hidden * run * len(self.x) > until - time.monotonic():
            return None, f"{_NOT_PROVEN}: bounds of {hidden} hidden values per sample do not fit the time."
        try:
            return self._proven(until)
        except TimeoutError:
            return None, f"{_NOT_PROVEN}: bounds of the decision did not fit the time."
        except BoundError as error:
            return None, f"{_NOT_PROVEN}: {first_line(error)}"

    def _proven(self, until: float) -> tuple[Explanation | None, str]:
        now = time.monotonic()
        with ProgressBar(len(self.x), "radius", show=self.progress) as bar, bar.work(len(self.x)):
            middle = now + _RADIUS_TIME_SHARE * (until - now)
            tried = radius_until(self.graph, self.x, domain=self.domain, target=self.target, until=middle, end=until)
        eps = tried.proven
        if not bool((eps > 0).any()):
            return None, f"{_NOT_PROVEN}: {_no_radius(tried)}."
        alone = _EXACT_TIME_SHARE * (until - time.monotonic()) / len(self.x)
        method = Exact(seconds=alone) if alone >= _MIN_EXACT_SECONDS else None
        ball = Ball(eps, domain=self.domain)
        explainer = EVA(self.model, ball, groups=self.asked.cells, bounds=method, progress=self.progress)
        try:
            with time_limit(max(until, time.monotonic() + LEAST_TRIAL_SECONDS)):
                found = self._explained(explainer)
        except TimeoutError:  # the radii are proven all the same
            said = _proven_radii(eps, f"ε = {radius(float(eps[0]))} in L∞", tried.rigorous)
            return None, f"{said}. The scores of the proof did not fit the time: give more seconds."
        how = "There was no time for a search: the scores of the proof are differences of upper bounds."
        if method is not None:
            limit = plural(ceil(alone), "second")
            how = f"A search of at most {limit} per sample made the intervals of the scores as narrow as it could."
        return found, f"{_result(found, eps)}. {how}"

    def _explained(self, explainer: Explainer) -> Explanation:
        return with_inputs(explainer.explain(self.x, self.target), self.asked.record)


def _cells(x: Tensor) -> grouping.Groups:
    """Return the groups of a proof: cells of an image, as the scores of all pixels take long and are hard to read."""
    shape = x.shape[1:]
    image = len(shape) in (2, 3) and min(shape[-2:]) >= 2 * _PROOF_CELLS
    return grouping.grid(_PROOF_CELLS) if image else grouping.pixels()


_ESTIMATE = "This map is an estimate of importance, not a proof."
_NOT_PROVEN = FIRST_WORDS["unproven"]


def _radius_of(e: Explanation, k: int) -> float:
    """Return the radius of the ball of sample k."""
    eps: Any = e.settings["eps"]
    return float(eps[k] if isinstance(eps, list) else eps)


def _no_radius(tried: RadiusTrials) -> str:
    """Return the reason why no radius was proven."""
    if not tried.count:
        return "the network does not predict the explained class for any of the inputs"
    radii = plural(tried.count, "radius was tried", "radii were tried")
    return f"{radii}, the smallest ε = {tried.smallest:.2g}, and no bound was tight enough"


def _result(e: Explanation, eps: Tensor) -> str:
    """Return the result of a proof: the verdict on one sample, or the proven samples and their smallest radius."""
    said = _proven_radii(eps, around(e.settings), e.overlap.rigorous)
    most = ranks(e, 0).sentence if len(e) == 1 and searched(e) else ""
    return said + (f"; {most}" if most else "")


def _proven_radii(eps: Tensor, ball: str, rigorous: bool) -> str:
    """Return the sentence about proven radii (N,); `ball` describes the ball of a single sample."""
    proven = Verdict("decision", "proven")
    if len(eps) == 1:
        return capitalised(sentence(proven, f"the ball ({ball})", rigorous=rigorous))
    many, least = share(int((eps > 0).sum()), len(eps), "sample"), radius(float(eps[eps > 0].min()))
    said = sentence(proven, "the sample's ball", rigorous=rigorous)
    return f"{capitalised(said)}, for {many}; each has its own radius, {least} or more"


def _limits(x: Tensor, domain: tuple[Any, Any] | str | None) -> tuple[tuple[Any, Any] | None, str]:
    """Return the range of the values, and a sentence with its source."""
    if domain is None or isinstance(domain, tuple):
        return domain, "The range of the values was given."
    if isinstance(domain, str) and domain != "auto":
        raise InputError(f"got domain={domain!r}, expected (low, high), None for no limits, or 'auto'")
    if _in_unit_range(x):
        unit = (0.0, 1.0)
        return unit, "All values are in [0, 1], which is taken as their range; set another with domain=(low, high)."
    return None, "Some values are outside [0, 1], so no range is assumed; set one with domain=(low, high)."


def _in_unit_range(x: Tensor) -> bool:
    return bool((x >= 0).all()) and bool((x <= 1).all())


def _is_finite(domain: tuple[Any, Any] | None) -> bool:
    """Return whether the domain has two finite endpoints."""
    return domain is not None and all(bool(torch.as_tensor(end).isfinite().all()) for end in domain)


def _width(x: Tensor, domain: tuple[Any, Any] | None) -> float | Tensor:
    """Return the width of the domain, as a number or a tensor that broadcasts to x; else the range of the samples."""
    if domain is None:
        return float(x.max() - x.min()) or 1.0
    width = torch.as_tensor(domain[1], dtype=torch.float64) - torch.as_tensor(domain[0], dtype=torch.float64)
    if not bool(width.isfinite().all()):
        return float(x.max() - x.min()) or 1.0
    return width.view(-1, *[1] * (x.ndim - 2)) if width.ndim == 1 and x.ndim > 2 else width


def _seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a second call takes, after one call to warm up."""
    work()
    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return max(time.perf_counter() - begin, 1e-6)
