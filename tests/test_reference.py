"""Every public name has a docstring with an example that runs, and the reference pages follow the code."""

import inspect
import re
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


def members(thing: object) -> set[str]:
    """Return the names of the attributes, fields and parameters of a public value."""
    fields = set(getattr(thing, "__annotations__", {})) | set(getattr(thing, "__dataclass_fields__", {}))
    try:
        return {*dir(thing), *fields, *inspect.signature(thing).parameters}  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {*dir(thing), *fields}


PARTS = {  # members of public values, and parameters of their methods
    part
    for thing in PUBLIC.values()
    for one in (thing, *(vars(thing).values() if inspect.isclass(thing) else ()))
    for part in members(one.__func__ if isinstance(one, classmethod) else one)
}
SHORT = {name.rpartition(".")[2]: thing for name, thing in PUBLIC.items()} | {"BASELINES": pm.explainers.BASELINES}


def exists(name: str) -> bool:
    """Return whether a dotted name, such as "pm.Ball", "Explanation.errors" or "seed", is public."""
    first, *rest = name.split(".")
    if first != "pm" and first not in SHORT:
        return not rest and first in PARTS
    thing: Any = pm if first == "pm" else SHORT[first]
    for part in rest:
        if part not in members(thing):
            return False
        thing = getattr(thing, part, None)
    return True


def names_of(page: str) -> set[str]:
    """Return the dotted names at the begin of the marked `words` of a page, outside of its blocks."""
    words = re.findall("`([^`\n]+)`", re.sub("```.*?```", "", page, flags=re.DOTALL))
    begins = (re.match(r"[^\W\d]\w*(\.[^\W\d]\w*)*(?=\(|$)", word) for word in words)
    return {begin[0] for begin in begins if begin}


FOREIGN = {  # names of scikit-learn, files, commands, and keys of what users pass
    *("GridSearchCV", "LinearSVC", "LogisticRegression", "MLPClassifier", "Pipeline", "SGDClassifier"),
    *("Lasso", "LinearRegression", "MLPRegressor", "Ridge", "SGDRegressor"),
    *("NOTICE.md", "registry.py", "data_batch_1.bin", "data_batch_5.bin", "test_batch.bin", "sha256sum"),
    *("labels.csv", "class_index", "feature_mask", "device", "proofmap.zoo"),
    "estimator.classes_",
}


def test_every_name_that_the_reference_mentions_is_public() -> None:
    mentioned = names_of(PAGES["names.md"]()) - FOREIGN
    assert len(mentioned) > 150
    assert sorted(name for name in mentioned if not exists(name)) == []


@pytest.mark.parametrize("name", ["Curve", "pm.Curve", "Explanation.beauty", "attack.nearest", "score_of", "Ball.x"])
def test_a_name_that_is_not_public_is_noticed(name: str) -> None:
    assert names_of(f"It has the settings of `{name}`.") == {name}
    assert not exists(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_name_runs(name: str, set_up: dict[str, Any], folder: Path) -> None:
    prompts(example(PUBLIC[name]), dict(set_up), name)


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_follows_the_code(page: str) -> None:
    assert (PAGE_FOLDER / page).read_text(encoding="utf-8") == PAGES[page](), "run python scripts/reference.py"
