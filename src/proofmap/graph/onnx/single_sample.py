"""Graph builder for a file that is read as a function of one sample.

Exporters move the samples off axis 0 (recurrent layers have them second), or join them with attention heads. With one
sample, the batch axis has one entry and is treated as an axis of the sample itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import slicing
from proofmap.graph.builder.graph_builder import Builder, Value
from proofmap.graph.onnx.operators.node_inputs import Call, require_computed


class SingleSampleBuilder(Builder):
    """A builder for which the batch axis, of one entry, is part of the sample's shape."""

    batch_axes = 0

    def __init__(self, shape: Sequence[int], name: str, precision: torch.dtype) -> None:
        super().__init__(shape, 1, name, precision)

    def batched_shape(self, value: Value) -> tuple[int, ...]:
        return self.shape(value) if isinstance(value, str) else tuple(value.shape)

    def rank(self, value: str) -> int:
        return len(self.shape(value))

    def axis(self, name: str, op: str, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise ModelError(f"{op} (node {name!r}) names axis {axis} of a value with {rank} axes")
        return axis % rank

    def sample_constant(self, name: str, op: str, value: Tensor, rank: int) -> Tensor:
        return value

    def broadcast(self, name: str, a: str, b: str) -> tuple[str, str]:
        target = self.broadcast_shapes(name, self.shape(a), self.shape(b))
        return self.expand(f"{name}.expand", a, target), self.expand(f"{name}.expand", b, target)

    def batched_reshape(self, name: str, op: str, x: str, shape: Sequence[int]) -> str:
        return self.reshape(name, x, self.resolve_shape(name, op, prod(self.shape(x)), shape))

    def batched_expand(self, name: str, op: str, x: str, shape: Sequence[int]) -> str:
        return self.expand(name, x, shape)


def per_sample(convert: Callable[..., str]) -> Callable[..., str]:
    """Return a converter of an operator on batches that also works if the first axis is not for samples.

    It is then applied to each entry along the first axis.
    """

    def converted(b: Builder, call: Call, x: Value, *rest: Any) -> str:
        x = require_computed(x)
        if b.batch_axes:
            return convert(b, call, x, *rest)
        count, *shape = b.shape(x)
        parts: list[Value] = []
        for k in range(count):
            one = slicing.slice(b, f"{call.name}.entry{k}", x, 0, k, k + 1)
            one = b.reshape(f"{call.name}.sample{k}", one, shape)
            y = convert(b, replace(call, name=call.name if count == 1 else f"{call.name}.{k}"), one, *rest)
            parts.append(b.reshape(f"{call.name}.whole{k}", y, (1, *b.shape(y))))
        return slicing.concat(b, call.name, call.op, parts, 0)

    return converted
