"""Methods side by side: every method explains the same samples, every metric judges them with the same draws."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.bench.table import Column, Table, Values, tabulate
from proofmap.errors import InputError
from proofmap.explain import Explainer
from proofmap.explain.adapt import Method, as_attributor
from proofmap.explain.attributor import Attributor
from proofmap.explain.explanation import JSON
from proofmap.graph import Graph, as_graph
from proofmap.graph.samples import as_samples
from proofmap.groups import Groups
from proofmap.metrics import METRICS, Metric, Stability, Tightness
from proofmap.metrics.metric import classes_of
from proofmap.overlap import decides

__all__ = ["column", "columns", "compare", "judge"]

_LABELS = {
    "deletion": "Deletion",
    "insertion": "Insertion",
    "mu-fidelity": "µFidelity",
    "robustness-sr": "Robustness-Sr",
    "stability": "Stability",
    "tightness": "Tightness",
}


def compare(
    model: nn.Module | Graph,
    x: Samples,
    methods: Sequence[str] | Mapping[str, Method],
    metrics: Sequence[str | Metric[Any]] = ("deletion", "insertion"),
    *,
    target: Target = None,
    ball: Ball | None = None,
    groups: Groups = None,
    seed: int = 0,
    progress: bool = True,
) -> Table:
    """A table of methods and metrics on samples x (N, *shape): means with 95 % intervals, and the values themselves.

    methods: names such as "eva" and "rise", or {label: method} with anything that `explain.as_attributor` takes.
    metrics: names, or metrics with settings of their own; those of one name are told apart by presets, or settings.
    target: the explained class; by default the predicted one. ball: for methods that look for adversaries; by default
    each sample's proven radius, in the domain that x spans, from its smallest value to its largest. seed: of the
    intervals.
    """
    x = as_samples(x, model)
    methods = [methods] if isinstance(methods, str) else methods
    metrics = [metrics] if isinstance(metrics, str) else metrics
    named = dict(methods) if isinstance(methods, Mapping) else {name: name for name in methods}
    if not named or not metrics:
        raise InputError("got no method or no metric, expected at least one of each, such as ['eva'] and ['deletion']")
    judges = [_metric(metric) for metric in metrics]
    heads = columns(judges)
    graph = as_graph(model, x).to(x.device, x.dtype)
    around = _spanned(x) if ball is None else ball
    attributors = {
        label: as_attributor(method, graph, ball=around, groups=groups)
        if isinstance(method, str)
        else as_attributor(method, model)
        for label, method in named.items()
    }
    with torch.no_grad():
        aim = classes_of(target, graph(x).flatten(1))
    values: dict[str, dict[str, Values]] = {}
    seconds: dict[str, float | None] = {}
    bar = tqdm(total=len(attributors) * (1 + len(judges)), desc="compare", delay=1, disable=not progress)
    with bar:
        for label, attributor in attributors.items():
            start = time.perf_counter()
            maps = attributor.attribute(x, target=aim)
            took = (time.perf_counter() - start) / len(x)
            seconds[label] = None if isinstance(named[label], Tensor) else took  # a map that was there says nothing
            bar.update()
            values[label] = {}
            for head, metric in zip(heads, judges, strict=True):
                found = judge(metric, graph, x, aim, attributor, maps)
                if found is not None:
                    values[label][head.name] = found
                bar.update()
    return tabulate("", heads, values, seconds, seed=seed)


def judge(
    metric: Metric[Any], model: nn.Module | Graph, x: Tensor, target: Tensor, attributor: Attributor, maps: Tensor
) -> Values | None:
    """The metric's value of each sample; None where the method has nothing that the metric judges."""
    subject: Any = maps
    if isinstance(metric, Stability):
        subject = partial(_attribute, attributor)
    elif isinstance(metric, Tightness):
        if not isinstance(attributor, Explainer) or not _proves(attributor):
            return None
        subject = attributor.explain(x, target).overlap
    found: Values = metric(model, x, target, subject).double().cpu().numpy().astype(np.float64)
    return found


def _attribute(attributor: Attributor, x: Tensor, target: Tensor) -> Tensor:
    return attributor.attribute(x, target=target)


def _proves(explainer: Explainer) -> bool:
    """Whether its overlap is a certified bound of AO: over all other classes, by the margin to them."""
    over_all = not explainer.signed and decides(getattr(explainer, "objective", "margin"))
    return explainer.guarantee == "certified" and over_all


def column(metric: Metric[Any] | type[Metric[Any]]) -> Column:
    """What the table says of a metric."""
    return Column(metric.name, _LABELS.get(metric.name, metric.name), metric.higher_is_better)


def columns(metrics: Sequence[Metric[Any]]) -> list[Column]:
    """A column for each metric. Those of one name are told apart by their presets, or by all settings that differ."""
    found = []
    for metric in metrics:
        own, same = metric.settings(), [other.settings() for other in metrics if other.name == metric.name]
        if same.count(own) > 1:
            raise InputError(f"got the metric {metric.name!r} twice with the same settings, expected it once")
        head, more = column(metric), f" ({_apart(own, same)})" if len(same) > 1 else ""
        found.append(Column(head.name + more, head.label + more, head.higher, own))
    return found


def _apart(own: Mapping[str, JSON], same: Sequence[Mapping[str, JSON]]) -> str:
    """What one of several settings has that the others have not."""
    if len({str(settings.get("preset")) for settings in same}) == len(same):
        return str(own.get("preset"))
    names = dict.fromkeys(name for settings in same for name in settings)
    differ = [name for name in names if any(settings.get(name) != own.get(name) for settings in same)]
    return ", ".join(f"{name} {own.get(name)}" for name in differ)


def _spanned(x: Tensor) -> Ball:
    """The ball of each sample's proven radius, inside the values that x has."""
    low, high = float(x.min()), float(x.max())
    return Ball("auto", domain=(low, high) if low < high else None)


def _metric(metric: str | Metric[Any]) -> Metric[Any]:
    if isinstance(metric, Metric):
        return metric
    if metric not in METRICS:
        raise InputError(f"got the metric {metric!r}, expected one of {', '.join(METRICS)}")
    kind = METRICS[metric]
    if kind in (Stability, Tightness):
        raise InputError(
            f"got the metric {metric!r} by name, expected pm.metrics.{kind.__name__}(...): it has no default"
        )
    return kind()
