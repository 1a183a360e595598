"""`pm.compare`: evaluate methods by metrics on the same samples with the same random draws."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from time import perf_counter
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from proofmap.bench.marks import Values
from proofmap.bench.statistics import Column, Table, tabulate
from proofmap.errors import InputError
from proofmap.explainers import Explainer
from proofmap.explainers.attribution.adapt import AnyMethod, as_attributor, name_of_method
from proofmap.explainers.attribution.attributor import Attributor
from proofmap.explainers.baselines import Baseline
from proofmap.explainers.batching import ball_of_samples
from proofmap.explainers.explained_ball import default_ball
from proofmap.explainers.methods.contrastive import Contrastive
from proofmap.explainers.methods.set_explainer import SetExplainer
from proofmap.explainers.methods.sufficient import Sufficient
from proofmap.graph import Graph, as_graph
from proofmap.graph.classes import require_classes, target_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import JoinedInputs, join_inputs, of_one_input
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups
from proofmap.inputs.several_inputs import Balls, GroupsOfInputs, is_several
from proofmap.metrics import METRICS, FunctionMetric, Metric
from proofmap.metrics.function_metric import MetricFunction
from proofmap.metrics.randomisation import Remade
from proofmap.metrics.validation import check_groups
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from proofmap.registry import EXPLAINER_ENTRIES
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.settings import check_count, check_flag
from proofmap.storage.records import JSON
from proofmap.verify.objective import decides

AnyMetric: TypeAlias = str | Metric[Any] | MetricFunction

_WITH_BALL = frozenset(name for name, entry in EXPLAINER_ENTRIES.items() if entry.ball)

_MISSING_SUBJECTS = {  # why a metric applies to none of the methods
    "method": "it explains networks with other weights, and a function, a Captum object or stored maps belong to one "
    "network: add a name such as 'saliency', or an explainer such as pm.EVA(model, ball)",
    "overlap": "it measures the proven overlap of a ball: add 'eva' or pm.EVA(model, ball)",
    "reason": "it measures sufficient sets: add 'sufficient' or pm.Sufficient(model, ball)",
    "contrast": "it measures contrastive sets: add 'contrastive' or pm.Contrastive(model, ball)",
}


def compare(
    model: nn.Module | Graph,
    x: Inputs,
    methods: AnyMethod | Sequence[AnyMethod] | Mapping[str, AnyMethod],
    metrics: AnyMetric | Sequence[AnyMetric] = ("deletion", "insertion"),
    *,
    target: Target = None,
    ball: Balls | None = None,
    groups: GroupsOfInputs = None,
    seed: int = 0,
    progress: bool = True,
) -> Table:
    """Compare methods by metrics on samples x (N, *shape). Return a table with means, 95 % intervals and all values.

    x: samples, or a DataLoader with batches of x or (x, y), in a fixed order. All batches are read before the work. For
    a model of several inputs a tuple or a dictionary; then `ball` and `groups` are tuples, and metrics are about the
    joined vector of the inputs, in which each entry is a variable.
    methods: names such as "eva" and "rise", or any object that `pm.explainers.as_attributor` accepts, such as Captum's
    attributions, which get the name of their class as a label. {label: method} sets other labels.
    metrics: names, metric objects, or functions (model, x, target, attributions) -> one number per sample, of which
    higher ones are better (`pm.metrics.FunctionMetric` sets this). Metrics with equal names are labelled by their
    presets or settings. Metrics by name take the radius and the domain of the ball.
    target: the explained class; by default the predicted class.
    ball: the ball of methods with a ball; by default each sample's proven radius, in the domain from the smallest to
    the largest value of x.
    seed: the seed of the whole comparison: of the methods and metrics that are given by name, and of the bootstrap
    intervals. Objects keep their own seeds.

    The marks of the table are those of paired t tests with Holm's correction. "deletion" and "insertion" average eight
    draws of their noise. "stability" is measured relative to the norm of the map, so that a scaled map has the same
    value; a column of `Stability(...)` without `relative=True` has no marks.

    The seconds of the table are those of one explanation, without the first one, which is a warm-up.

    >>> table = pm.compare(model, x, ["eva", "saliency"], ["deletion"], ball=ball, groups=cells)
    >>> table.values["eva"]["deletion"].shape
    (2,)
    """
    if is_several(x):
        joined = join_inputs(model, x)
        if not joined.is_one:
            return _compared_inputs(model, joined, methods, metrics, target, ball, groups, seed, progress)
        ball, groups = None if ball is None else joined.ball(ball), joined.mask(groups, ball)
        model, x = joined.model, joined.x
    return _compared(model, as_samples(x, model), methods, metrics, target, *of_one_input(ball, groups), seed, progress)


def _compared_inputs(
    model: nn.Module | Graph,
    joined: JoinedInputs,
    methods: Any,
    metrics: Any,
    target: Target,
    balls: Any,
    groups: Any,
    seed: int,
    progress: bool,
) -> Table:
    """Compare methods on the joined vectors of several inputs."""
    if balls is None:
        each = iter(joined.values)
        balls = tuple(default_ball(next(each)) if part.constant is None else None for part in joined.parts)
    graph = as_graph(joined.model, joined.x)
    ball, mask = joined.ball(balls), joined.mask(groups, balls)

    def on_vectors(method: Any) -> Any:
        if isinstance(method, str):
            return method
        if isinstance(method, tuple):
            return joined.join(method)
        if isinstance(method, Explainer) and method.model is model:
            return replace(method.for_joined(joined), model=graph)
        if isinstance(method, Baseline) and method.model is model:
            return replace(method.for_joined(joined), model=graph)
        if isinstance(method, Tensor | np.ndarray):
            raise InputError(
                f"got one map for {len(joined.parts)} inputs, expected a tuple with a map for each: (first, second)"
            )
        call = getattr(method, "attribute", method)
        if not callable(call):
            return method
        named = call is not method  # an object takes target by keyword, a function by position
        return _OnVectors(lambda x, c: joined.join(call(x, target=c) if named else call(x, c)), joined)

    vectors = {label: on_vectors(method) for label, method in _labelled(methods).items()}
    table = _compared(graph, joined.x, vectors, metrics, target, ball, mask, seed, progress, joined.spans(balls))
    return table if isinstance(model, Graph) else replace(table, model=type(model).__name__)


@dataclass(frozen=True, eq=False)
class _OnVectors:
    """A user's method for several inputs, as one for their joined vectors."""

    call: Any
    joined: JoinedInputs

    def attribute(self, inputs: Tensor, target: Any = None) -> Tensor:
        """Return the joined maps."""
        parts = self.joined.inputs_at(inputs.detach())
        floats = tuple(part.clone().requires_grad_() if part.is_floating_point() else part for part in parts)
        with torch.enable_grad():
            maps: Tensor = self.call(floats, target).detach()
        return maps


