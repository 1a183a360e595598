"""The base class `Explainer`: one call that checks its arguments, processes batches, and records all settings.

A subclass is a frozen dataclass. Its fields are its settings, which the record of an explanation lists. It implements
`_measure`, which bounds or estimates the overlaps of a batch, and states its guarantee.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from html import escape
from inspect import get_annotations
from typing import Any, ClassVar

import torch
from torch import Tensor

from proofmap.bounds import Method
from proofmap.errors import InputError, OutsideDomainError
from proofmap.explainers.attribution.captum_call import CaptumCall, CaptumSettings
from proofmap.explainers.batching import Measured, Task, ball_of_samples, concatenate
from proofmap.explainers.explained_ball import default_ball_with_warning
from proofmap.explainers.explanation import Explanation, Guarantee, spread
from proofmap.explainers.statements.explained_inputs import with_inputs
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import classes_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import JoinedInputs, join_inputs, of_one_input
from proofmap.graph.opaque import differentiable, opaque_node
from proofmap.graph.rewrite.output_heads import shape_of_outputs
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Inputs, Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import CONSTANT, Balls, GroupsOfInputs, is_several
from proofmap.rounding.rigorous_support import decide_rigorous, or_fast
from proofmap.runtime.memory import check_memory
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.settings import check_count, check_settings, count
from proofmap.storage.hashing import hash_graph, hash_tensor, versions
from proofmap.storage.records import JSON, settings_to_json
from proofmap.text.wording import around
from proofmap.verify.objectives import Output, objective_graph, refuse_target
from proofmap.verify.overlap import method_of
from proofmap.verify.radius import certified_radius

__all__ = ["COSTS", "Explainer", "Measured", "Task", "check_model"]

COSTS = ("attacks", "batch", "progress", "memory")  # settings that change no score
_LOG = logging.getLogger(__name__)
_NOT_IN_SETTINGS = ("model", "seed", *COSTS)  # recorded elsewhere in an explanation, or not recorded
MAX_RECORDED_ENTRIES = 1000  # a record holds the hash of a tensor with more entries
_RADIUS_WORK_SHARE = 0.5  # share of the progress bar for the search of the radius "auto": an estimate


def check_model(model: object) -> None:
    """Raise InputError for an object that is not a model."""
    if not isinstance(model, Network):
        raise InputError(
            f"got a model of type {type(model).__name__}, expected a torch.nn.Module, "
            "pm.load(path), or pm.from_sklearn(estimator)"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Explainer(CaptumCall):
    """Explains decisions of one model over one kind of ball.

    ball: its eps may be "auto": the largest proven radius of each sample. Without a ball, "auto" is used with the range
    of the samples as the domain, and a warning says so. For a model of several inputs, a tuple: a ball for each input,
    or None if it stays fixed.

    groups: the variables that share one score, `pixels()` by default; a tuple for several inputs. batch: the number of
    samples per pass; some hundred keep a GPU busy. progress: show a progress bar for work of more than a second.
    memory: bytes that the computation may use, by default half of the free memory. seed, bounds, rigorous: None for an
    explainer without this setting.

    >>> isinstance(pm.EVA(model, ball), pm.explainers.Explainer)
    True
    >>> pm.EVA(model, ball, groups=cells).attribute(x, target=3).shape        # Captum's call
    torch.Size([2, 1, 28, 28])
    """

    guarantee: ClassVar[Guarantee]
    signed: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False  # whether the network must have gradients with respect to its input

    model: Network
    ball: Balls | None = None
    _: KW_ONLY
    groups: GroupsOfInputs = None
    batch: int = count(16)
    progress: bool = True
    memory: int | None = None
    seed: int | None = field(default=None, init=False)  # a subclass with this setting declares it again
    bounds: Method | None = field(default=None, init=False)
    rigorous: bool | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings, or a graph that cannot be explained."""
        check_model(self.model)
        for ball in self.ball if isinstance(self.ball, tuple) else (self.ball,):
            if ball is not None and not isinstance(ball, Ball):
                raise InputError(f"got ball={ball!r}, expected a pm.Ball such as pm.Ball(0.02, domain=(0.0, 1.0))")
        check_settings(self)
        check_memory(self.memory)
        balls = self.ball if isinstance(self.ball, tuple) else (self.ball,)
        automatic = self.ball is None or any(ball is not None and isinstance(ball.eps, str) for ball in balls)
        if isinstance(getattr(self, "objective", None), Output) and automatic:
            got = "no ball, hence " if self.ball is None else ""
            raise InputError(
                f"got {got}the radius 'auto', up to which a class is proven, for an output, which has no class: give a "
                "number, such as pm.Ball(0.02)",
                arguments=("eps=0.02",),
            )
        several = isinstance(self.ball, tuple)
        object.__setattr__(self, "groups", grouping.pixels() if self.groups is None and not several else self.groups)
        if "bounds" in self._setting_names():
            object.__setattr__(self, "bounds", method_of(self.bounds))
        if isinstance(self.model, Graph):
            self._check_graph(self.model)

    @property
    def _first_ball(self) -> Ball | None:
        """The ball; for several inputs the first, whose kind is that of all."""
        if isinstance(self.ball, tuple):
            return next((ball for ball in self.ball if ball is not None), None)
        return self.ball

    def _setting_names(self) -> list[str]:
        """Return the settings that this class has, in the order of their last declaration."""
        order: dict[str, None] = {}
        for kind in reversed(type(self).__mro__):
            for name in get_annotations(kind):
                order.pop(name, None)
                order[name] = None
        settings = {field.name for field in fields(self) if field.init}
        return [name for name in order if name in settings]

    def _stated(self) -> dict[str, str]:
        """Return the model, the ball in words, and the settings that differ from their defaults."""
        own = {} if self.ball is None else settings_to_json({"ball": self.ball}, MAX_RECORDED_ENTRIES)
        ball = around(own, count=0) if own else "each sample's own proven ε"
        names = [name for name in self._setting_names() if name not in ("model", "ball", *COSTS)]
        return {"model": type(self.model).__name__, "ball": ball} | changed_settings(self, names)

    def __repr__(self) -> str:
        settings = [f"{key}=<{value}>" if key == "ball" else f"{key}={value}" for key, value in self._stated().items()]
        return f"{type(self).__name__}({', '.join(settings)})"

    def _repr_html_(self) -> str:
        """Return a table of the settings for notebooks."""
        rows = "".join(
            f'<tr><td>{name}</td><td style="text-align: left">{escape(value)}</td></tr>'
            for name, value in self._stated().items()
        )
        use = f"explain(x) scores groups of variables; guarantee: {self.guarantee}"
        return f"<strong>{type(self).__name__}</strong><table>{rows}</table><small>{use}</small>"

    @abstractmethod
    def _measure(self, task: Task) -> Measured:
        """Return the overlaps and scores of a batch."""

    def explain(self, x: Inputs, target: Target = None) -> Explanation:
        """Explain the decision at each sample of x (N, *shape): the predicted class, or the target.

        x may be several inputs: a tuple in the order of the model's arguments, or a dictionary by keyword. The result
        is about their joined vector, and `Explanation.inputs` about each of them.

        x may also be a DataLoader with batches of samples or of pairs (x, y), in a fixed order.
        """
        return self._explain(x, target, self.groups, show=self.progress)

    def _attributions(
        self, inputs: Samples | tuple[Samples, ...], target: Target | list[int], how: CaptumSettings
    ) -> Tensor | tuple[Tensor, ...]:
        if isinstance(inputs, tuple) and len(inputs) == 1:
            return (self.attribute(inputs[0], target, *how),)
        if target is None and self.signed:
            raise InputError(f"{type(self).__name__} needs a target, the class to move to")
        if how.perturbations_per_eval is not None:
            check_count("got perturbations_per_eval", how.perturbations_per_eval)
        mask = how.feature_mask
        if not isinstance(inputs, tuple) and isinstance(mask, tuple):
            if len(mask) != 1:
                raise InputError(
                    f"got {len(mask)} feature masks for one input, expected one tensor: give all inputs as a tuple"
                )
            (mask,) = mask
        groups = self.groups if mask is None else mask
        try:
            with torch.enable_grad():  # Captum disables gradients, but some explainers need them
                explanation = self._explain(inputs, target, groups, how.show_progress, how.perturbations_per_eval)
        except OutsideDomainError as error:
            raise OutsideDomainError(
                f"{error}; for noise, as of Captum's NoiseTunnel or sensitivity_max, wrap the explainer: "
                "pm.explainers.ClampedInputs(explainer)"
            ) from error
        if not isinstance(inputs, tuple):
            return explanation.attributions
        found = iter(explanation.inputs)
        return tuple(
            next(found).attributions if role != CONSTANT else explanation.x.new_zeros(torch.as_tensor(value).shape)
            for value, role in zip(inputs, explanation.input_roles.values(), strict=True)
        )

    @property
    def forward_func(self) -> Network:
        """The model, under the name that Captum's methods expect."""
        return self.model

    def _explain(
        self, x: Inputs, target: Target | list[int], groups: GroupsOfInputs, show: bool, batch: int | None = None
    ) -> Explanation:
        """Explain; by default in the fast mode if rounding errors leave no bound."""

        def work(rigorous: bool | None) -> Explanation:
            stated = copy(self)
            object.__setattr__(stated, "rigorous", rigorous)
            return stated._explain_in_mode(x, target, groups, show, batch)

        return or_fast(self.rigorous, work)

    def _explain_in_mode(
        self, x: Inputs, target: Target | list[int], groups: GroupsOfInputs, show: bool, batch: int | None
    ) -> Explanation:
        started = time.perf_counter()
        if is_several(x):
            joined = join_inputs(self.model, x)
            stated = self.for_joined(joined, groups)
            found = stated._explain(joined.x, target, stated.groups, show, batch)
            return with_inputs(found, None if joined.is_one else record_of_inputs(joined, self.ball))
        x = as_samples(x, self.model).detach()
        if self.ball is None:
            stated = replace(self, ball=default_ball_with_warning(x, type(self).__name__))
            return stated._explain(x, target, groups, show, batch)
        around_x, groups = of_one_input(self.ball, groups)
        mask = grouping.mask_of(groups, x)
        objective = getattr(self, "objective", "margin")
        refuse_target(objective, target)
        model = as_graph(self.model, x)
        traced = objective_graph(model, objective)
        self._check_graph(traced)
        graph = traced.to(x.device, x.dtype)
        name, groups_in_all = type(self).__name__, int(mask.max()) + 1
        _LOG.info("%s explains %d samples of shape %s, %d groups", name, len(x), tuple(x.shape[1:]), groups_in_all)
        with torch.no_grad():
            outputs = torch.cat([graph(part) for part in x.split(self.batch)])
        predicted = outputs.argmax(1)
        if isinstance(objective, Output):  # there are no classes
            predicted = torch.zeros_like(predicted)
        rigorous = decide_rigorous(graph, self.rigorous, self.bounds)
        aim = predicted if target is None else classes_of(target, len(x), graph.classes, x.device)
        search = _RADIUS_WORK_SHARE if isinstance(around_x.eps, str) else 0.0
        with part(0.0, search):
            ball = self._with_radius(around_x, graph, x, predicted if self.signed else aim, rigorous, show)
        generator = torch.Generator(x.device).manual_seed(0 if self.seed is None else self.seed)
        step = batch or self.batch
        parts = []
        bar = ProgressBar(len(x), name, show=show)
        with ThreadPoolExecutor(1) as aside, bar, part(search, 1.0):
            digest = aside.submit(hash_tensor, x)  # computed while the GPU works
            for start in range(0, len(x), step):
                piece = slice(start, start + step)
                masks = mask if len(mask) == 1 else mask[piece]
                around = ball_of_samples(ball, piece, x)
                task = Task(
                    graph, x[piece], around, masks, aim[piece], predicted[piece], generator, rigorous, start, len(x)
                )
                with bar.work(len(task.x)):
                    parts.append(self._measure(task))
                _LOG.debug("%s: %d of %d samples", name, start + len(task.x), len(x))
        whole = concatenate(parts, groups_in_all)
        _LOG.info("%s explained %d samples in %.2f s", name, len(x), time.perf_counter() - started)
        smooth = isinstance(groups, grouping.Grid) and groups.smooth
        of_output = {"output_shape": list(shape_of_outputs(model))} if isinstance(objective, Output) else {}
        return Explanation(
            x=x,
            scores=whole.scores,
            attributions=spread(whole.scores, mask, smooth),
            mask=mask,
            overlap=whole.overlap,
            opposite=whole.opposite,
            errors=whole.errors,
            reason=whole.reason,
            contrast=whole.contrast,
            target=aim,
            predicted=predicted,
            signed=self.signed,
            smooth=smooth,
            guarantee=self.guarantee,
            method=name,
            settings=self._record(ball, graph, rigorous) | of_output,
            seed=self.seed,
            versions=versions(),
            model_hash=hash_graph(model),
            input_hash=digest.result(),
            seconds=time.perf_counter() - started,
            made_from=(model, ball),
        )

    def for_joined(self, joined: JoinedInputs, groups: GroupsOfInputs = None) -> Explainer:
        """Return the explainer of the joined vectors of several inputs."""
        if self.ball is None:
            raise InputError(
                f"{type(self).__name__} got no ball for {len(joined.parts)} inputs, expected a tuple: a pm.Ball for "
                "each input, or None if it stays fixed"
            )
        mask = joined.mask(self.groups if groups is None else groups, self.ball)
        return replace(self, model=joined.model, ball=joined.ball(self.ball), groups=mask)

    def _check_graph(self, graph: Graph) -> None:
        """Raise InputError if a part of the network has no rule or no gradients, but needs them."""
        if self.guarantee == "certified":
            bounded(graph)
        if self.needs_gradients:
            differentiable(graph, type(self).__name__)
        foreign = opaque_node(graph)
        ball = self._first_ball
        if foreign is not None and (ball is None or isinstance(ball.eps, str)):
            got = "no ball, hence " if ball is None else ""
            raise InputError(
                f"got {got}the radius 'auto', which has to be proven, for a model with "
                f"{foreign[1].missing_in_words()}, which has no rule: give a number, such as pm.Ball(0.02)",
                arguments=("eps=0.02",),
            )

    def _record(self, ball: Ball, graph: Graph, rigorous: bool) -> dict[str, JSON]:
        """Return the record of settings: the ball, the fields of the class, and the removed final layer."""
        settings = {name: getattr(self, name) for name in self._setting_names() if name not in _NOT_IN_SETTINGS}
        if "rigorous" in settings:
            settings["rigorous"] = rigorous
        taken = {} if graph.taken_off is None else {"taken_off": graph.taken_off}
        return settings_to_json({**settings, "ball": ball, **taken}, MAX_RECORDED_ENTRIES)

    def _with_radius(self, ball: Ball, graph: Graph, x: Tensor, target: Tensor, rigorous: bool, show: bool) -> Ball:
        """Return the ball with numeric radii: "auto" is replaced by the proven radius of each sample."""
        if not isinstance(ball.eps, str):
            return ball
        with ProgressBar(1, "radius", show=show) as bar, bar.work():
            asked: Any = {"norm": ball.norm, "domain": ball.domain, "target": target, "rigorous": rigorous}
            radius = certified_radius(graph, x, bounds=self.bounds, memory=self.memory, progress=False, **asked)
        _LOG.debug("radius 'auto': from %g to %g", float(radius.min()), float(radius.max()))
        return replace(ball, eps=radius)


def record_of_inputs(joined: JoinedInputs, balls: Any) -> list[dict[str, Any]]:
    """Return the names, shapes, roles and balls of several inputs, as an explanation records them."""
    entries = joined.record(balls)
    for entry, ball in zip(entries, balls, strict=True):
        if ball is not None:
            entry["ball"] = settings_to_json({"ball": ball}, MAX_RECORDED_ENTRIES)
    return entries


def changed_settings(settings: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the named fields of a dataclass that differ from their defaults, as short texts."""
    defaults = {one.name: one.default for one in fields(settings)}
    values = {name: getattr(settings, name) for name in names}
    tensors = {name for name, value in values.items() if isinstance(value, Tensor)}
    return {
        name: f"tensor of shape {tuple(value.shape)}" if name in tensors else f"{value!r:.200}"
        for name, value in values.items()
        if name in tensors or type(value) is not type(defaults[name]) or value != defaults[name]
    }
