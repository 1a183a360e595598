"""Numeric settings of all public classes and functions: an invalid value raises one sentence when it is given."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from torch import nn

import proofmap as pm
import proofmap.explainers as explain
from proofmap import metrics
from proofmap.errors import InputError
from proofmap.explainers import baselines
from proofmap.settings import check_settings, choice, count

MODEL = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
NEEDED: dict[str, Any] = {
    "model": MODEL,
    "ball": pm.Ball(0.1),
    "radius": 0.1,
    "split": "0",
    "bounds": None,
    "n": 2,
    "function": torch.zeros_like,
}
# parameters whose value a metric checks as its baseline, and internal parameters
LATER = {metrics.Uniform, explain.Explanation}


def makers() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in (explain, baselines, metrics):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and not inspect.isabstract(found) and found not in LATER:
                yield name, found
    x = torch.rand(1, 4)
    yield "certified_radius", lambda **given: pm.certified_radius(MODEL, x, **given)
    yield "overlap", lambda **given: pm.overlap(MODEL, x, pm.Ball(0.1), **given)
    yield "Ball", lambda **given: pm.Ball(**{"eps": 0.1, **given})
    yield "grid", lambda **given: pm.groups.grid(**{"rows": 2, **given})
    yield "superpixels", pm.groups.superpixels


def settings() -> Iterator[Any]:
    """Yield every numeric parameter of every public class and function."""
    asked: dict[str, Callable[..., Any]] = {
        "certified_radius": pm.certified_radius,
        "overlap": pm.overlap,
        "Ball": pm.Ball,
        "grid": pm.groups.grid,
    }
    for name, make in makers():
        parameters = inspect.signature(asked.get(name, make)).parameters.values()
        needed = {p.name: NEEDED[p.name] for p in parameters if p.default is p.empty and p.name in NEEDED}
        given = {} if name in asked else needed
        for p in parameters:
            text = p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
            if re.match(r"([\w.]+ByPreset\[|ByPreset\[)?(int|float)\b", text):
                yield pytest.param(make, given, p.name, id=f"{name} {p.name}")


@pytest.mark.parametrize(("make", "given", "name"), [*settings()])
def test_settings_that_are_not_numbers_are_refused(make: Callable[..., Any], given: dict[str, Any], name: str) -> None:
    for bad in ("three", float("nan"), True, *([] if name == "eps" else [[3]])):  # a sequence of radii is valid
        with pytest.raises(InputError, match=name):
            make(**{**given, name: bad})


def test_a_count_in_quotes_is_refused() -> None:
    with pytest.raises(InputError, match="got steps='3', expected a whole number of at least 1"):
        pm.certified_radius(MODEL, torch.rand(1, 4), steps="3")  # type: ignore[arg-type]


@dataclass(frozen=True)
class Settings:
    steps: int = count(3, least=2)
    batch: int | None = count(None)
    kind: str = choice("mean", Literal["mean", "max"])
    free: str = ""


def test_a_setting_states_its_check() -> None:
    check_settings(Settings())
    check_settings(Settings(steps=2, batch=1, kind="max"))
    wrong: list[tuple[Any, str]] = [
        (Settings(steps=1), "Maker got steps=1, expected a whole number of at least 2"),
        (Settings(steps=None), "Maker got steps=None, expected a whole number of at least 2"),  # type: ignore[arg-type]
        (Settings(batch=0), "Maker got batch=0, expected a whole number of at least 1"),
        (Settings(kind="least"), "Maker got kind='least', expected one of 'mean', 'max'"),
    ]
    for settings_, message in wrong:
        with pytest.raises(InputError, match=f"^{message}$"):
            check_settings(settings_, "Maker")
        with pytest.raises(InputError, match=f"^{message.removeprefix('Maker ')}$"):
            check_settings(settings_)