def _compared(
    model: nn.Module | Graph,
    x: Tensor,
    methods: Any,
    metrics: Any,
    target: Target,
    ball: Ball | None,
    groups: Groups,
    seed: int,
    progress: bool,
    spans: tuple[Tensor, Tensor] | None = None,
) -> Table:
    """Compare methods on samples. spans: the finite ranges of the entries of joined vectors, for baselines."""
    if ball is not None and not isinstance(ball, Ball):
        raise InputError(f"got ball={ball!r}, expected a pm.Ball such as pm.Ball(0.02, domain=(0.0, 1.0))")
    if groups is not None:
        check_groups("compare got groups", groups)
    check_count("compare got seed", seed, 0)
    check_flag("compare got progress", progress)
    around = default_ball(x) if ball is None else ball
    free = around if spans is None else Ball(0.0, domain=spans)  # the range in which baselines draw
    values = (float(x.min()), float(x.max()))
    named, chosen = _labelled(methods), _chosen(metrics, _with_one_radius(around), values, seed)
    if not named or not chosen:
        raise InputError("got no method or no metric, expected at least one of each, such as ['eva'] and ['deletion']")
    heads = columns(chosen)
    given = {label: as_attributor(method, model) for label, method in named.items() if not isinstance(method, str)}
    graph = require_classes(as_graph(model, x)).to(x.device, x.dtype)
    attributors = {
        label: _seeded(
            as_attributor(method, graph, ball=around if method in _WITH_BALL else free, groups=groups),
            seed,
        )
        if isinstance(method, str)
        else _on(graph, given[label], model)
        for label, method in named.items()
    }
    for head, metric in zip(heads, chosen, strict=True):
        if not any(_applies(metric, attributor) for attributor in attributors.values()):
            why = _MISSING_SUBJECTS[metric.subject]
            raise InputError(f"the metric {head.name!r} applies to none of the methods: {why}")
    with torch.no_grad():
        aim = target_of(target, graph(x).flatten(1))
    measured_values: dict[str, dict[str, Values]] = {}
    seconds: dict[str, float | None] = {}
    with ProgressBar(len(attributors) * (1 + len(chosen)), "compare", show=progress, unit="step") as bar:
        for label, attributor in attributors.items():
            stored = isinstance(named[label], Tensor | np.ndarray)  # the time of stored maps is unknown
            with bar.work():
                if not stored:
                    warm_up(attributor, x, aim)
                maps, took = timed(attributor, x, aim)
            seconds[label] = None if stored else took / len(x)
            measured_values[label] = {}
            for head, metric in zip(heads, chosen, strict=True):
                with bar.work():
                    measured = values_of(metric, graph, x, aim, attributor, maps)
                if measured is not None:
                    measured_values[label][head.name] = measured
    table = tabulate("", heads, measured_values, seconds, seed=seed)
    return table if isinstance(model, Graph) else replace(table, model=type(model).__name__)


