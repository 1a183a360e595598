"""Options in bundles: a parameter whose type is a dataclass stands for the fields of that dataclass, as options.

A bundle may hold others. What the user sees is one flat list; what a command is called with are the bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from inspect import Parameter, signature
from typing import Any

import typer
from typer.models import ArgumentInfo

__all__ = ["call", "metadata", "options", "unset"]


def unset(text: str, *names: str, **more: Any) -> Any:
    """An option of which the help shows no default: its text says what holds where it is not given."""
    return typer.Option(*names, help=text, show_default=False, **more)


def options(function: Callable[..., Any]) -> list[Parameter]:
    """All options of a command one by one, keyword only; its arguments, whose order is that of the words, first."""
    return sorted(_flat(function), key=lambda option: not any(isinstance(m, ArgumentInfo) for m in metadata(option)))


def call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a command, or make a bundle, with what is given for each option."""
    values = {
        one.name: call(one.annotation, given) if _is_bundle(one) else given[one.name] for one in _parameters(function)
    }
    return function(**values)


def metadata(option: Parameter) -> tuple[Any, ...]:
    """What stands beside the type of an option."""
    return getattr(option.annotation, "__metadata__", ())


def _flat(function: Callable[..., Any]) -> list[Parameter]:
    return [
        option
        for one in _parameters(function)
        for option in (_flat(one.annotation) if _is_bundle(one) else [one.replace(kind=Parameter.KEYWORD_ONLY)])
    ]


def _parameters(function: Callable[..., Any]) -> Iterable[Parameter]:
    return signature(function, eval_str=True).parameters.values()


def _is_bundle(parameter: Parameter) -> bool:
    return isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
