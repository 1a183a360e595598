"""`pm.explain`: choose a map and the strongest proof that fit a time budget, and report the reasons."""

from __future__ import annotations

import time

import torch

from proofmap.explainers.automatic.answer import Answer
from proofmap.explainers.automatic.map_choice import map_within
from proofmap.explainers.automatic.proof_choice import proof_until
from proofmap.explainers.automatic.request import ExplainRequest, one_input, several_inputs
from proofmap.explainers.explainer import check_model
from proofmap.graph import Network, as_graph
from proofmap.graph.classes import logits_of, target_of
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import Domains, GroupsOfInputs, is_several
from proofmap.settings import check_number
from proofmap.text.wording import plural

_MAP_TIME_SHARE = 0.4  # share of the time budget for the map


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
    asked = several_inputs(model, x, groups, domain) if is_several(x) else one_input(model, x, groups, domain)
    x, range_sentence = asked.x, asked.range_sentence
    Ball(0.0, domain=asked.domain).at(x)  # raises InputError for values outside the domain
    traced = as_graph(asked.model, x)
    graph = traced.to(x.device, x.dtype)
    with torch.no_grad():
        aim = target_of(target, logits_of(graph, x))
    request = ExplainRequest(traced, graph, x, aim, asked, progress)
    found, map_sentence = map_within(request, _MAP_TIME_SHARE * seconds, begin + seconds)
    proof, proof_sentence = proof_until(request, begin + seconds)
    spent = f"This took {time.monotonic() - begin:.1f} of {seconds:g} seconds for {plural(len(x), 'sample')}."
    return Answer(found, proof, (map_sentence, proof_sentence, f"{spent} {range_sentence}"))