def _with_one_radius(ball: Ball) -> Ball:
    """Return the ball with a number as its radius if all variables that move have the same, as metrics need it."""
    radii = ball.eps
    if not isinstance(radii, Tensor) or radii.ndim < 2:
        return ball
    each = radii[radii > 0].unique()
    return replace(ball, eps=float(each)) if len(each) == 1 else ball


_Seeded = TypeVar("_Seeded")


def _seeded(drawn: _Seeded, seed: int) -> _Seeded:
    """Return a method or metric with this seed, or unchanged if it draws nothing."""
    if not is_dataclass(drawn) or isinstance(drawn, type):
        return drawn
    if not any(each.name == "seed" and each.init for each in fields(drawn)):
        return drawn
    seeded: Any = replace(drawn, seed=seed)
    return cast("_Seeded", seeded)


def _on(graph: Graph, attributor: Attributor, model: nn.Module | Graph) -> Attributor:
    """Replace the explainer of a model by one of its graph, which need not be traced in each call."""
    if isinstance(attributor, Explainer | Baseline) and attributor.model is model:
        return replace(attributor, model=graph)
    return attributor


def warm_up(attributor: Attributor, x: Tensor, target: Tensor) -> None:
    """Explain one sample without timing: imports, tracing and the start of a device are not part of a method."""
    if isinstance(attributor, Explainer) and isinstance(attributor.ball, Ball):  # its radii may be those of all samples
        attributor = replace(attributor, ball=ball_of_samples(attributor.ball, slice(1), x))
    attributor.attribute(x[:1], target=target[:1])


def timed(attributor: Attributor, x: Tensor, target: Tensor) -> tuple[Tensor, float]:
    """Return the attributions of x and the seconds they took. On a GPU, wait until the computation is complete."""
    start = perf_counter()
    maps = attributor.attribute(x, target=target)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return maps, perf_counter() - start


def values_of(
    metric: Metric[Any], model: nn.Module | Graph, x: Tensor, target: Tensor, attributor: Attributor, maps: Tensor
) -> Values | None:
    """Return the value of the metric for each sample; None if the metric does not apply to the method."""
    subject: Any = maps
    if not _applies(metric, attributor):
        return None
    if metric.subject == "explainer":
        subject = attributor.attribute
    elif metric.subject == "method" and isinstance(attributor, Explainer | Baseline):
        subject = _remade(attributor)
    elif metric.subject == "overlap" and isinstance(attributor, Explainer):
        subject = attributor.explain(x, target).overlap
    elif metric.subject in ("reason", "contrast") and isinstance(attributor, Sufficient | Contrastive):
        subject = _sets_of(attributor, x, target)
    values: Values = metric(model, x, target, subject).double().cpu().numpy().astype(np.float64)
    return values


def _applies(metric: Metric[Any], attributor: Attributor) -> bool:
    """Return whether the metric has a value for the method."""
    if metric.subject == "method":  # any other method cannot be created for another network
        return isinstance(attributor, Explainer | Baseline)
    if metric.subject in ("reason", "contrast"):
        return isinstance(attributor, Sufficient if metric.subject == "reason" else Contrastive)
    return metric.subject != "overlap" or (isinstance(attributor, Explainer) and _proves(attributor))


_LAST_SETS: WeakKeyDictionary[SetExplainer, tuple[Tensor, Tensor, Reason | Contrast]] = WeakKeyDictionary()


def _sets_of(attributor: Sufficient | Contrastive, x: Tensor, target: Tensor) -> Reason | Contrast:
    """Return the sets of x. Several metrics of the same samples use one search."""
    known = _LAST_SETS.get(attributor)
    if known is None or known[0] is not x or not torch.equal(known[1], target):
        found = attributor.explain(x, target)
        sets = found.reason if found.contrast is None else found.contrast
        assert sets is not None
        _LAST_SETS[attributor] = known = (x, target, sets)
    return known[2]


def _remade(attributor: Explainer | Baseline) -> Remade:
    """Return a function that runs the method with its settings on any network."""
    return lambda network, x, target: replace(attributor, model=network).attribute(x, target=target)


