"""What type checkers are told of `pm.explain` is what it is."""

from __future__ import annotations

from inspect import Signature, isfunction, signature
from typing import Any

import pytest

import proofmap.explain as module
from proofmap.explain.called import explain
from proofmap.explain.choose import explain as chosen

FUNCTIONS = [name for name in module.__all__ if isfunction(getattr(module, name))]


def called(function: Any) -> Signature:
    return signature(function, eval_str=True)


def test_every_name_of_the_module_is_there_and_no_other() -> None:
    assert {name for name in vars(explain) if not name.startswith("_")} == set(module.__all__)
    for name in set(module.__all__) - set(FUNCTIONS):
        assert getattr(explain, name) is getattr(module, name), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_called_as_that_of_the_module(name: str) -> None:
    assert called(getattr(explain, name)) == called(getattr(module, name))


def test_the_call_is_that_of_the_module() -> None:
    told = called(explain.__new__)
    assert told.replace(parameters=list(told.parameters.values())[1:]) == called(chosen)
    assert vars(type(module))["__call__"].__func__ is chosen
