"""Sizes of sufficient sets by the order in which groups are freed, and how maps and sets agree."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from unittest import mock

import torch
from torch import Tensor

import proofmap as pm
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import PointNetwork

from .cases import Case, groups_of
from .measure import case_of, columns, sufficient, warm
from .rows import Row

_RERUNS = {"prices, no rerun": 0, "prices, 1 rerun": 1, "prices, 2 reruns": 2, "prices, 5 reruns": 5}
ORDERS = ("random", "one-pass scores", "saliency", "one rival", *_RERUNS)
MAPS = ("EVA", "EVA, one-pass", "EVA, exact", "smooth EVA", "path EVA", "blend EVA", "saliency", "random", "prices")
_EXACT_SECONDS = 20.0  # for all 50 overlaps of an image with 49 cells
_PATH_POINTS, _ATTACK_STEPS = 21, 25  # as for the prices


def order(task: Row) -> Row:
    """Free the pixels of one image in one order."""
    name, index = str(task["order"]), int(str(task["index"]))
    case = case_of(task)
    x = case.x[index][None]
    warm(task)
    begin = time.process_time()
    scores = None
    if name in ("random", "one-pass scores", "saliency"):
        scores = _scores({"one-pass scores": "EVA, one-pass"}.get(name, name), task, case, x)
    with _changed(name):
        found = sufficient(task, scores).explain(x)
    return {**columns(found, int(case.labels[index])), "cpu_s": time.process_time() - begin}


def school(task: Row) -> Row:
    """Free groups in the order of a map; the map's first groups are compared with the necessary ones."""
    name, index = str(task["map"]), int(str(task["index"]))
    case, wanted = case_of(task), int(str(task["top"]))
    x = case.x[index][None]
    warm(task)
    default = sufficient(task).explain(x)
    begin = time.process_time()
    if name == "prices":
        found, scores = default, None
    else:
        scores = _scores(name, task, case, x)
        found = sufficient(task, scores).explain(x)
    spent = time.process_time() - begin
    assert found.reason is not None
    assert default.reason is not None
    own = other = ""
    size = int(default.reason.size[0])
    if scores is not None and size:
        top = scores.flatten().argsort(descending=True)[: min(wanted, size)]
        own = f"{float(found.reason.necessary[0][top].double().mean()):.4f}"
        other = f"{float(default.reason.necessary[0][top].double().mean()):.4f}"
    share = {"top_necessary_own": own, "top_necessary_default": other}
    return {**columns(found, int(case.labels[index])), **share, "cpu_s": spent}


def _scores(name: str, task: Row, case: Case, x: Tensor) -> Tensor:
    """Return the scores (1, G) of a map."""
    ball, groups = case.ball(float(str(task["eps"]))), groups_of(str(task["groups"]))
    if name == "random":
        count = 784 if task["groups"] == "pixels" else int(str(task["groups"]).removeprefix("cells")) ** 2
        return torch.rand(1, count, generator=torch.Generator().manual_seed(int(str(task["index"]))))
    graph = case.on("cpu")
    if name == "saliency":
        point = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(graph(point).max(), point)
        mask = pm.groups.mask_of(groups, x).flatten()
        sums: Tensor = gradient.new_zeros(1, int(mask.max()) + 1).index_add_(1, mask, gradient.abs().flatten()[None])
        return sums
    makers = {"smooth EVA": pm.SmoothEVA, "path EVA": pm.PathEVA, "blend EVA": pm.BlendEVA}
    if name in makers:
        scores: Tensor = makers[name](graph, ball, groups=groups, progress=False).explain(x).scores
        return scores
    eva = pm.EVA(graph, ball, groups=groups, progress=False)
    if name == "EVA, one-pass":
        eva = replace(eva, sharing="one-pass")
    if name == "EVA, exact":
        eva = replace(eva, bounds=pm.bounds.Exact(seconds=_EXACT_SECONDS))
    return eva.explain(x).scores


@contextmanager
def _changed(name: str) -> Iterator[None]:
    """Change the order of `Sufficient` in the block."""
    module = import_module("proofmap.reasons.sufficient_set")
    with mock.patch.object(module, "_RERUNS", _RERUNS.get(name, 0)):
        if name == "one rival":
            with mock.patch.object(module, "path_prices", _one_rival):
                yield
        else:
            yield


def _one_rival(network: PointNetwork, balls: FreeBalls, limit: float) -> Tensor:
    """Return the loads of the gradient from x to one attack, of the rival that the attack reached."""
    whole = balls.balls(torch.ones(balls.groups, dtype=torch.bool))
    _, end = network.attack(whole, network.start, _ATTACK_STEPS, torch.inf)
    every = torch.arange(network.forms)
    row = network.gradient(end.expand(network.forms, -1), every)[0].argmax()
    share = torch.linspace(0, 1, _PATH_POINTS, dtype=end.dtype)[:, None]
    _, form = network.gradient(share * end, row.expand(_PATH_POINTS))
    return balls.loads(form.mean(0, keepdim=True))[0]
