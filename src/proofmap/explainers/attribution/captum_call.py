"""Captum's call `attribute`, and the names that Captum's NoiseTunnel and sensitivity_max read."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar, overload

from torch import Tensor

from proofmap.graph import Network
from proofmap.inputs.array_types import Samples, Target

_P = ParamSpec("_P")
_R = TypeVar("_R")


def wrapped_once_more(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap the method once more, because Captum's NoiseTunnel calls `attribute.__wrapped__`."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(*args, **kwargs)

    return call


class CaptumSettings(NamedTuple):
    """The further arguments of Captum's call."""

    feature_mask: Samples | tuple[Samples | None, ...] | None
    perturbations_per_eval: int | None
    show_progress: bool


class CaptumCall(ABC):
    """An explainer that Captum's methods can call."""

    @overload
    def attribute(
        self,
        inputs: Samples,
        target: Target | list[int] = None,
        feature_mask: Samples | tuple[Samples | None, ...] | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
    ) -> Tensor: ...

    @overload
    def attribute(
        self,
        inputs: tuple[Samples, ...],
        target: Target | list[int] = None,
        feature_mask: Samples | tuple[Samples | None, ...] | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
    ) -> tuple[Tensor, ...]: ...

    @wrapped_once_more
    def attribute(
        self,
        inputs: Samples | tuple[Samples, ...],
        target: Target | list[int] = None,
        feature_mask: Samples | tuple[Samples | None, ...] | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Captum's call: the attributions of `explain`, shaped like the inputs; a tuple of one gives a tuple of one.

        NoiseTunnel and sensitivity_max add noise to the inputs, which leaves a domain such as (0, 1). An input outside
        the domain raises InputError; it is not clamped silently. For these methods, wrap the explainer in
        `pm.explainers.ClampedInputs`.

        Args:
            inputs: Samples (N, *shape), or a tuple with one tensor for each argument of the model.
            target: A class, or one per sample.
            feature_mask: Groups in place of the explainer's own, (1, *shape) for all samples or (N, *shape).
            perturbations_per_eval: The number of samples per pass.
            show_progress: Show a progress bar.

        Returns:
            The attributions.
        """
        return self._attributions(inputs, target, CaptumSettings(feature_mask, perturbations_per_eval, show_progress))

    @abstractmethod
    def _attributions(
        self, inputs: Samples | tuple[Samples, ...], target: Target | list[int], how: CaptumSettings
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the attributions that `attribute` returns."""

    @property
    @abstractmethod
    def forward_func(self) -> Network:
        """The model, under the name that Captum's methods expect."""

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: attributions are not multiplied by the inputs. Captum reads this property."""
        return False

    def has_convergence_delta(self) -> bool:
        """Return False: attributions need not sum to a fixed value. Captum calls this method."""
        return False
