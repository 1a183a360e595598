"""Every public name has a docstring with an example that runs, and the reference pages follow the code."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import proofmap as pm
from scripts.reference import PAGE_FOLDER, PAGES, SET_UP, public
from tests.pages import prompts

PUBLIC = public()


@pytest.fixture(scope="module")
def set_up() -> dict[str, Any]:
    """Return the names that the page defines before its examples."""
    names: dict[str, Any] = {}
    exec(SET_UP, names)
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(thing: object) -> str:
    """Return the session at the end of a docstring, without its indentation; "" if there is none."""
    before, mark, after = (inspect.getdoc(thing) or "").partition(">>> ")
    return f"{mark}{after}\n" if mark and before.strip() else ""


def test_every_public_name_is_on_the_page() -> None:
    assert {f"pm.{name}" for name in pm.__all__} <= set(PUBLIC)
    assert len(PUBLIC) > 90
    assert {"pm.bounds.Exact", "pm.groups.grid", "pm.metrics.Deletion", "pm.data.digits"} <= set(PUBLIC)


def test_every_public_name_has_a_text_and_an_example() -> None:
    assert [name for name, thing in PUBLIC.items() if not example(thing)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_name_runs(name: str, set_up: dict[str, Any], folder: Path) -> None:
    prompts(example(PUBLIC[name]), dict(set_up), name)


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_follows_the_code(page: str) -> None:
    assert (PAGE_FOLDER / page).read_text(encoding="utf-8") == PAGES[page](), "run python scripts/reference.py"
