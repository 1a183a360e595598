"""The page in a browser: it loads nothing, fits every screen, prints completely, and is accessible."""

import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proofmap.report import report
from tests.explainers.making import make
from tests.report.browser import NAMES, Tab, find, tab
from tests.report.test_html_report import MARKUP

BROWSER = find()
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}")

# The smallest contrast of a text with its background (WCAG 2.2, 1.4.3), and the text.
CONTRAST = """
(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = parse(c).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    const parts = parse(c); if (parts.length < 4 || parts[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let worst = [99, ''];
  for (let node; node = walker.nextNode();) {
    const text = node.data.trim(), parent = node.parentElement;
    if (!text || !parent.checkVisibility()) continue;
    const style = getComputedStyle(parent), colour = parent.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(colour), light(behind(parent))].sort((p, q) => q - p);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst[0]) worst = [ratio, text];
  }
  return worst;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    assert BROWSER is not None
    with tab(BROWSER, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def opened(browser: Tab, page: Path) -> Tab:
    browser.resize(1280)
    browser.look()
    browser.requests.clear()
    browser.open(page)
    return browser


def test_the_page_loads_only_its_own_file(opened: Tab, page: Path) -> None:
    assert [url for url in opened.requests if not url.startswith("data:image/png;base64,")] == [page.as_uri()]
    shown = opened.run("[...document.images].map(i => i.complete && i.naturalWidth >= 224)")
    assert len(shown) > 3 * opened.run("document.querySelectorAll('article').length")
    assert all(shown)


@pytest.mark.parametrize("width", [1280, 768, 390, 320])
def test_no_screen_has_to_scroll_sideways(opened: Tab, width: int) -> None:
    opened.resize(width)
    opened.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.run("document.documentElement.scrollWidth") <= width


CELLS = """
[...document.querySelectorAll('table.cards')].map(table => [...table.querySelectorAll('tbody th, tbody td')]
  .filter(cell => cell.checkVisibility()).map(cell => cell.getBoundingClientRect())
  .every(box => box.left >= 0 && box.right <= innerWidth && box.width > 0))
"""
LABELS = "[...document.querySelectorAll('td[data-label]')].map(d => getComputedStyle(d, '::before').content)"


def test_tables_become_cards_on_a_phone(opened: Tab) -> None:
    """Every cell is on the screen, with the name of its column. On wide screens the head of the table shows it."""
    assert set(opened.run(LABELS)) == {"none"}
    opened.resize(390)
    cells = opened.run(CELLS)
    assert len(cells) >= 4
    assert all(cells)
    labels = opened.run(LABELS)
    assert '"Overlap at most"' in labels
    assert "none" not in labels
    hidden = opened.run(
        "[...document.querySelectorAll('.cards td:not(.plot)')].filter(d => !d.checkVisibility()).length"
    )
    assert hidden == 0


def test_the_limits_are_on_the_screen(opened: Tab) -> None:
    seen = "[...document.querySelectorAll('li')].filter(i => i.textContent.startsWith('That the network is right'))"
    assert opened.run(f"{seen}.map(i => i.checkVisibility({{contentVisibilityAuto: true}}))") == [True]


def test_the_test_notices_a_wide_element(opened: Tab) -> None:
    opened.resize(390)
    opened.run("document.querySelector('figure').style.width = '900px'")
    assert opened.run("document.documentElement.scrollWidth") > 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened: Tab, scheme: str) -> None:
    opened.look(scheme=scheme)
    opened.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    ratio, text = opened.run(CONTRAST)
    assert ratio >= 4.5, text
    ground = opened.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (ground < 128) == (scheme == "dark")


def test_the_test_notices_pale_text(opened: Tab) -> None:
    opened.run("document.querySelector('h2').style.color = '#999'")
    assert opened.run(CONTRAST)[0] < 4.5


def test_each_input_is_printed_on_its_own_page(opened: Tab) -> None:
    """Folded tables are open on paper, and the page is white in dark mode too."""
    tables = "[...document.querySelectorAll('details table')].map(t => t.checkVisibility())"
    assert not any(opened.run(tables))
    opened.look("print", "dark")
    assert all(opened.run(tables))
    assert opened.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    parts = "'.run, .input, .finding + .finding'"
    breaks = f"[...document.querySelectorAll({parts})].map(e => getComputedStyle(e).breakBefore)"
    findings = opened.run("document.querySelectorAll('article').length")
    assert opened.run(breaks) == ["page"] * (findings + 1)  # and the run
    opened.look()
    pdf = b64decode(opened.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= findings + 3


def test_a_screen_reader_finds_its_way(opened: Tab) -> None:
    """The accessibility tree has landmarks, and names for all elements that need one."""
    nodes: list[dict[str, Any]] = opened.call("Accessibility.getFullAXTree")["nodes"]
    named = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
    roles = [role for role, _ in named]
    for landmark in ("banner", "main", "contentinfo", "navigation"):
        assert roles.count(landmark) == 1
    for role in ("image", "table", "region", "article", "link", "heading", "columnheader", "rowheader"):
        assert role in roles
        assert all(name for found, name in named if found == role), role
    images = [name for role, name in named if role == "image"]
    assert len(images) == opened.run("document.images.length")
    assert any("The scores lie mostly in these ninths of the image" in name for name in images)


def test_markup_in_a_file_does_not_run(browser: Tab, tmp_path: Path) -> None:
    """Scripts in names do not run even without the page's own Content-Security-Policy."""
    e = replace(make((1, 1, 4, 4)), method=MARKUP, settings={MARKUP: MARKUP}, versions={MARKUP: MARKUP})
    out = tmp_path / "page.html"
    report(out, [(MARKUP, e)], classes=[MARKUP] * 9)
    out.write_text(re.sub(r"<meta http-equiv[^>]*>", "", out.read_text(encoding="utf-8")), encoding="utf-8")
    browser.open(out)
    assert browser.run("document.scripts.length") == 0
    assert browser.run("typeof window.ran") == "undefined"
    assert MARKUP[:20] in browser.run("document.querySelector('h4').textContent + document.body.textContent")
