"""The explanation of each of several inputs: the scores, bounds and maps of its own groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.explainers.upsampling import spread
from proofmap.inputs.several_inputs import CONSTANT, InputPart
from proofmap.storage.hashing import hash_tensor
from proofmap.storage.records import JSON
from proofmap.text.group_places import place

if TYPE_CHECKING:
    from proofmap.explainers.explanation import Explanation
    from proofmap.verify.overlap import Overlap

INPUTS, INPUT = "inputs", "input"  # entries of the settings: all inputs, and the one that an explanation is about


def with_inputs(found: Explanation, record: Sequence[Mapping[str, JSON]] | None) -> Explanation:
    """Return the explanation of joined vectors with the record of their inputs."""
    return found if record is None else replace(found, settings={**found.settings, INPUTS: record})


def input_roles(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the role of each input by its name."""
    return {str(entry["name"]): str(entry["role"]) for entry in settings.get(INPUTS, ())}


def each_input(found: Explanation) -> tuple[Explanation, ...]:
    """Return the explanation of each input of floats; the explanation itself if there is one input."""
    recorded: Any = found.settings.get(INPUTS, ())
    entries = [entry for entry in recorded if entry["role"] != CONSTANT]
    if not entries:
        return (found,)
    parts, start = [], 0
    for entry in entries:
        shape = torch.Size(entry["shape"])
        parts.append(_part(found, str(entry["name"]), slice(start, start + shape.numel()), shape))
        start += shape.numel()
    return tuple(parts)


def recorded_parts(inputs: Sequence[Mapping[str, Any]]) -> tuple[InputPart, ...]:
    """Return the inputs of a record, with the values of integers."""
    return tuple(
        InputPart(
            str(entry["name"]),
            tuple(entry["shape"]),
            torch.tensor(entry["values"])[None] if entry["role"] == CONSTANT else None,
        )
        for entry in inputs
    )


def shapes_in_words(found: Explanation) -> str:
    """Return the shape of a sample, or the names and shapes of several inputs."""
    recorded: Any = found.settings.get(INPUTS, ())
    parts = [f"{entry['name']} {tuple(entry['shape'])}" for entry in recorded if entry["role"] != CONSTANT]
    return " and ".join(parts) or str(tuple(found.x.shape[1:]))


def variable_names(found: Explanation) -> list[str] | None:
    """Return a name for each variable of several inputs, equal for the variables of one group; None for one input."""
    if not input_roles(found.settings):
        return None
    parts = each_input(found)
    return names_by_group([(str(part.settings[INPUT]), part.mask[0].cpu().numpy()) for part in parts])


def names_by_group(inputs: Sequence[tuple[str, NDArray[Any]]]) -> list[str]:
    """Return a name for each variable of several inputs, given as names and masks (*shape) with groups from 0."""
    names = []
    for name, mask in inputs:
        groups = [place(mask == group).replace(" to ", "-") for group in range(int(mask.max()) + 1)]
        if len(groups) == 1:
            names += [name] * mask.size
        elif mask.ndim == 1:
            names += [f"{name} {k}" for k in range(mask.size)]
        else:
            names += [f"{name} {groups[group]}" for group in mask.ravel()]
    return names


def _part(found: Explanation, name: str, where: slice, shape: torch.Size) -> Explanation:
    """Return the explanation of one input: entries `where` of the joined vectors."""
    flat = found.mask[:, where]
    first, last = int(flat.min()), int(flat.max()) + 1
    mask = (flat - first).unflatten(1, shape)
    x, scores = found.x[:, where].unflatten(1, shape), found.scores[:, first:last]
    settings = {key: value for key, value in found.settings.items() if key != INPUTS}
    changed: dict[str, Any] = {} if found.errors is None else {"errors": found.errors[:, first:last]}
    if found.reason is not None:
        changed["reason"] = found.reason.of_groups(slice(first, last), where, shape)
    if found.contrast is not None:
        changed["contrast"] = found.contrast.of_groups(slice(first, last), where, shape)
    if found.opposite is not None:
        changed["opposite"] = _overlap(found.opposite, where, shape, slice(first, last))
    return replace(
        found,
        x=x,
        scores=scores,
        attributions=spread(scores, mask),
        mask=mask,
        overlap=_overlap(found.overlap, where, shape, slice(first, last)),
        settings={**settings, INPUT: name},
        input_hash=hash_tensor(x),
        origin=None,
        made_from=None,
        **changed,
    )


def _overlap(bounds: Overlap, where: slice, shape: torch.Size, groups: slice) -> Overlap:
    """Return the bounds of AO(B) and of the AO(B_u) of some groups; their points are those of the input."""

    def members(value: Tensor) -> Tensor:
        return torch.cat([value[:, :1], value[:, 1:][:, groups]], dim=1)

    points = bounds.points
    return replace(
        bounds,
        frozen=bounds.frozen[:, groups],
        frozen_lower=bounds.frozen_lower[:, groups],
        points=None if points is None else members(points)[..., where].unflatten(-1, shape),
        drops=None if bounds.drops is None else bounds.drops[:, groups],
    )
