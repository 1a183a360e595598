"""Bundles of options: a command has few parameters, and its user sees one list."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from proofmap.cli import COMMANDS
from proofmap.cli.options import option_bundles as bundles

MOST = 8  # parameters of a command


@dataclass(frozen=True)
class Inner:
    depth: Annotated[int, typer.Option(help="How far.")] = 3
    path: Annotated[Path, typer.Argument(help="Where.")] = Path()


@dataclass(frozen=True, kw_only=True)
class Outer:
    width: int = 2
    inner: Inner
    height: int


def area(*, loud: bool = False, outer: Outer) -> tuple[bool, Outer]:
    return loud, outer


def test_nested_bundles_are_one_list_of_options() -> None:
    found = bundles.options(area)
    assert [option.name for option in found] == ["path", "loud", "width", "depth", "height"]
    assert {option.kind for option in found} == {Parameter.KEYWORD_ONLY}
    defaults = {option.name: option.default for option in found}
    assert defaults == {"path": Path(), "loud": False, "width": 2, "depth": 3, "height": Parameter.empty}
    assert [bundles.metadata(option)[0].help for option in found if option.name == "depth"] == ["How far."]


def test_given_values_arrive_in_their_bundles() -> None:
    given = {"path": Path("a"), "loud": True, "width": 5, "depth": 7, "height": 11}
    assert bundles.call(area, given) == (True, Outer(width=5, inner=Inner(7, Path("a")), height=11))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_takes_few_parameters_and_no_option_twice(command: Callable[..., Any]) -> None:
    assert len(signature(command).parameters) <= MOST
    names = [option.name for option in bundles.options(command)]
    assert len(set(names)) == len(names)
