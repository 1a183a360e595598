"""The choice of a proof for `pm.explain`: the largest radius that fits the time, then intervals of the scores."""

from __future__ import annotations

import time
from math import ceil

from torch import Tensor

from proofmap.bounds import Exact
from proofmap.errors import BoundError, first_line
from proofmap.explainers.automatic.request import ExplainRequest
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.methods.eva import EVA
from proofmap.explainers.statements.proven_ranks import ranks, searched
from proofmap.graph.opaque import opaque_node
from proofmap.inputs.ball import Ball
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.runtime.time_limit import time_limit
from proofmap.text.verdict import Verdict
from proofmap.text.verdict_wording import FIRST_WORDS, sentence
from proofmap.text.wording import around, capitalised, plural, radius, share
from proofmap.verify.timed_radius import LEAST_TRIAL_SECONDS, RadiusTrials, radius_until

_RADIUS_TIME_SHARE = 0.5  # share of the time after the map; more while no radius is proven
_EXACT_TIME_SHARE = 0.8  # share of the time after the radius for the search; the rest is overhead
_MIN_EXACT_SECONDS = 1.0  # per sample: with less time the scores are not searched
_RUNS_PER_HIDDEN_VALUE = 0.01  # time to bound one hidden value, in runs of the network: a high estimate
NOT_PROVEN = FIRST_WORDS["unproven"]


def proof_until(request: ExplainRequest, until: float) -> tuple[Explanation | None, str]:
    """Return the strongest proof that fits the time, and a sentence with its result or the reason for its lack."""
    foreign = opaque_node(request.graph)
    if foreign is not None:
        return (
            None,
            f"{NOT_PROVEN}: {foreign[1].missing_in_words()} {'have' if len(foreign[1].missing) > 1 else 'has'} no "
            "rule, so that the network cannot be bounded.",
        )
    hidden = sum(node.size for node in request.graph.nodes[1:])
    run = request.seconds_of(lambda: request.graph(request.x[:1]))
    if _RUNS_PER_HIDDEN_VALUE * hidden * run * len(request.x) > until - time.monotonic():
        return None, f"{NOT_PROVEN}: bounds of {hidden} hidden values per sample do not fit the time."
    try:
        return _proven(request, until)
    except TimeoutError:
        return None, f"{NOT_PROVEN}: bounds of the decision did not fit the time."
    except BoundError as error:
        return None, f"{NOT_PROVEN}: {first_line(error)}"


def _proven(request: ExplainRequest, until: float) -> tuple[Explanation | None, str]:
    now = time.monotonic()
    with ProgressBar(len(request.x), "radius", show=request.progress) as bar, bar.work(len(request.x)):
        middle = now + _RADIUS_TIME_SHARE * (until - now)
        tried = radius_until(
            request.graph, request.x, domain=request.domain, target=request.target, until=middle, end=until
        )
    eps = tried.proven
    if not bool((eps > 0).any()):
        return None, f"{NOT_PROVEN}: {_no_radius(tried)}."
    alone = _EXACT_TIME_SHARE * (until - time.monotonic()) / len(request.x)
    method = Exact(seconds=alone) if alone >= _MIN_EXACT_SECONDS else None
    ball = Ball(eps, domain=request.domain)
    explainer = EVA(request.model, ball, groups=request.samples.cells, bounds=method, progress=request.progress)
    try:
        with time_limit(max(until, time.monotonic() + LEAST_TRIAL_SECONDS)):
            found = request.explained(explainer)
    except TimeoutError:  # the radii are proven all the same
        said = _proven_radii(eps, f"ε = {radius(float(eps[0]))} in L∞", tried.rigorous)
        return None, f"{said}. The scores of the proof did not fit the time: give more seconds."
    how = "There was no time for a search: the scores of the proof are differences of upper bounds."
    if method is not None:
        limit = plural(ceil(alone), "second")
        how = f"A search of at most {limit} per sample made the intervals of the scores as narrow as it could."
    return found, f"{_result(found, eps)}. {how}"


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
