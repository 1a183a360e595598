"""Bundles of options: a parameter whose type is a dataclass adds one option for each field of that dataclass.

Bundles can contain bundles. The user sees one flat list of options. The command receives the dataclasses.
"""

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from inspect import Parameter, signature
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from proofmap.cli.options.option_values import Check


def unset(text: str, *names: str, **more: Any) -> Any:
    """Declare an option without a default in the help: its text explains the behaviour without the option."""
    return typer.Option(*names, help=text, show_default=False, **more)


def options(function: Callable[..., Any]) -> list[Parameter]:
    """Return all options of a command as keyword-only parameters; positional arguments come first, in their order."""
    return sorted(_flat(function), key=lambda option: not any(isinstance(m, ArgumentInfo) for m in metadata(option)))


def call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a command, or create a bundle, with the given values of its options."""
    values = {
        one.name: call(one.annotation, given) if _is_bundle(one) else given[one.name] for one in _parameters(function)
    }
    return function(**values)


def metadata(option: Parameter) -> tuple[Any, ...]:
    """Return the metadata of an annotated type."""
    return getattr(option.annotation, "__metadata__", ())


def checks(option: Parameter) -> list[Check]:
    """Return the checks of an option."""
    return [data for data in metadata(option) if isinstance(data, Check)]


def complete(option: Parameter) -> None:
    """Let the shell complete the names that the checks of an option accept."""
    names = [name for check in checks(option) for name in check.names]
    for info in metadata(option):
        if names and isinstance(info, OptionInfo):
            info.autocompletion = lambda: names


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
