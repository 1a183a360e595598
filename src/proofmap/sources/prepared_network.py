"""A network with its preparation in front: mean, standard deviation, layout and flattening are its first operations.

A ball around the user's values is then a ball at the input of this network, and bounds include the preparation.
"""

from dataclasses import replace
from math import prod

import torch
from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.graph import Graph, Node
from proofmap.graph.ir import ModelFile
from proofmap.graph.rewrite.fold import fold_constants
from proofmap.sources.preparation import Preparation


class Prepared(nn.Module):
    """x -> network((x - mean) / std), with the channels moved last if the layout is NHWC."""

    scale: Tensor | None
    shift: Tensor | None

    def __init__(self, network: nn.Module, preparation: Preparation) -> None:
        super().__init__()
        self.network = network
        self.last: bool = preparation.layout == "NHWC"
        like = next((p for p in network.parameters() if p.is_floating_point()), torch.zeros(()))
        scale, shift = (None if t is None else t.to(like.device, like.dtype) for t in _affine(preparation))
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of samples in the user's values, channels first."""
        column = (-1, *(1,) * (x.ndim - 2))
        if self.scale is not None:
            x = x * self.scale.reshape(column)
        if self.shift is not None:
            x = x + self.shift.reshape(column)
        logits: Tensor = self.network(x.movedim(1, -1) if self.last and x.ndim > 2 else x)
        return logits


def wrapped(module: nn.Module, preparation: Preparation) -> nn.Module:
    """Return the module with its preparation in front, or the module itself if there is nothing to prepare."""
    bare = preparation.mean is None and preparation.std is None and preparation.layout == "NCHW"
    return module if bare else Prepared(module, preparation)


def put_behind(graph: Graph, preparation: Preparation) -> tuple[Graph, tuple[int, ...]]:
    """Return a graph with its preparation in front, and the shape of the samples that it takes.

    A picture (C, H, W) fits any input with as many numbers. Without a size, a column vector is taken as a flat sample.
    """
    expected = graph.input.shape
    shape = _sample_shape(expected, preparation)
    scale, shift = _affine(preparation)
    for name, values in (("std", scale), ("mean", shift)):
        if values is not None and len(values) not in (1, shape[0]):
            raise InputError(f"got {len(values)} numbers as {name}, expected 1 or {shape[0]} for samples {shape}")
    nodes = [replace(graph.input, shape=shape)]

    def add(op: str, after: tuple[int, ...], tensors: dict[str, Tensor], **attributes: tuple[int, ...]) -> None:
        name = f"prepare.{op}"
        while any(node.name == name for node in graph.nodes):
            name += "'"
        weight, bias = tensors.get("weight"), tensors.get("bias")
        nodes.append(Node(name, op, (nodes[-1].name,), after, weight, bias, attributes))

    column = (-1, *(1,) * (len(shape) - 1))
    constants = {"weight": scale, "bias": shift}
    tensors = {name: value.reshape(column) for name, value in constants.items() if value is not None}
    if tensors:
        add("affine", shape, tensors)
    if preparation.layout == "NHWC" and len(shape) == 3:
        add("permute", (*shape[1:], shape[0]), {}, axes=(1, 2, 0))
    if nodes[-1].shape != expected:
        add("reshape", expected, {}, shape=expected)
    if len(nodes) == 1:
        return graph, shape
    renamed = {graph.input.name: nodes[-1].name}
    rest = [replace(node, inputs=tuple(renamed.get(i, i) for i in node.inputs)) for node in graph.nodes[1:]]
    output = renamed.get(graph.output, graph.output)
    file = _prepared(graph.file, preparation, len(shape))
    whole = replace(graph, nodes=(*nodes, *rest), output=output, file=file)
    return fold_constants(whole).to(torch.device("cpu"), graph.dtype), shape


def _prepared(file: ModelFile | None, preparation: Preparation, rank: int) -> ModelFile | None:
    """Return the record of the model's file with this preparation, as a certificate states it."""
    layout = preparation.layout if rank == 3 else "NCHW"
    if file is None or (preparation.mean is None and preparation.std is None and layout == "NCHW"):
        return file
    mean, std = (None if values is None else list(values) for values in (preparation.mean, preparation.std))
    return replace(file, prepare={"mean": mean, "std": std, "layout": layout})


def _sample_shape(expected: tuple[int, ...], preparation: Preparation) -> tuple[int, ...]:
    """Return the shape of one sample, channels first, for a network of input shape `expected`."""
    size, channels = preparation.size, preparation.channels
    shape: tuple[int, ...]
    if len(expected) == 3 and prod(expected) > max(expected):
        shape = (expected[2], *expected[:2]) if preparation.layout == "NHWC" else expected
        if size not in (None, shape[1:]):
            raise InputError(
                f"got the size {size}, expected {shape[1:]}: the model takes samples of shape {expected} in the layout "
                f"{preparation.layout}"
            )
    elif size is not None:
        shape = (prod(expected) // prod(size), *size)
        if prod(shape) != prod(expected):
            raise InputError(
                f"got the size {size} for a model that takes {prod(expected)} numbers, expected it to fit them"
            )
    else:
        shape = (prod(expected),) if prod(expected) == max(expected) else expected
    if channels is not None and len(shape) == 3 and channels != shape[0]:
        raise InputError(
            f"got {channels} channels for a model that takes {shape[0]}, expected as many: check the layout",
            arguments=("layout",),
        )
    return shape


def _affine(preparation: Preparation) -> tuple[Tensor | None, Tensor | None]:
    """Write (x - mean) / std as x · scale + shift, in float64."""
    mean, std = (
        None if v is None else torch.tensor(v, dtype=torch.float64) for v in (preparation.mean, preparation.std)
    )
    scale = None if std is None else 1 / std
    shift = None if mean is None else -mean if scale is None else -mean * scale
    return scale, shift
