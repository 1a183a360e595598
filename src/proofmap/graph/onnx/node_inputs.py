"""One node of an ONNX file, and its inputs in the form an operator wants them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant
from proofmap.graph.sliding_windows import SlidingWindow

# Precisions inside an operator, orders of results that are not read, sizes that weights have, and marks of training
_WITHOUT_EFFECT = {
    *("stash_type", "softmax_precision", "storage_order", "hidden_size", "multi_class", "extrapolation_value"),
    *(
        "momentum",
        "ratio",
        "seed",
        "is_test",
        "consumed_inputs",
        "saturate",
        "round_mode",
        "kernel_shape",
        "num_outputs",
    ),
    *("inputdimensions", "imputed_value_floats", "qk_matmul_output_mode", "classlabels_strings", "classlabels_ints"),
}


@dataclass(frozen=True)
class Call:
    """One node of a file: what it is called, and its attributes; `used` remembers which of them were looked at."""

    name: str
    op: str
    opset: int
    attributes: dict[str, Any]
    outputs: int = 1
    used: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        return self.attributes.get(name, default)

    @property
    def ignored(self) -> list[str]:
        """Attributes that nothing has looked at, and that may mean something: a newer opset has new ones."""
        return sorted(self.attributes.keys() - self.used - _WITHOUT_EFFECT)

    def get_all(self, **defaults: Any) -> Iterator[Any]:
        """Several attributes in turn."""
        return (self.get(name, default) for name, default in defaults.items())

    def sliding_window(self, kernel: Sequence[int]) -> SlidingWindow:
        """How a window of this size moves, as the attributes have it."""
        rank = len(kernel)
        pads = list(self.get("pads", [0] * 2 * rank))
        padding = list(zip(pads[:rank], pads[rank:], strict=True))
        return SlidingWindow.of(kernel, self.get("strides"), padding, self.get("dilations"))


def require_computed(value: Value | None) -> str:
    """The value, if it depends on the input."""
    if not isinstance(value, str):
        raise NoRule("of a constant by a branch")
    return value


def numbers(call: Call, what: str, value: Value | None) -> list[int] | None:
    """Whole numbers that are an attribute in old opsets and an input in new ones."""
    if value is None:
        listed = call.get(what)
        return None if listed is None else [int(n) for n in listed]
    return [int(n) for n in require_constant(value, what).flatten().tolist()]


def number(call: Call, what: str, value: Value | None, default: float) -> float:
    """The same for a single number."""
    return float(call.get(what, default)) if value is None else float(require_constant(value, what).double().item())


def axes_of(b: Builder, call: Call, x: str, axes: Sequence[int]) -> list[int]:
    """Axes of the batched value as axes of one sample."""
    return [b.axis(call.name, call.op, axis, b.rank(x)) for axis in axes]
