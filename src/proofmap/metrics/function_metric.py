"""A plain function as a metric: one number per sample, for `pm.compare` and for direct calls."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from inspect import signature
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.inputs.array_types import Maps
from proofmap.metrics.metric import Case, Metric, Presets, table
from proofmap.settings import check_flag, count
from proofmap.storage.records import JSON

MetricFunction: TypeAlias = Callable[[Graph, Tensor, Tensor, Tensor], Any]

_EXPECTED = "(model, x, target, attributions) -> one number per sample"


@dataclass(frozen=True, eq=False)
class FunctionMetric(Metric[Maps]):
    """The metric f(model, x, target, attributions) of a function f, which returns one number for each sample.

    The function gets the network as a `pm.Graph` that is called like the module, the samples x (N, *shape), their
    classes (N,), and the attributions in float64 and the shape of x. It returns N numbers as a tensor, an array or a
    list. NaN means that a sample has no value. `pm.compare` accepts the function itself, with higher values as better.

    function: the function f.
    title: the name in tables, by default the name of the function.
    higher: whether higher values are better.

    >>> def largest(network, x, target, attributions):
    ...     return attributions.flatten(1).amax(1)
    >>> pm.metrics.FunctionMetric(largest, higher=False)(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "function"
    label: ClassVar[str] = "Function"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = table(function=())

    function: MetricFunction
    _: KW_ONLY
    title: str | None = None
    higher: bool = True
    preset: str = "function"
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse a function with other arguments. Name the metric after its function."""
        super().__post_init__()
        check_flag("FunctionMetric got higher", self.higher)
        if self.title is not None and not isinstance(self.title, str):
            raise InputError(f"FunctionMetric got title={self.title!r}, expected a text")
        if not callable(self.function) or isinstance(self.function, type):
            raise InputError(f"FunctionMetric got {self.function!r:.60}, expected a function {_EXPECTED}")
        own = getattr(self.function, "__name__", type(self.function).__name__)
        own = "function" if own == "<lambda>" else own
        _check_arguments(self.function, own)
        for name, value in {"name": self.title or own, "label": self.title or own}.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "higher_is_better", self.higher)

    def settings(self) -> dict[str, JSON]:
        """Return the name of the function. Its own settings are unknown."""
        kind = type(self.function)
        return {"function": getattr(self.function, "__qualname__", kind.__qualname__)}

    def _values(self, case: Case) -> Tensor:
        given = self.function(case.graph, case.x, case.target, case.subject)
        try:
            values = torch.as_tensor(given).detach().to(case.x.device, torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(
                f"the metric {self.name} gave a {type(given).__name__}, expected {_result(case)}"
            ) from None
        if values.shape != case.target.shape:
            raise InputError(f"the metric {self.name} gave the shape {tuple(values.shape)}, expected {_result(case)}")
        return values


def _result(case: Case) -> str:
    return f"one number for each of {len(case.x)} samples, ({len(case.x)},)"


def _check_arguments(function: Callable[..., Any], name: str) -> None:
    """Raise InputError for a function that cannot be called with a model, samples, classes and attributions."""
    try:
        signature(function).bind(None, None, None, None)
    except TypeError:
        takes = ", ".join(signature(function).parameters)
        raise InputError(f"the metric {name} takes ({takes}), expected a function {_EXPECTED}") from None
    except ValueError:  # the signature of a builtin is unknown
        return
