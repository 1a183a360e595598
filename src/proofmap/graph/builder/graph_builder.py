"""The graph builder: both readers use it to write a model in the operations of `graph.ops`.

A value is a node's name (a computed value, which depends on the input) or a constant tensor. Methods for constants,
sums and shapes are here. Other layers are functions of the builder, in the other modules of this folder. A function may
add several nodes. The last one then gets the name that was asked for (`name_result`), so that a node with the name of
a user's layer has that layer's value.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph.builder.output_shapes import broadcast_shapes, output_shape
from proofmap.graph.ir import Graph, Node
from proofmap.graph.rewrite.entry_axis import with_entry_axis
from proofmap.graph.rewrite.fold import fold_constants
from proofmap.graph.rewrite.probability_head import without_probability_head
from proofmap.graph.walk import ancestors

Value = str | Tensor
OptionalWeight = Tensor | None  # the weight or bias of a node, None if it has none

MAX_SCALARS = 2**27  # largest size of one sample's value: a file with more scalars is damaged rather than large


class NoRule(Exception):  # noqa: N818 (not a user's error: it never leaves this package)
    """The current operation cannot be written in `graph.ops`; the text says which form of it. Reading goes on."""


class TooLargeError(ModelError):
    """A value or constant has more scalars than a sound file: nothing of it is computed."""


class MixedSamplesError(ModelError):
    """An operation (node, name) mixes the sample dimension with another dimension."""

    def __init__(self, node: str, op: str) -> None:
        self.node = node
        self.op = op
        super().__init__(
            f"{op} (node {node!r}) mixes the samples of a batch, expected every sample to be computed on its own: "
            "keep dimension 0 for the samples, from the input to the output"
        )

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """The operation as one without a rule, for a part that is run as it is: (node, operation)."""
        return ((self.node, f"{self.op} that moves the samples off dimension 0"),)


def scalar(value: float) -> Tensor:
    """Return a constant in double precision; it is rounded when the graph takes the model's precision."""
    return torch.tensor(value, dtype=torch.float64)


def require_constant(value: Any, what: str) -> Tensor:
    """Return the value if it is a constant; otherwise the operation has no rule."""
    if not isinstance(value, Tensor):
        raise NoRule(f"with computed {what}")
    return value


