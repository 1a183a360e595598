"""One node of an ONNX file (`Call`), and conversions of its inputs for the converters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant
from proofmap.graph.sliding_windows import SlidingWindow

# Attributes that change no result here: inner precisions, orders of unread results, sizes that the weights also have,
# and settings of training.
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


@dataclass
class Call:
    """One node of a file with its attributes. It changes: `used` records the attributes that were read so far."""

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
        """Attributes that were not read and may change the result, for instance those of a newer opset."""
        return sorted(self.attributes.keys() - self.used - _WITHOUT_EFFECT)

    def get_all(self, **defaults: Any) -> Iterator[Any]:
        """Yield several attributes, with these defaults."""
        return (self.get(name, default) for name, default in defaults.items())

    def sliding_window(self, kernel: Sequence[int]) -> SlidingWindow:
        """Return the sliding window of this kernel size, with the strides, pads and dilations of the attributes."""
        rank = len(kernel)
        pads = list(self.get("pads", [0] * 2 * rank))
        padding = list(zip(pads[:rank], pads[rank:], strict=True))
        return SlidingWindow.of(kernel, self.get("strides"), padding, self.get("dilations"))


def require_computed(value: Value | None) -> str:
    """Return the value if it is computed from the input; otherwise the operation has no rule."""
    if not isinstance(value, str):
        raise NoRule("of a constant by a computed value")
    return value


def numbers(call: Call, what: str, value: Value | None) -> list[int] | None:
    """Return integers that are an attribute in old opsets and an input in new ones."""
    if value is None:
        listed = call.get(what)
        return None if listed is None else [int(n) for n in listed]
    return [int(n) for n in require_constant(value, what).flatten().tolist()]


def number(call: Call, what: str, value: Value | None, default: float) -> float:
    """Return a number that is an attribute in old opsets and an input in new ones."""
    return float(call.get(what, default)) if value is None else float(require_constant(value, what).double().item())


def axes_of(b: Builder, call: Call, x: str, axes: Sequence[int]) -> list[int]:
    """Convert axes of the batched value to axes of one sample."""
    return [b.axis(call.name, call.op, axis, b.rank(x)) for axis in axes]
