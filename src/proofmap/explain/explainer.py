"""What every explainer has in common: one call that checks, goes through the samples, and records what was done.

A newcomer writes `_measure`, which bounds or estimates the overlaps of some samples, and says what it guarantees.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar, overload

import torch
from torch import Tensor, nn

from proofmap import groups as grouping
from proofmap.arrays import Samples, Target
from proofmap.ball import Ball
from proofmap.bar import Bar
from proofmap.bounds import Method
from proofmap.digest import hash_tensor, versions
from proofmap.errors import InputError
from proofmap.explain.explanation import Explanation, Guarantee, spread
from proofmap.family import resolve_mask
from proofmap.graph import Graph, bounded
from proofmap.graph.foreign import foreign_of
from proofmap.graph.samples import as_samples
from proofmap.memory import check_memory
from proofmap.overlaps import Overlap, certified_radius, classes_of
from proofmap.progress import part
from proofmap.records import plain
from proofmap.settings import check_counts
from proofmap.traced import traced

_SEARCH = 0.5  # of the work, where a radius is searched first: a guess
_LISTED = 1000  # entries of a tensor that a record holds; of a larger one, its hash

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, eq=False)
class Task:
    """Some samples to explain, all checked: the ball is resolved, the mask stands for these samples."""

    graph: Graph
    x: Tensor  # (n, *shape)
    ball: Ball
    mask: Tensor  # (1 or n, *shape)
    target: Tensor  # (n,)
    predicted: Tensor  # (n,)
    generator: torch.Generator


@dataclass(frozen=True, eq=False)
class Measured:
    """Overlaps of some samples, and the scores that follow from them."""

    scores: Tensor  # (n, G)
    overlap: Overlap
    opposite: Overlap | None = None


def _wrapped(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """The method behind one more call: Captum's NoiseTunnel calls `attribute.__wrapped__`."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(*args, **kwargs)

    return call


class Explainer(ABC):
    """Explains decisions of one model over one kind of ball.

    ball.eps may be "auto": for each sample the radius up to which its decision is proven. groups: `pixels()` by
    default. batch: samples at a time, some hundred to keep a GPU busy. progress: a bar for what takes over a second.
    """

    guarantee: ClassVar[Guarantee]
    signed: ClassVar[bool] = False
    bounds: Method | None = None  # by which a radius is proven

    def __init__(
        self,
        model: nn.Module | Graph,
        ball: Ball,
        *,
        groups: grouping.Groups = None,
        batch: int = 16,
        progress: bool = True,
        memory: int | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(model, nn.Module | Graph):
            raise InputError(f"got a model of type {type(model).__name__}, expected a torch.nn.Module or pm.load(path)")
        if not isinstance(ball, Ball):
            raise InputError(f"got ball={ball!r}, expected a pm.Ball such as pm.Ball(0.02, domain=(0.0, 1.0))")
        check_counts(batch=batch)
        check_memory(memory)
        if seed is not None:
            check_counts(0, seed=seed)
        self.model = model
        self.ball = ball
        self.groups = grouping.pixels() if groups is None else groups
        self.batch = batch
        self.progress = progress
        self.memory = memory
        self.seed = seed
        if isinstance(model, Graph):
            self._check_graph(model)

    @abstractmethod
    def _measure(self, task: Task) -> Measured:
        """The overlaps of some samples, and their scores."""

    @abstractmethod
    def _settings(self) -> Mapping[str, Any]:
        """What this explainer adds to the record of how its scores were made."""

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
            check_counts(perturbations_per_eval=perturbations_per_eval)
        mask = _only(feature_mask, "feature masks") if isinstance(feature_mask, tuple) else feature_mask
        groups = self.groups if mask is None else mask
        with torch.enable_grad():  # Captum calls without: an explainer that needs gradients gives the same as by itself
            found = self._explain(inputs, _one_or_each(target), groups, show_progress, perturbations_per_eval)
        return found.attributions

    @property
    def forward_func(self) -> nn.Module | Graph:
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
        self, x: Samples, target: Target, groups: grouping.Groups, show: bool, batch: int | None = None
    ) -> Explanation:
        started = time.perf_counter()
        x = as_samples(x, self.model).detach()
        mask = self._mask(x, groups)
        model = traced(self.model, x)
        self._check_graph(model.graph)
        graph = model.graph.to(x.device, x.dtype)
        with torch.no_grad():
            predicted = torch.cat([graph(part) for part in x.split(self.batch)]).argmax(1)
        aim = predicted if target is None else classes_of(target, len(x), graph.classes, x.device)
        search = _SEARCH if isinstance(self.ball.eps, str) else 0.0
        with part(0.0, search):
            ball = self._ball(graph, x, predicted if self.signed else aim, show)
        generator = torch.Generator(x.device).manual_seed(0 if self.seed is None else self.seed)
        step = batch or self.batch
        parts = []
        bar = Bar(len(x), type(self).__name__, show=show)
        with ThreadPoolExecutor(1) as aside, bar, part(search, 1.0):
            digest = aside.submit(hash_tensor, x)  # which a GPU need not wait for
            for start in range(0, len(x), step):
                piece = slice(start, start + step)
                own = mask if len(mask) == 1 else mask[piece]
                around = _ball_of(ball, piece, x)
                task = Task(graph, x[piece], around, own, aim[piece], predicted[piece], generator)
                with bar.take(len(task.x)):
                    parts.append(_widened(self._measure(task), int(mask.max()) + 1))
        scores = torch.cat([part.scores for part in parts])
        return Explanation(
            x=x,
            scores=scores,
            attributions=spread(scores, mask),
            mask=mask,
            overlap=_together([part.overlap for part in parts]),
            opposite=_together([p.opposite for p in parts if p.opposite is not None]) if parts[0].opposite else None,
            target=aim,
            predicted=predicted,
            signed=self.signed,
            guarantee=self.guarantee,
            method=type(self).__name__,
            settings={
                key: plain(value, _LISTED) for key, value in {**_ball_settings(ball), **self._record(graph)}.items()
            },
            seed=self.seed,
            versions=versions(),
            model_hash=model.digest,
            input_hash=digest.result(),
            seconds=time.perf_counter() - started,
        )

    def _check_graph(self, graph: Graph) -> None:
        """Refuse a network of which parts would have to be bounded that cannot be."""
        if self.guarantee == "certified":
            bounded(graph)
        found = foreign_of(graph)
        if found is not None and isinstance(self.ball.eps, str):
            raise InputError(
                f"got the radius 'auto', which has to be proven, for a model with {found[1].named()}, which has no "
                "rule: give a number, such as pm.Ball(0.02) or --eps 0.02"
            )

    def _record(self, graph: Graph) -> Mapping[str, Any]:
        """The settings, and what of the model was taken off its end."""
        taken = {} if graph.taken_off is None else {"taken_off": graph.taken_off}
        return {**self._settings(), **taken}

    def _mask(self, x: Tensor, groups: grouping.Groups) -> Tensor:
        """(1 or N, *shape) int64, checked."""
        mask = grouping.resolve(groups, x)
        assert mask is not None
        found, _ = resolve_mask(mask, x)
        return found if mask.ndim == x.ndim and len(mask) > 1 else found[:1]

    def _ball(self, graph: Graph, x: Tensor, target: Tensor, show: bool) -> Ball:
        if not isinstance(self.ball.eps, str):
            return self.ball
        with Bar(1, "radius", show=show) as bar, bar.take():
            radius = certified_radius(
                graph,
                x,
                norm=self.ball.norm,
                domain=self.ball.domain,
                bounds=self.bounds,
                target=target,
                memory=self.memory,
            )
        return replace(self.ball, eps=radius)