class Builder:
    """Collects the nodes of one model.

    batch: the size of the sample dimension in the shapes that the reader sees.
    precision: the precision of the model's constants; two constants that agree up to its rounding count as equal.
    """

    batch_axes = 1  # the number of leading axes for samples in the shapes that the reader sees (0 or 1)

    def __init__(
        self, shape: Sequence[int], batch: int, name: str = "input", precision: torch.dtype = torch.float64
    ) -> None:
        self.batch = batch
        self.precision = precision
        self.input = name
        self.nodes: dict[str, Node] = {name: Node(name, "input", (), tuple(shape))}
        self.missing: dict[str, str] = {}  # the operation of each placeholder without a rule
        self.whole: set[str] = set()  # values of integer types
        self.binary: set[str] = set()  # those of them that are 0 or 1 everywhere
        self.mixing: dict[str, ModelError] = {}  # the error of each placeholder whose value cannot be followed
        self.check_size(name, "input", shape)

    def finish(self, output: Value, device: torch.device, dtype: torch.dtype) -> Graph:
        """Return the folded and checked graph. If operations without a rule are needed, one error names all of them."""
        if isinstance(output, Tensor):
            raise ModelError("the model's output does not depend on its input: nothing can be explained")
        output, taken_off = without_probability_head(self, output)
        needed = ancestors(self.nodes.values(), output)
        missing = [(name, op) for name, op in self.missing.items() if name in needed]
        mixing = next((error for name, error in self.mixing.items() if name in needed), None)
        if missing:
            raise UnsupportedError(missing) from mixing
        if mixing is not None:
            raise mixing
        shape = self.shape(output)
        if len(shape) != 1:  # the rows of outputs of any shape are flat
            output = self.reshape(self._free("outputs"), output, (prod(shape),))
            needed.add(output)
        nodes = tuple(node for node in self.nodes.values() if node.name in needed or node.op == "input")
        for node in nodes:
            _check_constants(node, dtype)
        graph = Graph(nodes, output, taken_off, output_shape=shape if len(shape) > 1 else None)
        return fold_constants(with_entry_axis(graph)).to(device, dtype)

    def add_node(
        self,
        name: str,
        op: str,
        inputs: Sequence[str],
        *,
        weight: OptionalWeight = None,
        bias: OptionalWeight = None,
        **settings: Any,
    ) -> str:
        """Add a node under a free name."""
        name = self._free(name)
        node = Node(name, op, tuple(inputs), (), _as_float(weight), _as_float(bias), settings)
        try:
            shape = output_shape(node, [self.shape(i) for i in inputs])
        except (RuntimeError, ValueError, IndexError, TypeError, KeyError) as error:
            raise ModelError(f"{op} (node {name!r}) does not fit its input: {error}") from error
        self.check_size(name, op, shape)
        self.nodes[name] = replace(node, shape=shape)
        return name

    def _free(self, name: str) -> str:
        if name not in self.nodes:
            return name
        return next(f"{name}#{k}" for k in range(2, len(self.nodes) + 3) if f"{name}#{k}" not in self.nodes)

    def name_result(self, name: str, value: Any, since: int) -> Any:
        """Rename the last node of a function from its longer name to `name`, and return it.

        since: the number of nodes before the function was called; older nodes keep their names.
        """
        last = next(reversed(self.nodes))
        if value != last or len(self.nodes) == since or name in self.nodes or not last.startswith(f"{name}."):
            return value
        self.nodes[name] = replace(self.nodes.pop(last), name=name)
        for values in (self.whole, self.binary):
            values.update([name] if last in values else [])
        return name

    def add_unsupported(
        self, name: str, op: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any
    ) -> str:
        """Add a placeholder for an operation without a rule, so that reading goes on and all such operations are found.

        If the output does not depend on it, there is no error.
        """
        name = self._add_placeholder(name, inputs, shape, attributes)
        self.missing[name] = op
        return name

    def add_broken(self, name: str, inputs: Sequence[str], shape: Sequence[int], error: ModelError) -> str:
        """Add a placeholder for a value that mixes samples or depends on a placeholder. Any other error is raised.

        Reading goes on, to find all operations without a rule.
        """
        known = not ancestors(self.nodes.values(), *inputs) & {*self.missing, *self.mixing}
        if isinstance(error, TooLargeError):
            raise error
        if known and not isinstance(error, MixedSamplesError):  # a constant may have the size of mixed samples
            raise next(iter(self.mixing.values()), error)
        name = self._add_placeholder(name, inputs, shape, {})
        self.mixing[name] = error
        return name

    def _add_placeholder(
        self, name: str, inputs: Sequence[str], shape: Sequence[int], attributes: dict[str, Any]
    ) -> str:
        name = self._free(name)
        self.nodes[name] = Node(name, "unsupported", tuple(inputs), tuple(shape), attributes=attributes)
        return name

    def check_size(self, name: str, op: str, shape: Sequence[int]) -> None:
        """Raise if a value of one sample is empty or too large."""
        if prod(shape) > MAX_SCALARS or prod(shape) < 1:
            raise TooLargeError(
                f"{op} (node {name!r}) has shape {tuple(shape)}, expected 1 to {MAX_SCALARS} scalars a sample"
            )

    def shape(self, value: str) -> tuple[int, ...]:
        return self.nodes[value].shape

    def batched_shape(self, value: Value) -> tuple[int, ...]:
        """The shape with the sample dimension; the shape of a constant as it is."""
        return (self.batch, *self.shape(value)) if isinstance(value, str) else tuple(value.shape)

    def rank(self, value: str) -> int:
        """The number of axes with the sample dimension."""
        return len(self.shape(value)) + 1

    def axis(self, name: str, op: str, axis: int, rank: int) -> int:
        """Convert an axis of the batched tensor to an axis of one sample; `rank` is the batched rank."""
        if not -rank <= axis < rank:
            raise ModelError(f"{op} (node {name!r}) names axis {axis} of a value with {rank} axes")
        if axis % rank == 0:
            raise MixedSamplesError(name, op)
        return axis % rank - 1

    def sample_constant(self, name: str, op: str, value: Tensor, rank: int) -> Tensor:
        """Return a constant that is combined with a batched tensor of this rank, in the shape for one sample."""
        if value.ndim < rank:
            return value
        same = value.ndim == rank and value.shape[0] in (1, self.batch)
        if not same or not torch.equal(value, value[:1].expand_as(value)):
            raise MixedSamplesError(name, op)
        return value[0]

    # --- sums and constants ---

    def affine(self, name: str, x: str, scale: OptionalWeight, shift: OptionalWeight) -> str:
        """Add x · scale + shift with constants that broadcast against one sample."""
        scale = None if scale is not None and _is_number(scale, 1.0) else scale
        shift = None if shift is not None and _is_number(shift, 0.0) else shift
        x = self.broadcast_to(name, x, *(t for t in (scale, shift) if t is not None))
        return x if scale is None and shift is None else self.add_node(name, "affine", [x], weight=scale, bias=shift)

    def broadcast_to(self, name: str, x: str, *constants: Tensor) -> str:
        """Expand x to the shape that it has together with constants, which may be larger."""
        try:
            target = broadcast_shapes(self.shape(x), *(constant.shape for constant in constants))
        except ValueError as error:
            raise ModelError(f"node {name!r} joins shapes that do not fit: {error}") from error
        return self.expand(f"{name}.expand", x, target)

    def scale(self, name: str, x: str, factor: float) -> str:
        return self.affine(name, x, scalar(factor), None)

    def add(self, name: str, a: Value, b: Value) -> str:
        if isinstance(a, Tensor):
            a, b = b, a
        assert isinstance(a, str)
        if isinstance(b, Tensor):
            return self.affine(name, a, None, self.sample_constant(name, "add", b, self.rank(a)))
        return self.add_node(name, "add", self.broadcast(name, a, b))

    def sub(self, name: str, a: Value, b: Value) -> str:
        return self.add(name, a, -b if isinstance(b, Tensor) else self.scale(f"{name}.negated", b, -1.0))

    def broadcast(self, name: str, a: str, b: str) -> tuple[str, str]:
        """Expand two computed values to their common shape."""
        if self.rank(a) != self.rank(b):
            raise MixedSamplesError(name, "broadcasting of values of different rank")
        target = self.broadcast_shapes(name, self.shape(a), self.shape(b))
        return self.expand(f"{name}.expand", a, target), self.expand(f"{name}.expand", b, target)

    def broadcast_shapes(self, name: str, one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
        """Return the common shape of two shapes."""
        try:
            return broadcast_shapes(one, other)
        except ValueError as error:
            raise ModelError(f"node {name!r} joins shapes {tuple(one)} and {tuple(other)}: {error}") from error

    def reduce(self, name: str, x: str, axes: Sequence[int], *, keepdim: bool, mean: bool) -> str:
        """Add the sum or mean over axes of one sample."""
        y = self.add_node(f"{name}.sum", "sum", [x], axes=tuple(axes), keepdim=keepdim)
        return self.scale(name, y, 1.0 / prod(self.shape(x)[axis] for axis in axes)) if mean else y

    # --- shapes ---

    def reshape(self, name: str, x: str, shape: Sequence[int]) -> str:
        return x if tuple(shape) == self.shape(x) else self.add_node(name, "reshape", [x], shape=tuple(shape))

    def batched_reshape(self, name: str, op: str, x: str, shape: Sequence[int]) -> str:
        """Reshape to a shape that includes the sample dimension; one entry may be -1."""
        shape = self.resolve_shape(name, op, self.batch * prod(self.shape(x)), shape)
        if not shape or shape[0] != self.batch:
            raise MixedSamplesError(name, op)
        return self.reshape(name, x, shape[1:])

    def resolve_shape(self, name: str, op: str, size: int, shape: Sequence[int]) -> Sequence[int]:
        """Return the shape for `size` scalars; one entry may be -1."""
        if -1 in shape:
            shape = [size // max(1, -prod(shape)) if s == -1 else s for s in shape]
        if prod(shape) != size:
            raise ModelError(f"{op} (node {name!r}) does not fit its input: {size} scalars into {tuple(shape)}")
        return shape

    def permute(self, name: str, op: str, x: str, axes: Sequence[int]) -> str:
        """Permute axes; `axes` includes the sample axis, first."""
        rank = len(self.shape(x)) + 1
        axes = [axis % rank for axis in axes]
        if axes and axes[0] != 0:
            raise MixedSamplesError(name, op)
        if axes == list(range(rank)):
            return x
        return self.add_node(name, "permute", [x], axes=tuple(axis - 1 for axis in axes[1:]))

    def expand(self, name: str, x: str, shape: Sequence[int]) -> str:
        return x if tuple(shape) == self.shape(x) else self.add_node(name, "expand", [x], shape=tuple(shape))

    def batched_expand(self, name: str, op: str, x: str, shape: Sequence[int]) -> str:
        """Expand to a shape that includes the sample dimension."""
        if len(shape) != self.rank(x) or shape[0] != self.batch:
            raise MixedSamplesError(name, op)
        return self.expand(name, x, shape[1:])


def _as_float(value: OptionalWeight) -> OptionalWeight:
    return value if value is None or value.is_floating_point() else value.double()


def _is_number(value: Tensor, number: float) -> bool:
    """Return whether the constant is this single number."""
    return value.numel() == 1 and value.item() == number and value.ndim == 0


def _check_constants(node: Node, dtype: torch.dtype) -> None:
    """Raise if a constant is not finite, or becomes 0 or infinite in the model's precision."""
    for what, tensor in (("weight", node.weight), ("bias", node.bias)):
        if tensor is None:
            continue
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(
                f"the {what} of {node.op} (node {node.name!r}) has NaN or infinite entries, expected finite ones: "
                "check how the model was trained or loaded"
            )
        cast = tensor.to(dtype)
        beyond = ~cast.isfinite() | ((cast == 0) & (tensor != 0))
        if bool(beyond.any()):
            raise ModelError(
                f"the {what} of {node.op} (node {node.name!r}) has the entry {tensor[beyond][0].item():g}, which "
                f"{dtype} cannot hold: scale the model, or use model.double()"
            )
