"""What every explainer has in common: one call that checks, goes through the samples, and records what was done.

A newcomer is a frozen dataclass: its fields are its settings, which the record of an explanation lists. It writes
`_measure`, which bounds or estimates the overlaps of some samples, and says what it guarantees.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, overload

import torch
from torch import Tensor

from proofmap.bounds import Method
from proofmap.errors import InputError
from proofmap.explainers.batching import Measured, Task, ball_of, together
from proofmap.explainers.default_ball import unstated
from proofmap.explainers.explanation import Explanation, Guarantee, spread
from proofmap.graph import Graph, Network, as_graph, bounded
from proofmap.graph.classes import classes_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.opaque import opaque_node
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.rounding.coverage import rigorous_on
from proofmap.runtime.memory import check_memory
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import Bar
from proofmap.settings import check_count, check_settings, count
from proofmap.storage.hashing import hash_graph, hash_tensor, versions
from proofmap.storage.records import JSON, recorded
from proofmap.verify.overlap import method_of
from proofmap.verify.radius import certified_radius

__all__ = ["COSTS", "Explainer", "Measured", "Task", "check_model"]

COSTS = ("attacks", "batch", "progress", "memory")  # settings on which no score depends
_LOG = logging.getLogger(__name__)
_ASIDE = ("model", "seed", *COSTS)  # that an explanation records otherwise, or not
_LISTED = 1000  # entries of a tensor that a record holds; of a larger one, its hash
_SEARCH = 0.5  # of the work, where a radius is searched first: a guess

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _wrapped(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """The method behind one more call: Captum's NoiseTunnel calls `attribute.__wrapped__`."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(*args, **kwargs)

    return call


