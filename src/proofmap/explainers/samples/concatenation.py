"""`pm.concat`: join explanations of different samples that one explainer with the same settings made."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.batching import Measured, concatenate
from proofmap.explainers.explainer import MAX_RECORDED_ENTRIES
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.origin import Origin
from proofmap.explainers.upsampling import spread
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.storage.hashing import hash_tensor
from proofmap.storage.records import JSON, settings_to_json, to_json

_SHOWN_CHARACTERS = 60  # a message shows at most this much of a value
_BY_SAMPLE = ("eps", "domain")  # settings that may have one entry for each sample


def concat(explanations: Iterable[Explanation]) -> Explanation:
    """Join explanations into one, sample after sample, as if all samples had been explained in one call.

    Explanations fit together if the same explainer with the same settings explained the same model, with the same
    versions of the libraries. Radii may differ if each sample has its own, as with the radius "auto".

    Args:
        explanations: At least one explanation.

    Returns:
        The explanation of all samples. `seconds` is the sum. `origin` is unknown if it is unknown in a part.

    Raises:
        InputError: Two explanations do not fit together. The message names the first difference.

    >>> found = pm.EVA(model, ball, groups=cells).explain(x)
    >>> whole = pm.concat([found[1:], found[:1]])
    >>> len(whole), bool((whole.scores == found.scores.flip(0)).all())
    (2, True)
    """
    parts = _checked(explanations)
    first = parts[0]
    if len(parts) == 1:
        return first
    made_from, settings = _joined_ball(parts)
    groups = max(part.scores.shape[1] for part in parts)
    mask, x = _joined_mask(parts), torch.cat([part.x for part in parts])
    whole = concatenate(
        [Measured(part.scores, part.overlap, part.opposite, part.errors, part.reason, part.contrast) for part in parts],
        groups,
    )
    return replace(
        first,
        x=x,
        scores=whole.scores,
        attributions=spread(whole.scores, mask, first.smooth),
        mask=mask,
        overlap=whole.overlap,
        opposite=whole.opposite,
        errors=whole.errors,
        reason=whole.reason,
        contrast=whole.contrast,
        target=torch.cat([part.target for part in parts]),
        predicted=torch.cat([part.predicted for part in parts]),
        settings=settings,
        input_hash=hash_tensor(x),
        seconds=sum(part.seconds for part in parts),
        origin=_joined_origin(parts),
        made_from=made_from,
    )


def _checked(explanations: Iterable[Explanation]) -> list[Explanation]:
    """Return the explanations; raise InputError for the first difference that makes them incompatible."""
    if isinstance(explanations, Explanation):
        raise InputError("concat got one explanation, expected a list of them: pm.concat([a, b])")
    try:
        parts = list(explanations)
    except TypeError:
        raise InputError(f"concat got {type(explanations).__name__}, expected a list of explanations") from None
    for part in parts:
        if not isinstance(part, Explanation):
            raise InputError(f"concat got a list with {type(part).__name__}, expected explanations only")
    if not parts:
        raise InputError("concat got no explanation, expected at least one")
    for name, value in _COMPARED.items():
        _check_equal(name, list(map(value, parts)))
    for name in sorted({name for part in parts for name in part.settings if name not in _BY_SAMPLE}):
        _check_equal(f"the setting {name}", [part.settings.get(name) for part in parts])
    return parts


def _bound_kinds(e: Explanation) -> list[tuple[bool, ...]]:
    """Return for each overlap: whether it is certified, rigorous, of groups, and has points."""
    return [(o.certified, o.rigorous, o.frozen.shape[1] > 0, o.points is not None) for o in e._sides.values()]


_COMPARED: dict[str, Callable[[Explanation], Any]] = {
    "the method": lambda e: e.method,
    "the guarantee": lambda e: e.guarantee,
    "samples of shape": lambda e: tuple(e.x.shape[1:]),
    "samples of type": lambda e: e.x.dtype,
    "samples on the device": lambda e: str(e.x.device),
    "signed": lambda e: e.signed,
    "smooth": lambda e: e.smooth,
    "the seed": lambda e: e.seed,
    "the model with the hash": lambda e: e.model_hash,
    "the versions": lambda e: dict(e.versions),
    "bounds of the kinds (certified, rigorous, of groups, with points)": _bound_kinds,
    "standard errors": lambda e: e.errors is not None,
    "sufficient sets": lambda e: e.reason is not None,
    "contrastive sets": lambda e: e.contrast is not None,
}


def _check_equal(name: str, values: Sequence[Any]) -> None:
    """Raise InputError if two explanations differ in a value."""
    for k, value in enumerate(values):
        if value != values[0]:
            ours, theirs = (f"{one!r}"[:_SHOWN_CHARACTERS] for one in (values[0], value))
            raise InputError(
                f"concat got {name} {ours} in explanation 0 and {theirs} in explanation {k}, expected the same: join "
                "explanations that one explainer made of one model"
            )


def _joined_mask(parts: Sequence[Explanation]) -> Tensor:
    """Return one mask for all samples if all parts have the same, else a mask for each sample."""
    first = parts[0].mask
    if all(len(part.mask) == 1 and torch.equal(part.mask, first) for part in parts):
        return first
    return torch.cat([part.mask.expand_as(part.x) for part in parts])


def _joined_ball(parts: Sequence[Explanation]) -> tuple[tuple[Graph, Ball] | None, dict[str, JSON]]:
    """Return the network with the ball of all samples, if all parts have them, and the settings of all samples."""
    dims, settings = parts[0].x.ndim, dict(parts[0].settings)
    sizes = [len(part) for part in parts]
    known = [part.made_from for part in parts if part.made_from is not None]
    if len(known) == len(parts):
        graph, ball = known[0]
        eps: Any = _joined_entry("eps", [one.eps for _, one in known], sizes, dims)
        joined = replace(ball, eps=eps, domain=_joined_domain([one.domain for _, one in known], sizes, dims))
        return (graph, joined), {**settings, **settings_to_json({"ball": joined}, MAX_RECORDED_ENTRIES)}
    if "eps" in settings:
        radii = _joined_entry("eps", [_numbers(part.settings.get("eps")) for part in parts], sizes, dims)
        settings["eps"] = to_json(radii, radii.numel() if isinstance(radii, Tensor) else 0)
    if "domain" in settings:
        ends = _joined_domain([_recorded_domain(part.settings.get("domain")) for part in parts], sizes, dims)
        settings["domain"] = None if ends is None else [to_json(end, MAX_RECORDED_ENTRIES) for end in ends]
    return None, settings


def _joined_domain(domains: Sequence[Any], sizes: Sequence[int], dims: int) -> Any:
    """Join the domains of balls. A `pm.Domain` that all parts share stays one."""
    if all(domain is domains[0] for domain in domains):
        return domains[0]
    _check_equal("a domain", [domain is not None for domain in domains])
    return tuple(_joined_entry("the domain", [domain[end] for domain in domains], sizes, dims) for end in (0, 1))


def _joined_entry(name: str, values: Sequence[Any], sizes: Sequence[int], dims: int) -> Any:
    """Join numbers or tensors: those with one entry for each of the samples of each part, or else equal ones.

    dims: the number of dimensions of x (N, *shape). A tensor with fewer is not per sample, except for the radii (N,).
    """
    shapes = {dims, 1} if name == "eps" else {dims}
    each = [isinstance(v, Tensor) and v.ndim in shapes and len(v) == n for v, n in zip(values, sizes, strict=True)]
    if all(each) and len({value.ndim for value in values}) == 1:
        return torch.cat(list(values))
    listed = [value.tolist() if isinstance(value, Tensor) else value for value in values]
    _check_equal(name, listed)
    if any(own and n > 1 for own, n in zip(each, sizes, strict=True)):  # equal numbers of another meaning
        raise InputError(f"concat got {name} with one entry per sample in some explanations only, expected it in all")
    return values[0]


def _recorded_domain(record: Any) -> Any:
    """Return the ends of a recorded domain."""
    return [_numbers(end) for end in record] if isinstance(record, list) else record


def _numbers(record: Any) -> Any:
    """Return recorded numbers as a tensor in float64, and other values unchanged; refuse the hash of a tensor."""
    if isinstance(record, str) and record.startswith("tensor "):
        raise InputError(
            "concat got explanations from files that hold only the hash of a large ball: join them before saving"
        )
    return torch.tensor(record, dtype=torch.float64) if isinstance(record, list) else record


def _joined_origin(parts: Sequence[Explanation]) -> Origin | None:
    """Return the origin of all samples, or None if a part has none."""
    origins = [part.origin for part in parts if part.origin is not None]
    if len(origins) < len(parts):
        return None
    _check_equal("the model", [origin.model for origin in origins])
    _check_equal("the names of the classes", [origin.classes for origin in origins])
    _check_equal("the names of the columns", [origin.columns for origin in origins])
    labels = tuple(part.label(k) for part in parts for k in range(len(part)))
    samples = tuple(sample for origin in origins for sample in origin.samples)
    made = {origin.made for origin in origins}
    return replace(
        origins[0],
        samples=samples,
        labels=labels if any(label is not None for label in labels) else None,
        made=made.pop() if len(made) == 1 else None,
    )
