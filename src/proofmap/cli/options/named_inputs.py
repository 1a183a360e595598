"""Options of several inputs by their names, such as --eps image=0.02,table=none: balls and groups for each."""

from collections.abc import Mapping, Sequence
from math import inf

from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.errors import InputError
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import GroupsOfInputs, InputPart
from proofmap.sources import Preparation

_FIXED = "none"  # the radius of an input that stays fixed


def radii_of_inputs(eps: str, parts: Sequence[InputPart]) -> list[str | None]:
    """Return the radius of each input as it was typed; None for one that stays fixed."""
    floats = _floats(parts)
    named = texts.by_input(eps)
    radii = dict.fromkeys(floats, eps) if named is None else named
    _check_names("--eps", radii, floats)
    missing = next((name for name in floats if name not in radii), None)
    if missing is not None:
        whole = ",".join(f"{name}={radii.get(name, _FIXED)}" for name in floats)
        raise InputError(
            f"got --eps {eps} without {missing!r}, expected a radius for each input, or none for one that stays "
            f"fixed: --eps {whole}"
        )
    return [None if radii.get(part.name, _FIXED) == _FIXED else radii[part.name] for part in parts]


def balls_of_inputs(
    options: o.BallOptions, parts: Sequence[InputPart], preparation: Preparation
) -> tuple[Ball | None, ...]:
    """Return a ball for each input, None for one that stays fixed. Pictures (C, H, W) have their range as a domain."""
    assert options.eps is not None
    floats, radii = _floats(parts), radii_of_inputs(options.eps, parts)
    named = {} if options.domain is None else texts.by_input(options.domain)
    domains = dict.fromkeys(floats, f"{options.domain}") if named is None else named
    _check_names("--domain", domains, floats)
    moving = [part.name for part, eps in zip(parts, radii, strict=True) if eps is not None]
    if len(moving) > 1 and float(options.norm) != inf:
        given = dict(zip((part.name for part in parts), radii, strict=True))
        alone = ",".join(f"{name}={given[name] if name == moving[0] else _FIXED}" for name in floats)
        raise InputError(
            f"got --norm {options.norm} for {len(moving)} inputs that move, expected --norm inf, or one input that "
            f"moves: --eps {alone}"
        )
    balls: list[Ball | None] = []
    for part, eps in zip(parts, radii, strict=True):
        usual = preparation.range if len(part.shape) == 3 else None
        domain = texts.domain(domains[part.name]) if part.name in domains else usual
        balls.append(None if eps is None else Ball(texts.radius(eps), float(options.norm), domain))
    return tuple(balls)


def groups_of_inputs(text: str | None, parts: Sequence[InputPart]) -> GroupsOfInputs:
    """Return the groups of each input, or None for the usual ones. Without parts, those of a model of one input."""
    if not parts:
        return o.groups_of(text)
    floats, named = _floats(parts), {} if text is None else texts.by_input(text)
    if named is None:
        raise InputError(
            f"got --groups {text} for the inputs {', '.join(floats)}, expected the name of an input before it: "
            f"--groups {floats[0]}={text}"
        )
    _check_names("--groups", named, floats)
    return tuple(o.groups_of(named[part.name]) if part.name in named else None for part in parts)


def _floats(parts: Sequence[InputPart]) -> list[str]:
    return [part.name for part in parts if part.constant is None]


def _check_names(option: str, named: Mapping[str, str], floats: Sequence[str]) -> None:
    strange = next((name for name in named if name not in floats), None)
    if strange is not None:
        raise InputError(f"got {option} for {strange!r}, expected inputs of floats of this model: {', '.join(floats)}")