def check_model(model: object) -> None:
    """Refuse what is no model."""
    if not isinstance(model, Network):
        raise InputError(
            f"got a model of type {type(model).__name__}, expected a torch.nn.Module, "
            "pm.load(path), or pm.from_sklearn(estimator)"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Explainer(ABC):
    """Explains decisions of one model over one kind of ball.

    ball: its eps may be "auto": for each sample the radius up to which its decision is proven. Without a ball it is
    that radius, in the range of the samples as the domain, and a warning says so.
    groups: what is scored together, `pixels()` by default.
    batch: samples at a time, some hundred to keep a GPU busy.
    progress: a bar for what takes over a second.
    memory: bytes the computation may use, by default half of what is free.

    >>> isinstance(pm.EVA(model, ball), pm.explainers.Explainer)
    True
    >>> pm.EVA(model, ball, groups=cells).attribute(x, target=3).shape        # Captum's call
    torch.Size([2, 1, 28, 28])
    """

    guarantee: ClassVar[Guarantee]
    signed: ClassVar[bool] = False

    model: Network
    ball: Ball | None = None
    _: KW_ONLY
    groups: grouping.Groups = None
    batch: int = count(16)
    progress: bool = True
    memory: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no setting, and a graph that cannot be explained."""
        check_model(self.model)
        if self.ball is not None and not isinstance(self.ball, Ball):
            raise InputError(f"got ball={self.ball!r}, expected a pm.Ball such as pm.Ball(0.02, domain=(0.0, 1.0))")
        check_settings(self)
        check_memory(self.memory)
        object.__setattr__(self, "groups", grouping.pixels() if self.groups is None else self.groups)
        if "bounds" in {field.name for field in fields(self)}:
            object.__setattr__(self, "bounds", method_of(self.bounds))
        if isinstance(self.model, Graph):
            self._check_graph(self.model)

    if TYPE_CHECKING:  # a subclass states them as settings, which checkers do not take for what a property is
        seed: int | None = field(default=None, init=False)
        bounds: Method | None = field(default=None, init=False)
        rigorous: bool | None = field(default=None, init=False)
    else:

        @property
        def seed(self) -> int | None:
            """None: nothing is random."""
            return None

        @property
        def bounds(self) -> Method | None:
            """By which a radius is proven."""
            return None

        @property
        def rigorous(self) -> bool | None:
            """Whether that counts all roundings; None: where they are known."""
            return None

    @abstractmethod
    def _measure(self, task: Task) -> Measured:
        """The overlaps of some samples, and their scores."""

    def explain(self, x: Samples, target: Target = None) -> Explanation:
        """Explain the decision at each sample of x (N, *shape): the predicted class, or the target."""
        return self._explain(x, target, self.groups, show=self.progress)

    @overload
    def attribute(
        self,
        inputs: Samples,
        target: Target | list[int] = None,
        feature_mask: Samples | tuple[Samples, ...] | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
    ) -> Tensor: ...

    @overload
    def attribute(
        self,
        inputs: tuple[Samples, ...],
        target: Target | list[int] = None,
        feature_mask: Samples | tuple[Samples, ...] | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
    ) -> tuple[Tensor, ...]: ...

    @_wrapped
    def attribute(
        self,
        inputs: Samples | tuple[Samples, ...],
        target: Target | list[int] = None,
        feature_mask: Samples | tuple[Samples, ...] | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Captum's call: the attributions of `explain`, shaped like the inputs; a tuple of one gives a tuple of one.

        target: a class, or one for each sample. feature_mask: groups in place of the explainer's own, (1, *shape) for
        all samples or (N, *shape). perturbations_per_eval: samples at a time.

        NoiseTunnel and sensitivity_max explain inputs with noise added, and noise leads out of a domain such as
        (0, 1). What is outside has no ball: an InputError says so, and nothing is clamped behind the user's back.
        Give them an explainer whose ball has no domain or one wide enough, or a perturb_func that stays inside.
        """
        if isinstance(inputs, tuple):
            one = _only(inputs, "inputs")
            return (self.attribute(one, target, feature_mask, perturbations_per_eval, show_progress),)
        if target is None and self.signed:
            raise InputError(f"{type(self).__name__} needs a target, the class to move to")
        if perturbations_per_eval is not None:
            check_count("got perturbations_per_eval", perturbations_per_eval)
        mask = _only(feature_mask, "feature masks") if isinstance(feature_mask, tuple) else feature_mask
        groups = self.groups if mask is None else mask
        with torch.enable_grad():  # Captum calls without: an explainer that needs gradients gives the same as by itself
            explanation = self._explain(inputs, target, groups, show_progress, perturbations_per_eval)
        return explanation.attributions

    @property
    def forward_func(self) -> Network:
        """The model, under the name by which Captum's own methods look for it."""
        return self.model

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: the inputs are no factor of the attributions (Captum asks)."""
        return False

    def has_convergence_delta(self) -> bool:
        """False: attributions need not sum to anything (Captum asks)."""
        return False

    def _explain(
        self, x: Samples, target: Target | list[int], groups: grouping.Groups, show: bool, batch: int | None = None
    ) -> Explanation:
        started = time.perf_counter()
        x = as_samples(x, self.model).detach()
        if self.ball is None:
            stated = replace(self, ball=unstated(x, type(self).__name__))
            return stated._explain(x, target, groups, show, batch)
        mask = grouping.mask_of(groups, x)
        traced = as_graph(self.model, x)
        self._check_graph(traced)
        graph = traced.to(x.device, x.dtype)
        name, groups_in_all = type(self).__name__, int(mask.max()) + 1
        _LOG.info("%s explains %d samples of shape %s, %d groups", name, len(x), tuple(x.shape[1:]), groups_in_all)
        with torch.no_grad():
            predicted = torch.cat([graph(part) for part in x.split(self.batch)]).argmax(1)
        rigorous = rigorous_on(graph, self.rigorous, self.bounds)
        aim = predicted if target is None else classes_of(target, len(x), graph.classes, x.device)
        search = _SEARCH if isinstance(self.ball.eps, str) else 0.0
        with part(0.0, search):
            ball = self._resolved(self.ball, graph, x, predicted if self.signed else aim, rigorous, show)
        generator = torch.Generator(x.device).manual_seed(0 if self.seed is None else self.seed)
        step = batch or self.batch
        parts = []
        bar = Bar(len(x), name, show=show)
        with ThreadPoolExecutor(1) as aside, bar, part(search, 1.0):
            digest = aside.submit(hash_tensor, x)  # which a GPU need not wait for
            for start in range(0, len(x), step):
                piece = slice(start, start + step)
                masks = mask if len(mask) == 1 else mask[piece]
                around = ball_of(ball, piece, x)
                task = Task(graph, x[piece], around, masks, aim[piece], predicted[piece], generator, rigorous)
                with bar.work(len(task.x)):
                    parts.append(self._measure(task))
                _LOG.debug("%s: %d of %d samples", name, start + len(task.x), len(x))
        whole = together(parts, groups_in_all)
        _LOG.info("%s explained %d samples in %.2f s", name, len(x), time.perf_counter() - started)
        smooth = isinstance(groups, grouping.Grid) and groups.smooth
        return Explanation(
            x=x,
            scores=whole.scores,
            attributions=spread(whole.scores, mask, smooth),
            mask=mask,
            overlap=whole.overlap,
            opposite=whole.opposite,
            errors=whole.errors,
            target=aim,
            predicted=predicted,
            signed=self.signed,
            smooth=smooth,
            guarantee=self.guarantee,
            method=name,
            settings=self._record(ball, graph, rigorous),
            seed=self.seed,
            versions=versions(),
            model_hash=hash_graph(traced),
            input_hash=digest.result(),
            seconds=time.perf_counter() - started,
            made_from=(traced, ball),
        )

    def _check_graph(self, graph: Graph) -> None:
        """Refuse a network of which parts would have to be bounded that cannot be."""
        if self.guarantee == "certified":
            bounded(graph)
        foreign = opaque_node(graph)
        if foreign is not None and (self.ball is None or isinstance(self.ball.eps, str)):
            got = "no ball, hence " if self.ball is None else ""
            raise InputError(
                f"got {got}the radius 'auto', which has to be proven, for a model with {foreign[1].named()}, which has "
                "no rule: give a number, such as pm.Ball(0.02) or --eps 0.02"
            )

    def _record(self, ball: Ball, graph: Graph, rigorous: bool) -> dict[str, JSON]:
        """The ball that was explained, the settings, and what of the model was taken off its end."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _ASIDE}
        if "rigorous" in settings:
            settings["rigorous"] = rigorous
        taken = {} if graph.taken_off is None else {"taken_off": graph.taken_off}
        return recorded({**settings, "ball": ball, **taken}, _LISTED)

    def _resolved(self, ball: Ball, graph: Graph, x: Tensor, target: Tensor, rigorous: bool, show: bool) -> Ball:
        """The ball with a number for its radius, or one for each sample."""
        if not isinstance(ball.eps, str):
            return ball
        with Bar(1, "radius", show=show) as bar, bar.work():
            asked: Any = {"norm": ball.norm, "domain": ball.domain, "target": target, "rigorous": rigorous}
            radius = certified_radius(graph, x, bounds=self.bounds, memory=self.memory, progress=False, **asked)
        _LOG.debug("radius 'auto': from %g to %g", float(radius.min()), float(radius.max()))
        return replace(ball, eps=radius)


def _only(tensors: tuple[Samples, ...], what: str) -> Samples:
    if len(tensors) != 1:
        raise InputError(f"got {len(tensors)} {what}, expected one tensor: explain a model of one input")
    return tensors[0]
