"""Building a graph: every front end says what it read in these words, and gets the same small set of operations.

A value is a node's name or a constant tensor. The words for shapes and sums are here; others stand in files of their
own, as functions of the builder: `picks`, `moves`, `layers`, `pools`, `sums`, `scalars`. A word may take several nodes;
what it returns is then renamed (`settle`), so that a name stands for the value of what the user called so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph.builder.sample_axis import with_axes
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import compute
from proofmap.graph.rewrite.fold import fold
from proofmap.graph.rewrite.probability_head import no_classes, without_last
from proofmap.graph.walk import before

Value = str | Tensor
Weight = Tensor | None  # of a node that may have none

LIMIT = 2**27  # scalars in one sample's value; beyond it a file is damaged rather than large


class NoRule(Exception):  # noqa: N818 (not an error of the user's: it never leaves this package)
    """The operation at hand cannot be written in ours; the text says which form of it. The front end reads on."""


class LargeError(ModelError):
    """More numbers than a sound file has: nothing of it is run."""


class MixedError(ModelError):
    """The sample dimension was mixed with another, by an operation (node, name)."""

    def __init__(self, node: str, op: str) -> None:
        self.node = node
        self.op = op
        super().__init__(
            f"{op} (node {node!r}) mixes the samples of a batch, expected every sample to be computed on its own: "
            "keep dimension 0 for the samples, from the input to the output"
        )

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """The operation as one without a rule, for what is run as it is: (node, operation)."""
        return ((self.node, f"{self.op} that moves the samples off dimension 0"),)


def scalar(value: float) -> Tensor:
    """A constant of the lowering, exact until the graph takes on the model's precision."""
    return torch.tensor(value, dtype=torch.float64)


def constant(value: Any, what: str) -> Tensor:
    """The value, if it is known now."""
    if not isinstance(value, Tensor):
        raise NoRule(f"with computed {what}")
    return value


