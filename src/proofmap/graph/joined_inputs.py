"""Several inputs of a call: their tensors joined, and the model as a function of the joined vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.graph.embedding_positions import argument_names
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.ir import Graph
from proofmap.graph.torch.module_call import ModuleCall, called_by
from proofmap.inputs import groups as grouping
from proofmap.inputs.array_types import Inputs, is_frame, to_tensor
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import (
    CONSTANT,
    FIXED,
    MOVES,
    InputPart,
    inputs_at,
    is_several,
    join_balls,
    join_domains,
    join_groups,
    join_tensors,
    of_parts,
    split_tensor,
)


@dataclass(frozen=True, eq=False)
class JoinedInputs:
    """A call with several inputs, or with one by keyword (then `parts` has one entry, and x is this input)."""

    model: nn.Module | Graph  # the model as a function of x
    x: Tensor  # (N, d), or (N, *shape) for one input
    values: list[Tensor]  # (N, *shape) for each input that is no constant
    parts: tuple[InputPart, ...]

    @property
    def is_one(self) -> bool:
        """True for one input, which is not joined."""
        return len(self.parts) == 1

    def ball(self, balls: Any) -> Ball:
        """Return the ball of the joined vectors."""
        if self.is_one:
            (one,) = [balls] if isinstance(balls, Ball) else of_parts(balls, self.parts, "balls")
            if one is None:
                raise InputError("got None as the ball of the only input, expected a pm.Ball")
            ball: Ball = one
            return ball
        return join_balls(balls, self.values, self.parts)

    def record(self, balls: Any) -> list[dict[str, Any]]:
        """Return the names, shapes and roles of the inputs, as an explanation records them."""
        moving = iter(of_parts(balls, self.parts, "balls"))
        found: list[dict[str, Any]] = []
        for part in self.parts:
            entry: dict[str, Any] = {"name": part.name, "shape": list(part.shape)}
            if part.constant is None:
                found.append({**entry, "role": FIXED if next(moving) is None else MOVES})
            else:
                found.append({**entry, "role": CONSTANT, "values": part.constant[0].tolist()})
        return found

    def mask(self, groups: Any, balls: Any) -> Any:
        """Return the groups of the joined vectors."""
        if self.is_one:
            return groups[0] if isinstance(groups, tuple) else groups
        moves = [ball is not None for ball in of_parts(balls, self.parts, "balls")]
        return join_groups(groups, moves, self.values, self.parts)

    def usual_mask(self, groups: Any, usual: Callable[[Tensor], grouping.Groups]) -> Any:
        """Return the groups of the joined vectors for a method without balls; `usual` gives those of one input."""
        if self.is_one:
            return groups[0] if isinstance(groups, tuple) else groups
        return join_groups(groups, [True] * len(self.values), self.values, self.parts, usual)

    def unit_ball(self, norm: float, domains: Any) -> Ball:
        """Return the ball of radius 1 in the product of the inputs' domains."""
        if self.is_one:
            return Ball(1.0, norm, domains[0] if isinstance(domains, tuple) and len(domains) == 1 else domains)
        return join_domains(domains, norm, self.values, self.parts)

    def spans(self, balls: Any) -> tuple[Tensor, Tensor]:
        """Return a finite range (d,) of each entry of the joined vectors: the domain of its ball, or its values."""
        lows, highs = [], []
        for ball, value in zip(of_parts(balls, self.parts, "balls"), self.values, strict=True):
            low, high = (Ball(0.0) if ball is None else ball).limits(value)
            least, most = value.amin(), value.amax()
            low, high = (
                torch.where(low.isfinite(), low, least).amin(0),
                torch.where(high.isfinite(), high, most).amax(0),
            )
            lows.append(low.flatten())
            highs.append(torch.where(high > low, high, low + 1).flatten())  # a baseline needs a width
        return torch.cat(lows), torch.cat(highs)

    def split(self, z: Tensor) -> tuple[Tensor, ...]:
        """Return the part (N, *shape) of each input in values of the joined vectors; zeros for constants."""
        if self.is_one:
            return (z,)
        found = iter(split_tensor(z, self.parts))
        return tuple(next(found) if part.constant is None else z.new_zeros(len(z), *part.shape) for part in self.parts)

    def inputs_at(self, z: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs (N, *shape) at joined vectors, with the values of constants."""
        return (z,) if self.is_one else inputs_at(z, self.parts)

    def like(self, given: Any, z: Tensor) -> Any:
        """Return the parts as the inputs were given: a dictionary by name, or a tuple."""
        parts = self.split(z)
        return dict(zip(given, parts, strict=True)) if isinstance(given, Mapping) else parts

    def join(self, maps: Any) -> Tensor:
        """Return maps of the inputs, a tuple or a dictionary in their order, as one of the joined vectors."""
        given = list(maps.values()) if isinstance(maps, Mapping) else list(maps)
        if len(given) != len(self.parts):
            raise InputError(f"got {len(given)} maps for {len(self.parts)} inputs, expected one for each")
        floats = [one for one, part in zip(given, self.parts, strict=True) if part.constant is None]
        tensors = [to_tensor(one) if isinstance(one, np.ndarray) else one for one in floats]
        for one, value in zip(tensors, self.values, strict=True):
            if not isinstance(one, Tensor) or one.shape[1:] != value.shape[1:]:
                got = f"of shape {tuple(one.shape)}" if isinstance(one, Tensor) else f"of type {type(one).__name__}"
                raise InputError(f"got a map {got} for an input of shape {tuple(value.shape)}, expected the same shape")
        return tensors[0] if self.is_one else join_tensors(tensors)


def join_inputs(model: Any, x: Any) -> JoinedInputs:
    """Return the call of a model with a tuple of inputs, in the order of its arguments, or a dictionary by keyword."""
    named = isinstance(x, Mapping)
    given = list(x.values()) if named else list(x)
    if not given:
        raise InputError(f"got an empty {type(x).__name__} of inputs, expected at least one")
    values = [_tensor(value, model) for value in given]
    floats = [value for value in values if value.is_floating_point()]
    if not floats:
        raise InputError(
            f"got inputs of type {', '.join(str(value.dtype) for value in values)}, expected at least one of floats: "
            "integers cannot move by a little"
        )
    for what, found in (
        ("numbers of samples", {len(value) for value in values}),
        ("precisions", {value.dtype for value in floats}),
        ("devices", {value.device for value in values}),
    ):
        if len(found) > 1:
            raise InputError(f"got inputs of different {what} ({', '.join(map(str, found))}), expected one for all")
    if isinstance(model, Graph):
        names = [part.name for part in model.parts] or [model.input.name]
        if named and list(x) != names:
            raise InputError(f"got the inputs {list(x)}, expected those of the graph in its order, {names}")
    else:
        names = list(x) if named else argument_names(model)
    names = [names[k] if k < len(names) else f"input {k}" for k in range(len(values))]
    parts = tuple(_part(str(name), value, named) for name, value in zip(names, values, strict=True))
    if isinstance(model, Graph):
        _check_parts(model, parts)
        return JoinedInputs(model, floats[0] if len(parts) == 1 else join_tensors(floats), floats, parts)
    if len(parts) == 1:
        made = called_by(model, ModuleCall(parts[0].name)) if named else model
        return JoinedInputs(made, floats[0], floats, parts)
    made = called_by(model, ModuleCall(parts=parts, by_keyword=named))
    return JoinedInputs(made, join_tensors(floats), floats, parts)


def _tensor(value: Any, model: Any) -> Tensor:
    """Return one input as a tensor: checked floats, or integers as they are."""
    if not is_frame(value) and isinstance(value, np.ndarray) and value.dtype.kind in "iub":
        value = to_tensor(value)
    if isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex() and value.ndim:
        return value
    return as_samples(value, None if isinstance(value, Tensor) else model).detach()


def _part(name: str, value: Tensor, named: bool) -> InputPart:
    if value.is_floating_point():
        return InputPart(name, tuple(value.shape[1:]))
    if not bool((value == value[:1]).all()):
        raise InputError(
            f"got the input {name!r} of {value.dtype} with different values for {len(value)} samples, expected the "
            "same for all: integers are constants of the network, so ask about one sample k at a time, with the inputs "
            + (
                "{name: part[k:k + 1] for name, part in inputs.items()}"
                if named
                else "tuple(part[k:k + 1] for part in inputs)"
            )
        )
    return InputPart(name, tuple(value.shape[1:]), value[:1].clone())


def _check_parts(graph: Graph, parts: Sequence[InputPart]) -> None:
    """Raise InputError unless the graph was read for these inputs."""
    expected = graph.parts or (InputPart(graph.input.name, graph.input.shape),)
    if [part.shape for part in parts] != [part.shape for part in expected]:
        raise InputError(
            f"got inputs of shapes {[part.shape for part in parts]}, expected {[part.shape for part in expected]} "
            f"({', '.join(part.name for part in expected)}) without the samples"
        )
    for part, known in zip(parts, expected, strict=True):
        if (part.constant is None) != (known.constant is None) or (
            part.constant is not None and known.constant is not None and not torch.equal(part.constant, known.constant)
        ):
            raise InputError(
                f"got other integers for the input {known.name!r} than the graph was traced with, which are its "
                "constants: give the module instead of the graph, or trace it again"
            )


def in_unit_ball(
    model: nn.Module | Graph, x: Inputs, norm: float, domain: Any
) -> tuple[nn.Module | Graph, Inputs, Ball, tuple[InputPart, ...]]:
    """Return the model, x and the ball of radius 1 for one input, or for several, which are joined.

    The last value lists several inputs; it is empty for one.
    """
    if not is_several(x):
        return model, x, Ball(1.0, norm, domain), ()
    joined = join_inputs(model, x)
    return joined.model, joined.x, joined.unit_ball(norm, domain), () if joined.is_one else joined.parts


def of_one_input(ball: Any, groups: Any) -> tuple[Ball, grouping.Groups]:
    """Return the ball and the groups of a call with one input; raise InputError for a tuple of either."""
    for given, what in ((ball, "balls"), (groups, "groups")):
        if isinstance(given, tuple):
            raise InputError(f"got {len(given)} {what} for one input, expected one: give a tuple of inputs as x too")
    return ball, groups
