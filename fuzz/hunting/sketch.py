"""A network in the making: steps that read earlier values, run on probes as they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fuzz.hunting.draw import Draw, Undrawn

LARGEST = 400  # scalars in one sample's value
_HIGH = 1e6


@dataclass(frozen=True)
class Ref:
    """The value of an earlier step; 0 is the input."""

    index: int

    def __repr__(self) -> str:
        return f"v{self.index}"


class Step(nn.Module):
    """One operation on earlier values. Its tensors are buffers, so that they follow the network's precision."""

    def __init__(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.name, self.function, self.kwargs, self.item = name, function, kwargs, 0
        self.args = tuple(self._kept(a) for a in args)

    def _kept(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            name = f"constant{len(self._buffers)}"
            self.register_buffer(name, value)
            return _Buffer(name)
        return [self._kept(v) for v in value] if isinstance(value, list) else value

    def _found(self, value: Any, values: list[Tensor]) -> Any:
        if isinstance(value, Ref):
            return values[value.index]
        if isinstance(value, _Buffer):
            return self._buffers[value.name]
        return [self._found(v, values) for v in value] if isinstance(value, list) else value

    def reads(self) -> list[Ref]:
        parts = [part for a in self.args for part in (a if isinstance(a, list) else [a])]
        return [part for part in parts if isinstance(part, Ref)]

    def results(self, values: list[Tensor]) -> Any:
        """All that the operation returns."""
        return self.function(*(self._found(a, values) for a in self.args), **self.kwargs)

    def forward(self, values: list[Tensor]) -> Tensor:
        out = self.results(values)
        result: Tensor = out[self.item] if isinstance(out, list | tuple) else out
        return result

    def described(self) -> str:
        """As a line to read, its constants by shape, or by value where they are one number."""
        args = [self._word(a) for a in self.args] + [f"{k}={v}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(args)})" + (f"[{self.item}]" if self.item else "")

    def _word(self, value: Any) -> str:
        if isinstance(value, _Buffer):
            tensor = self._buffers[value.name]
            assert tensor is not None
            return str(tensor.item()) if tensor.numel() == 1 else f"tensor{tuple(tensor.shape)}"
        return f"[{', '.join(map(self._word, value))}]" if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class _Buffer:
    name: str


class Network(nn.Module):
    """Steps in a row, each reading any of the values before it; the last is the output."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for step in self.steps:
            values.append(step(values))
        return values[-1]

    def operations(self) -> list[str]:
        return [step.name for step in self.steps if isinstance(step, Step)]

    def described(self) -> list[str]:
        """One line a step."""
        return [f"v{k} = {step.described()}" for k, step in enumerate(self.steps, 1) if isinstance(step, Step)]


class Sketch:
    """What is drawn so far: the steps, and the value of each at the probes (n, *shape)."""

    def __init__(self, draw: Draw, probes: Tensor) -> None:
        self.draw = draw
        self.steps: list[Step] = []
        self.values: list[Tensor] = [probes]

    def __getitem__(self, ref: Ref) -> Tensor:
        return self.values[ref.index]

    @property
    def last(self) -> Ref:
        return Ref(len(self.values) - 1)

    def leaves(self) -> list[Ref]:
        """What no step reads: the last value always, the input never."""
        read = {ref for step in self.steps for ref in step.reads()}
        return [ref for ref in map(Ref, range(1, len(self.values))) if ref not in read]

    def network(self) -> Network:
        return Network(self.steps).eval()

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """Of one sample, which must have axes."""
        if self[ref].ndim < 2:
            raise Undrawn("one number a sample")
        return tuple(self[ref].shape[1:])

    def add(self, op: str, *args: Any, function: Callable[..., Any] | None = None, **kwargs: Any) -> Ref:
        """One more step, if torch takes it and its values at the probes are finite; else `Undrawn`."""
        step = Step(op, function or operator_of(op), args, kwargs)
        try:
            with torch.no_grad():
                out = step.results(self.values)
                if isinstance(out, list | tuple):  # several results: of a split any of them, elsewhere the first
                    step.item = self.draw.whole(0, len(out) - 1) if isinstance(out, list) else 0
                value = step(self.values)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            raise Undrawn(str(error)) from error
        if not value.is_floating_point() or value.ndim < 1 or not 0 < value[0].numel() <= LARGEST:
            raise Undrawn("no value of a useful size")
        if not bool(value.isfinite().all()) or (not self.draw.odd and float(value.abs().max()) > _HIGH):
            raise Undrawn("values that are too large")
        self.steps.append(step)
        self.values.append(value)
        return self.last

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What is added inside is taken back if it comes to nothing."""
        steps, values = len(self.steps), len(self.values)
        try:
            yield
        except Undrawn:
            del self.steps[steps:], self.values[values:]
            raise

    # --- values that suit an operation ---

    def line(self, x: Ref, slope: float, start: float) -> Ref:
        """slope · x + start."""
        return self.add("aten.add.Scalar", self.add("aten.mul.Scalar", x, slope), start)

    def aimed(self, x: Ref, *points: float) -> Ref:
        """Sometimes a line of x that reaches beyond one of the points on both sides: where a function bends."""
        if not points or self.draw.chance(0.5):
            return x
        low, high = float(self[x].min()), float(self[x].max())
        if high - low < 1e-300:
            return x
        slope = self.draw.pick([1.0, 1.0, 0.1, 5.0]) / (high - low)
        return self.line(x, slope, self.draw.pick(points) - slope * self.draw.between(low, high))

    def positive(self, x: Ref) -> Ref:
        """A value above zero at every probe, by some margin."""
        low, high = float(self[x].min()), float(self[x].max())
        margin = self.draw.pick([0.05, 0.5, 2.0]) * max(high - low, 0.1)
        return self.add("aten.add.Scalar", x, margin - low)

    def kink(self, x: Ref) -> float:
        """A number that x takes, or nearly."""
        flat = self[x].flatten()
        return float(flat[self.draw.whole(0, flat.numel() - 1)]) * self.draw.pick([1.0, 1.0, 0.9])

    def partner(self, x: Ref) -> Ref | None:
        """Another value that broadcasts with x, of its rank."""
        shape = tuple(self[x].shape[1:])
        fitting = [
            Ref(k)
            for k in range(len(self.values))
            if k != x.index
            and self.values[k].ndim == len(shape) + 1
            and all(a == b or 1 in (a, b) for a, b in zip(self.values[k].shape[1:], shape, strict=True))
        ]
        return self.draw.pick(fitting) if fitting else None

    def operand(self, x: Ref) -> Ref | Tensor:
        """What meets x in a sum or a maximum: an earlier value, or a constant that broadcasts in some way."""
        other = self.partner(x) if self.draw.chance(0.5) else None
        return self.draw.tensor(*self.draw.like(self.shape(x))) if other is None else other


def operator_of(op: str) -> Callable[..., Any]:
    """torch's operator of the name that export gives it: "aten.relu.default"."""
    package, *path = op.split(".")
    operator: Any = torch.ops
    for name in (package, *path):
        operator = getattr(operator, name)
    function: Callable[..., Any] = operator
    return function