class Builder:
    """Collects nodes for one model. `batch` is the size of the sample dimension in what the front end reads, and
    `precision` that of the model's constants: what they are rounded to counts as what they are meant to be.
    """

    lead = 1  # how many axes of what the front end reads are for samples: the first

    def __init__(
        self, shape: Sequence[int], batch: int, name: str = "input", precision: torch.dtype = torch.float64
    ) -> None:
        self.batch = batch
        self.precision = precision
        self.input = name
        self.nodes: dict[str, Node] = {name: Node(name, "input", (), tuple(shape))}
        self.missing: dict[str, str] = {}  # the operation of each placeholder
        self.mixing: dict[str, ModelError] = {}  # of placeholders for what cannot be followed
        self.fits(name, "input", shape)

    def finish(self, output: Value, device: torch.device, dtype: torch.dtype) -> Graph:
        """The graph, folded and checked; one error names every operation without a rule."""
        if isinstance(output, Tensor):
            raise ModelError("the model's output does not depend on its input: nothing can be explained")
        output, taken_off = without_last(self, output)
        needed = before(self.nodes.values(), output)
        missing = [(name, op) for name, op in self.missing.items() if name in needed]
        mixing = next((error for name, error in self.mixing.items() if name in needed), None)
        if missing:
            raise UnsupportedError(missing) from mixing
        if mixing is not None:
            raise mixing
        if len(self.shape(output)) != 1:
            raise no_classes("model", self.shape(output))
        nodes = tuple(node for node in self.nodes.values() if node.name in needed or node.op == "input")
        for node in nodes:
            _check_constants(node, dtype)
        return fold(with_axes(Graph(nodes, output, taken_off))).to(device, dtype)

    def add_node(
        self, name: str, op: str, inputs: Sequence[str], *, weight: Weight = None, bias: Weight = None, **settings: Any
    ) -> str:
        """A node under a name that is free; its shape comes from running the operation on nothing (meta tensors)."""
        name = self._free(name)
        node = Node(name, op, tuple(inputs), (), _floating(weight), _floating(bias), settings)
        meta, dtype = torch.device("meta"), torch.float64
        values = [torch.empty(2, *self.shape(i), dtype=dtype, device=meta) for i in inputs]
        try:
            out = compute(node.to(meta, dtype), *values)
        except (RuntimeError, ValueError, IndexError, TypeError, KeyError) as error:
            raise ModelError(f"{op} (node {name!r}) does not fit its input: {error}") from error
        shape = tuple(out.shape[1:])
        self.fits(name, op, shape)
        self.nodes[name] = replace(node, shape=shape)
        return name

    def _free(self, name: str) -> str:
        if name not in self.nodes:
            return name
        return next(f"{name}#{k}" for k in range(2, len(self.nodes) + 3) if f"{name}#{k}" not in self.nodes)

    def settle(self, name: str, value: Any, since: int) -> Any:
        """What a word returned, under the name it was asked for: its last node may have a longer one.

        `since` is the number of nodes before the word: what others made keeps its name.
        """
        last = next(reversed(self.nodes))
        if value != last or len(self.nodes) == since or name in self.nodes or not last.startswith(f"{name}."):
            return value
        self.nodes[name] = replace(self.nodes.pop(last), name=name)
        return name

    def unsupported(self, name: str, op: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any) -> str:
        """A placeholder for an operation without a rule: reading goes on, so that all of them can be named.

        Where the output turns out not to need it, there is no error.
        """
        name = self._placed(name, inputs, shape, attributes)
        self.missing[name] = op
        return name

    def lost(self, name: str, inputs: Sequence[str], shape: Sequence[int], error: ModelError) -> str:
        """A placeholder for what cannot be followed, as it mixes samples or comes after a placeholder: the search for
        operations without a rule goes on behind it. Any other error is raised.
        """
        known = not before(self.nodes.values(), *inputs) & {*self.missing, *self.mixing}
        if isinstance(error, LargeError):
            raise error
        if known and not isinstance(error, MixedError):  # a constant may have the size of samples that were mixed
            raise next(iter(self.mixing.values()), error)
        name = self._placed(name, inputs, shape, {})
        self.mixing[name] = error
        return name

    def _placed(self, name: str, inputs: Sequence[str], shape: Sequence[int], attributes: dict[str, Any]) -> str:
        name = self._free(name)
        self.nodes[name] = Node(name, "unsupported", tuple(inputs), tuple(shape), attributes=attributes)
        return name

    def fits(self, name: str, op: str, shape: Sequence[int]) -> None:
        if prod(shape) > LIMIT or prod(shape) < 1:
            raise LargeError(f"{op} (node {name!r}) has shape {tuple(shape)}, expected 1 to {LIMIT} scalars a sample")

    def shape(self, value: str) -> tuple[int, ...]:
        return self.nodes[value].shape

    def batched(self, value: Value) -> tuple[int, ...]:
        """The shape with the sample dimension; a constant has the one it was written with."""
        return (self.batch, *self.shape(value)) if isinstance(value, str) else tuple(value.shape)

    def rank(self, value: str) -> int:
        """With the sample dimension."""
        return len(self.shape(value)) + 1

    def axis(self, name: str, op: str, axis: int, rank: int) -> int:
        """An axis of the batched tensor as an axis of one sample; `rank` is the batched rank."""
        if not -rank <= axis < rank:
            raise ModelError(f"{op} (node {name!r}) names axis {axis} of a value with {rank} axes")
        if axis % rank == 0:
            raise MixedError(name, op)
        return axis % rank - 1

    def sample_constant(self, name: str, op: str, value: Tensor, rank: int) -> Tensor:
        """A constant that meets a batched tensor of this rank, as it meets one sample."""
        if value.ndim < rank:
            return value
        same = value.ndim == rank and value.shape[0] in (1, self.batch)
        if not same or not torch.equal(value, value[:1].expand_as(value)):
            raise MixedError(name, op)
        return value[0]

    # --- sums and constants ---

    def affine(self, name: str, x: str, scale: Weight, shift: Weight) -> str:
        """x · scale + shift with constants that broadcast against one sample."""
        scale = None if scale is not None and _only(scale, 1.0) else scale
        shift = None if shift is not None and _only(shift, 0.0) else shift
        x = self.meet(name, x, *(t for t in (scale, shift) if t is not None))
        return x if scale is None and shift is None else self.add_node(name, "affine", [x], weight=scale, bias=shift)

    def meet(self, name: str, x: str, *constants: Tensor) -> str:
        """The branch in the shape that it has together with constants, which may be larger than it is."""
        try:
            target = torch.broadcast_shapes(self.shape(x), *(tuple(constant.shape) for constant in constants))
        except RuntimeError as error:
            raise ModelError(f"node {name!r} joins shapes that do not fit: {error}") from error
        return self.expand(f"{name}.expand", x, tuple(target))

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
        """Both branches in the shape they have together."""
        if self.rank(a) != self.rank(b):
            raise MixedError(name, "broadcasting of branches of different rank")
        target = self.broadcast_shapes(name, self.shape(a), self.shape(b))
        return self.expand(f"{name}.expand", a, target), self.expand(f"{name}.expand", b, target)

    def broadcast_shapes(self, name: str, one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
        """The shape that two have together."""
        try:
            return tuple(torch.broadcast_shapes(tuple(one), tuple(other)))
        except RuntimeError as error:
            raise ModelError(f"node {name!r} joins shapes {tuple(one)} and {tuple(other)}: {error}") from error

    def reduce(self, name: str, x: str, axes: Sequence[int], *, keepdim: bool, mean: bool) -> str:
        """Sum or mean over axes of one sample."""
        y = self.add_node(f"{name}.sum", "sum", [x], axes=tuple(axes), keepdim=keepdim)
        return self.scale(name, y, 1.0 / prod(self.shape(x)[axis] for axis in axes)) if mean else y

    # --- shapes ---

    def reshape(self, name: str, x: str, shape: Sequence[int]) -> str:
        return x if tuple(shape) == self.shape(x) else self.add_node(name, "reshape", [x], shape=tuple(shape))

    def batched_reshape(self, name: str, op: str, x: str, shape: Sequence[int]) -> str:
        """To a shape that was written with the sample dimension in it; one entry may be -1."""
        shape = self.filled(name, op, self.batch * prod(self.shape(x)), shape)
        if not shape or shape[0] != self.batch:
            raise MixedError(name, op)
        return self.reshape(name, x, shape[1:])

    def filled(self, name: str, op: str, size: int, shape: Sequence[int]) -> Sequence[int]:
        """The shape for so many scalars, one entry of which may be -1."""
        if -1 in shape:
            shape = [size // max(1, -prod(shape)) if s == -1 else s for s in shape]
        if prod(shape) != size:
            raise ModelError(f"{op} (node {name!r}) does not fit its input: {size} scalars into {tuple(shape)}")
        return shape

    def permute(self, name: str, op: str, x: str, axes: Sequence[int]) -> str:
        """Axes with that of the samples first, whether it is read or not."""
        rank = len(self.shape(x)) + 1
        axes = [axis % rank for axis in axes]
        if axes and axes[0] != 0:
            raise MixedError(name, op)
        if axes == list(range(rank)):
            return x
        return self.add_node(name, "permute", [x], axes=tuple(axis - 1 for axis in axes[1:]))

    def expand(self, name: str, x: str, shape: Sequence[int]) -> str:
        return x if tuple(shape) == self.shape(x) else self.add_node(name, "expand", [x], shape=tuple(shape))

    def batched_expand(self, name: str, op: str, x: str, shape: Sequence[int]) -> str:
        """To a shape that was written with the sample dimension in it."""
        if len(shape) != self.rank(x) or shape[0] != self.batch:
            raise MixedError(name, op)
        return self.expand(name, x, shape[1:])


def _floating(value: Weight) -> Weight:
    return value if value is None or value.is_floating_point() else value.double()


def _only(value: Tensor, number: float) -> bool:
    """Whether the constant is one number, and which."""
    return value.numel() == 1 and value.item() == number and value.ndim == 0


def _check_constants(node: Node, dtype: torch.dtype) -> None:
    """Refuse constants that are not finite, or that the model's precision holds as 0 or as infinity."""
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
