"""Builder of a random torch network: each step is run on probe inputs as soon as it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fuzz.hunting.draw import Draw, Undrawn

MAX_VALUE_SCALARS = 400  # size of one sample's value
_MAX_ABSOLUTE_VALUE = 1e6  # except in odd networks


@dataclass(frozen=True)
class Ref:
    """The value of a step, by its number; 0 is the input."""

    index: int

    def __repr__(self) -> str:
        return f"v{self.index}"


class Step(nn.Module):
    """One operation on earlier values. Its tensors are buffers, so that they take the network's precision."""

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
        """Return everything that the operation returns."""
        return self.function(*(self._found(a, values) for a in self.args), **self.kwargs)

    def forward(self, values: list[Tensor]) -> Tensor:
        out = self.results(values)
        result: Tensor = out[self.item] if isinstance(out, list | tuple) else out
        return result

    def described(self) -> str:
        """Write the step as one line; constants by their shape, or by value if they are one number."""
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
    """A sequence of steps; each may read any earlier value, and the last one is the output."""

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
        """Write one line for each step."""
        return [f"v{k} = {step.described()}" for k, step in enumerate(self.steps, 1) if isinstance(step, Step)]


class Sketch:
    """The steps drawn so far, and the value of each at the probes (n, *shape)."""

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
        """Return the values that no step reads, without the input; the last value is always among them."""
        read = {ref for step in self.steps for ref in step.reads()}
        return [ref for ref in map(Ref, range(1, len(self.values))) if ref not in read]

    def network(self) -> Network:
        return Network(self.steps).eval()

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """Return the shape of one sample; raise Undrawn if it has no axes."""
        if self[ref].ndim < 2:
            raise Undrawn("one number a sample")
        return tuple(self[ref].shape[1:])

    def add(self, op: str, *args: Any, function: Callable[..., Any] | None = None, **kwargs: Any) -> Ref:
        """Add a step; raise Undrawn if torch refuses it or its values at the probes are not finite."""
        step = Step(op, function or operator_of(op), args, kwargs)
        try:
            with torch.no_grad():
                out = step.results(self.values)
                if isinstance(out, list | tuple):  # any part of a split, otherwise the first result
                    step.item = self.draw.whole(0, len(out) - 1) if isinstance(out, list) else 0
                value = step(self.values)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            raise Undrawn(str(error)) from error
        if not value.is_floating_point() or value.ndim < 1 or not 0 < value[0].numel() <= MAX_VALUE_SCALARS:
            raise Undrawn("no value of a useful size")
        if not bool(value.isfinite().all()) or (not self.draw.odd and float(value.abs().max()) > _MAX_ABSOLUTE_VALUE):
            raise Undrawn("values that are too large")
        self.steps.append(step)
        self.values.append(value)
        return self.last

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Remove the steps that the block has added if it raises Undrawn."""
        steps, values = len(self.steps), len(self.values)
        try:
            yield
        except Undrawn:
            del self.steps[steps:], self.values[values:]
            raise

    # --- values that suit an operation ---

    def line(self, x: Ref, slope: float, start: float) -> Ref:
        """Return slope · x + start."""
        return self.add("aten.add.Scalar", self.add("aten.mul.Scalar", x, slope), start)

    def aimed(self, x: Ref, *points: float) -> Ref:
        """Return x, or sometimes a line of x that passes one of the points, where a function bends."""
        if not points or self.draw.chance(0.5):
            return x
        low, high = float(self[x].min()), float(self[x].max())
        if high - low < 1e-300:
            return x
        slope = self.draw.pick([1.0, 1.0, 0.1, 5.0]) / (high - low)
        return self.line(x, slope, self.draw.pick(points) - slope * self.draw.between(low, high))

    def positive(self, x: Ref) -> Ref:
        """Return a value that is above zero at every probe."""
        low, high = float(self[x].min()), float(self[x].max())
        margin = self.draw.pick([0.05, 0.5, 2.0]) * max(high - low, 0.1)
        return self.add("aten.add.Scalar", x, margin - low)

    def kink(self, x: Ref) -> float:
        """Return a number equal or close to an entry of x."""
        flat = self[x].flatten()
        return float(flat[self.draw.whole(0, flat.numel() - 1)]) * self.draw.pick([1.0, 1.0, 0.9])

    def partner(self, x: Ref) -> Ref | None:
        """Return another value of the same rank that broadcasts with x, or None."""
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
        """Return the second operand of a sum or maximum: an earlier value, or a constant that broadcasts."""
        other = self.partner(x) if self.draw.chance(0.5) else None
        return self.draw.tensor(*self.draw.like(self.shape(x))) if other is None else other


def operator_of(op: str) -> Callable[..., Any]:
    """Return torch's operator for the name in an exported program, such as "aten.relu.default"."""
    package, *path = op.split(".")
    operator: Any = torch.ops
    for name in (package, *path):
        operator = getattr(operator, name)
    function: Callable[..., Any] = operator
    return function