def _proves(explainer: Explainer) -> bool:
    """Return whether the overlap is a certified bound of AO: the margin to all other classes."""
    over_all = not explainer.signed and decides(getattr(explainer, "objective", "margin"))
    return explainer.guarantee == "certified" and over_all


def column(metric: Metric[Any] | type[Metric[Any]]) -> Column:
    """Return the column of a metric."""
    ranked = isinstance(metric, type) or metric.scale_free
    return Column(metric.name, metric.label, metric.higher_is_better, ranked=ranked)


def columns(metrics: Sequence[Metric[Any]]) -> list[Column]:
    """Return a column for each metric. Metrics with equal names are labelled by their presets or differing settings."""
    heads = []
    for metric in metrics:
        settings, same = metric.settings(), [other.settings() for other in metrics if other.name == metric.name]
        if same.count(settings) > 1:
            raise InputError(
                f"got the metric {metric.name!r} twice with the same settings, expected it once"
                + (
                    ": name them, pm.metrics.FunctionMetric(f, title='...')"
                    if isinstance(metric, FunctionMetric)
                    else ""
                )
            )
        head, more = column(metric), f" ({_distinguishing_settings(settings, same)})" if len(same) > 1 else ""
        heads.append(replace(head, name=head.name + more, label=head.label + more, settings=settings))
    return heads


def _distinguishing_settings(ours: Mapping[str, JSON], same: Sequence[Mapping[str, JSON]]) -> str:
    """Return the settings that distinguish one metric from the others of its name."""
    if len({str(settings.get("preset")) for settings in same}) == len(same):
        return str(ours.get("preset"))
    names = dict.fromkeys(name for settings in same for name in settings)
    differ = [name for name in names if any(settings.get(name) != ours.get(name) for settings in same)]
    return ", ".join(f"{name} {ours.get(name)}" for name in differ)


def _labelled(methods: Any) -> dict[str, AnyMethod]:
    """Return the methods by label: the given labels, or names, with numbers for equal names."""
    if isinstance(methods, Mapping):
        return dict(methods)
    if isinstance(methods, str | Tensor | np.ndarray) or callable(methods) or hasattr(methods, "attribute"):
        methods = [methods]
    if not isinstance(methods, Iterable):
        raise InputError(
            f"got methods of type {type(methods).__name__}, expected names such as ['eva', 'rise'] or {{label: method}}"
        )
    methods = list(methods)
    names = [name_of_method(method) for method in methods]
    known = [method for method in methods if isinstance(method, str)]
    if twice := [name for name in known if known.count(name) > 1]:
        raise InputError(f"got the method {twice[0]!r} twice, expected it once")
    counts = [f" {names[: at + 1].count(name)}" if names.count(name) > 1 else "" for at, name in enumerate(names)]
    return {name + count: method for name, count, method in zip(names, counts, methods, strict=True)}


def _chosen(metrics: Any, ball: Ball, values: tuple[float, float], seed: int) -> list[Metric[Any]]:
    if isinstance(metrics, str | Metric | type) or not isinstance(metrics, Iterable):
        metrics = [metrics]
    made = [_metric(metric, ball, values) for metric in metrics]
    return [_seeded(one, seed) if isinstance(given, str) else one for given, one in zip(metrics, made, strict=True)]


def _metric(metric: Any, ball: Ball, values: tuple[float, float]) -> Metric[Any]:
    """Return the metric of a name. Metrics that perturb samples get the radius and the domain of the ball."""
    if isinstance(metric, Metric):
        return metric
    if callable(metric) and not isinstance(metric, str | type):
        return FunctionMetric(metric)
    if not isinstance(metric, str) or metric not in METRICS:
        got = f"the metric {metric!r}" if isinstance(metric, str) else f"a metric of type {type(metric).__name__}"
        got = f"a class, {metric.__name__}" if isinstance(metric, type) else got
        raise InputError(f"got {got}, expected one of {', '.join(METRICS)}, or a metric such as pm.metrics.Deletion()")
    kind = METRICS[metric]
    if kind.needs_radius:
        if isinstance(ball.eps, str):
            raise InputError(
                f"got the metric {metric!r} by name and no radius for it, expected pm.metrics.{kind.__name__}(...), or "
                "ball=pm.Ball(0.02) with a number"
            )
        return kind.for_ball(ball, values)
    outside = min(values) < 0 or max(values) > 1  # the defaults of all metrics are made for values in [0, 1]
    return kind.for_ball(ball, values) if kind.subject == "explainer" or outside else kind()
