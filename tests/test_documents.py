"""The examples in the documentation run and print what the pages show, and the lists in the pages are complete."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.image import imread

from proofmap import __version__
from proofmap.bounds.method import METHODS
from proofmap.cli.options.option_names import MAP_METRICS
from proofmap.graph.ops import OPERATIONS
from proofmap.graph.torch.operators.operator_table import CONVERTERS
from proofmap.rules import RULES
from tests.pages import READ, ROOT, RUN, blocks, run

NAMES = ROOT / "docs" / "reference" / "names.md"  # each example of this page is run separately
PAGES = [page for page in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md") if page != NAMES]
OWN_TESTS = ("gallery.md", "tables.md", "tour.md")
GALLERY, FIGURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "figures"
_MAX_CHANGE = 0.01  # mean difference of two drawings of a figure; another map or layout differs by more
SLOW = {
    "audit.md",
    "clusters.md",
    "command-line.md",
    "data-sets.md",
    "dossier.md",
    "radius.md",
    "read.md",
    "train.md",
    "tutorial.md",
}  # pages that take more than a few seconds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in and to import from; imports and additions to tables are undone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    tables: list[dict[str, Any]] = [OPERATIONS, RULES, CONVERTERS, METHODS]
    kept = [dict(table) for table in tables]
    yield tmp_path
    for table, before in zip(tables, kept, strict=True):
        table.clear()
        table.update(before)
    for name in [name for name, one in sys.modules.items() if str(tmp_path) in str(getattr(one, "__file__", None))]:
        del sys.modules[name]


def test_the_readme_examples_run(folder: Path) -> None:
    """The first example has five lines, and its picture is the one shown."""
    run(ROOT / "README.md", folder)
    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert len([line for line in first.text.splitlines() if line]) == 5
    assert (folder / "fours.png").read_bytes().startswith(b"\x89PNG")
    assert (ROOT / "docs" / "fours.png").is_file()


def test_the_shapes_in_the_tour_are_right(folder: Path) -> None:
    _, names = run(ROOT / "docs" / "guides" / "tour.md", folder)
    assert names["over"].frozen.shape == (4, 144)
    assert torch.equal(names["again"].scores, names["explanation"].scores)
    assert names["maps"].shape == names["x"].shape


def test_the_shapes_on_the_page_of_tables_are_right(folder: Path) -> None:
    _, names = run(ROOT / "docs" / "tables.md", folder)
    assert names["found"].scores.shape == (20, 30)
    assert sorted(path.name for path in folder.iterdir()) == ["row.png", "summary.png"]


@pytest.mark.slow
def test_the_gallery_shows_the_figures_that_its_code_draws(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stored picture is a figure of the page, drawn again up to the last places of its numbers."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    run(GALLERY, folder)
    pyplot.close("all")
    shown = re.findall(r"!\[[^\]]+\]\(figures/(\w+\.png)\)", GALLERY.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(path.name for path in folder.glob("*.png"))
    assert sorted(shown) == sorted(path.name for path in FIGURES.iterdir())
    for name in shown:
        stored, drawn = (imread(place / name)[..., :3] for place in (FIGURES, folder))
        assert stored.shape == drawn.shape, name
        assert float(np.abs(stored - drawn).mean()) < _MAX_CHANGE, name
        assert (FIGURES / name).stat().st_size < 100_000, name


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.name in SLOW else [], id=str(page.relative_to(ROOT)))
        for page in PAGES
        if page.name not in ("tour.md", "tables.md", "gallery.md") and any(one.language in RUN for one in blocks(page))
    ],
)
def test_a_page_runs_and_prints_the_shown_output(page: Path, folder: Path) -> None:
    ran, _ = run(page, folder)
    assert ran > 0


def test_every_block_has_a_known_language() -> None:
    """A misspelt or missing language would hide a block from the test above."""
    languages = {(str(page), block.line): block.language for page in PAGES for block in blocks(page)}
    assert {place: language for place, language in languages.items() if language not in {*RUN, *READ}} == {}
    fences = {page: page.read_text(encoding="utf-8").count("\n```") for page in PAGES}
    assert fences == {page: 2 * len(blocks(page)) for page in PAGES}


@pytest.mark.parametrize(
    "block",
    [
        "```python\nassert 1 + 1 == 3\n```",
        "```pycon\n>>> 100\n101\n```",
        "```pycon\n>>> 10.0\n10.3\n```",
        "```pycon\n>>> print('a\\n\\nb')\na\n```",
        "```pycon\n>>> print('a')\nb ...\n```",
        "```console\n$ proofmap --version\nproofmap 0.2.0\n```",
        "```pycon\n>>> print('1 |▁▃█ ▁| 9')\n1 |▁▅█ ▁| 9\n```",
        "```pycon\n>>> print('1 |▁▃█ ▁| 9')\n1 |▁▃█▁| 9\n```",
        "```pycon\n>>> print('1 |▁▃█ ▁| 9')\n1 |▁▃█ ▁| 8\n```",
        "```pycon\n>>> print('▁▃█')\n▁▄█\n```",
        "```console\n$ pip install proofmap\n```",
        "```console\nproofmap 0.1.0\n```",
        "```console\n$ python -c 'raise SystemExit(1)'\n```",
    ],
)
def test_a_wrong_page_fails(block: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(f"{block}\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        run(page, folder)


@pytest.mark.parametrize("shown", ["1 |▁▃█ ▁| 9", "1 |▂▂▇▁ | 9"])
def test_bars_may_differ_by_one_step(shown: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(f"```pycon\n>>> print('1 |▁▃█ ▁| 9')\n{shown}\n```\n", encoding="utf-8")
    assert run(page, folder)[0] == 1


def test_links_of_top_level_documents_exist() -> None:
    """Links between pages are checked when the site is built."""
    links = {
        (document.name, link)
        for document in ROOT.glob("*.md")
        for link in re.findall(r"\]\((?!\w+:)([^)#]+)", document.read_text(encoding="utf-8"))
    }
    assert len(links) > 20
    assert [link for link in sorted(links) if not (ROOT / link[1]).exists()] == []


def test_every_stated_version_is_the_current_one() -> None:
    """Outputs of commands are compared when the pages run; this checks sentences and file names."""
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    stated = {
        (page.name, version)
        for page in (ROOT / "README.md", *PAGES)
        for version in re.findall(r"(?:Version |proofmap-)(\d+\.\d+\.\d+)", page.read_text(encoding="utf-8"))
    }
    assert stated == {("README.md", __version__), ("install.md", __version__)}


def test_every_metric_of_the_command_line_is_explained() -> None:
    """The table of the page has a line for each."""
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert set(MAP_METRICS) <= {name for row in rows for name in re.findall(r"`([^`]*)`", row)}
