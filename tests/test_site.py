"""The documentation as a website: it builds without warnings and loads nothing from other hosts."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.report.browser import NAMES, find, tab

BROWSER = find()
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


TAGS = """a aside br button code del details div em form h1 h2 h3 h4 hr img input label li nav ol p path pre section
span strong sub summary sup svg table tbody td th thead tr u ul"""


class Written(HTMLParser):
    """Collects the text of a page, and tags that do not exist: a browser hides a formula such as `<A, y>`."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.shown, self.text, self.odd = False, True, "", list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside |= tag == "article"
        self.shown &= tag != "pre"
        known = tag in TAGS.split() and (tag != "a" or dict(attrs).get("href"))
        if self.inside and tag != "article" and not known:
            self.odd.append(self.get_starttag_text() or tag)

    def handle_endtag(self, tag: str) -> None:
        self.inside &= tag != "article"
        self.shown |= tag == "pre"

    def handle_data(self, data: str) -> None:
        self.text += data * (self.inside and self.shown)


def written(text: str) -> Written:
    parser = Written()
    parser.feed(text)
    return parser


class Loaded(HTMLParser):
    """Collects the files that a browser requests for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == LOADS.get(tag) and value]


def loaded(text: str) -> list[str]:
    parser = Loaded()
    parser.feed(text)
    return parser.found


def elsewhere(addresses: list[str]) -> list[str]:
    return [address for address in addresses if re.match(r"(\w+:)?//", address)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_exists(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(site) for path in site.rglob("*.html")}
    assert {page for page in pages if page.parts[0] != "results"} <= made


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    """All loaded files exist, so that the pages can be read from a disk, without a network."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        asked = loaded(page.read_text(encoding="utf-8"))
        assert elsewhere(asked) == [], page.name
        if page.name != "404.html":  # its links start with the root of a server
            gone = [one for one in asked if not (page.parent / re.sub(r"[?#].*", "", one)).exists()]
            assert gone == [], page.name
    for sheet in site.rglob("*.css"):
        assert elsewhere(re.findall(r"url\([\"']?([^)\"']*)", sheet.read_text(encoding="utf-8"))) == [], sheet.name


def test_all_written_text_is_shown(site: Path) -> None:
    """No formula is read as a tag, and no table stays as bars."""
    for page in sorted(site.rglob("*.html")):
        found = written(page.read_text(encoding="utf-8"))
        assert found.odd == [], page.name
        assert not re.search(r"^\|[ :-]+\|", found.text, re.MULTILINE), page.name


def test_a_hidden_formula_is_found() -> None:
    found = written("<b></b><article><p>1 < 2, <A, y> <A W, x> <a href='#'>b</a><pre>| --- |</pre></article>")
    assert found.odd == ["<A, y>", "<A W, x>"]
    assert "1 < 2" in found.text
    assert "---" not in found.text


def test_a_foreign_address_is_found() -> None:
    foreign = '<script src="https://a.example/x.js"></script><link rel="x" href="//b.example"><img src="c.png">'
    assert elsewhere(loaded(foreign)) == ["https://a.example/x.js", "//b.example"]


SEARCH = """new Promise((found) => {
  const box = document.querySelector("input.md-search__input");
  box.focus();
  box.value = "rounding";
  box.dispatchEvent(new Event("keyup"));
  const look = () => {
    const links = [...document.querySelectorAll(".md-search-result__item a")].map((link) => link.getAttribute("href"));
    links.length ? found(links) : setTimeout(look, 100);
  };
  look();
})"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}")
def test_the_site_fits_wide_and_narrow_screens(site: Path, tmp_path: Path) -> None:
    """The browser requests only files of the site."""
    assert BROWSER is not None
    with tab(BROWSER, tmp_path / "profile") as opened:
        for page in sorted(site.rglob("*.html")):
            for width in (1280, 390):
                opened.resize(width)
                opened.open(page)
                assert opened.run("document.documentElement.scrollWidth <= innerWidth"), (page.name, width)
        assert [one for one in opened.requests if not one.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}")
def test_the_search_works_from_the_disk(site: Path, tmp_path: Path) -> None:
    assert BROWSER is not None
    with tab(BROWSER, tmp_path / "profile") as opened:
        opened.open(site / "guides" / "audit.html")
        assert any("theory.html" in link for link in opened.run(SEARCH))