def _only(tensors: tuple[Samples, ...], what: str) -> Samples:
    if len(tensors) != 1:
        raise InputError(f"got {len(tensors)} {what}, expected one tensor: explain a model of one input")
    return tensors[0]


def _one_or_each(target: Target | list[int]) -> Target:
    """Captum's forms of a target: a tensor with one entry counts for all samples, a list has an entry for each."""
    if isinstance(target, list):
        if not all(isinstance(entry, int) and not isinstance(entry, bool) for entry in target):
            raise InputError(f"got target {target!r}, expected a class number for each sample")
        return torch.tensor(target, dtype=torch.int64)
    return target.reshape(()) if isinstance(target, Tensor) and target.numel() == 1 else target


def _ball_of(ball: Ball, piece: slice, x: Tensor) -> Ball:
    """The ball of some samples of x, which means at them what the whole ball means.

    What is given for each sample is cut. Radii for each variable get the rank of x, so that (d,) cannot be taken for
    one radius a sample where a piece happens to have d of them.
    """

    def cut(value: Any) -> Any:
        each = isinstance(value, Tensor) and value.ndim == x.ndim and len(value) == len(x)
        return value[piece] if each else value

    eps = ball.eps
    if isinstance(eps, Tensor) and eps.ndim > 0:
        one_a_sample = eps.ndim == 1 and len(eps) == len(x)
        eps = eps[piece] if one_a_sample else cut(eps.reshape(*(1,) * (x.ndim - eps.ndim), *eps.shape))
    domain = None if ball.domain is None else (cut(ball.domain[0]), cut(ball.domain[1]))
    return replace(ball, eps=eps, domain=domain)


def _widened(part: Measured, groups: int) -> Measured:
    """With columns for groups that none of these samples has: freezing nothing changes nothing."""
    missing = groups - part.scores.shape[1]
    if not missing:
        return part

    def wide(over: Overlap) -> Overlap:
        return replace(over, frozen=torch.cat([over.frozen, over.full[:, None].expand(-1, missing)], dim=1))

    scores = torch.nn.functional.pad(part.scores, (0, missing))
    return Measured(scores, wide(part.overlap), None if part.opposite is None else wide(part.opposite))


def _together(parts: list[Overlap]) -> Overlap:
    tensors = {f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Overlap) if f.name != "certified"}
    return Overlap(**tensors, certified=parts[0].certified)


def _ball_settings(ball: Ball) -> dict[str, Any]:
    return {"eps": ball.eps, "norm": ball.norm, "domain": ball.domain, "half": ball.half, "relative": ball.relative}
