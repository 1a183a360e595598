"""A page as a tree of elements, and the rules for every page. Python's own parser reads it, without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
LOADING = ("src", "srcset", "href", "xlink:href", "action", "formaction", "poster", "data", "background", "ping")


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def all(self, *names: str) -> list[Element]:
        """Return the elements below this one, in the order of the page."""
        return [element for element in self.walk() if not names or element.name in names]

    def walk(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child.walk()

    @property
    def text(self) -> str:
        return " ".join(" ".join(child if isinstance(child, str) else child.text for child in self.children).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if len({name for name, _ in attrs}) < len(attrs):
            self.wrong.append(f"<{tag}> has an attribute twice")
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1].name != tag:
            self.wrong.append(f"</{tag}> closes <{self.open[-1].name}> at {self.getpos()}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(page: str) -> tuple[Element, list[str]]:
    """Return the tree, and the tags that do not match."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.root, reader.wrong + [f"<{element.name}> is never closed" for element in reader.open[1:]]


def faults(page: str) -> list[str]:
    """Return the faults of a page: in its structure, its resources and its accessibility."""
    root, wrong = read(page)
    found = (_loads, _structure, _headings, _figures, _tables, _labelled_cells)
    return [*wrong, *(fault for faults_of in found for fault in faults_of(root))]


def _labelled_cells(root: Element) -> Iterator[str]:
    """Yield labelled cells with text beside elements: on a phone, such text has no place in the grid of the cell."""
    for cell in root.all("td"):
        bare = [child for child in cell.children if isinstance(child, str) and child.strip()]
        if "data-label" in cell.attributes and bare and len(bare) < len(cell.children):
            yield f"the cell {cell.text!r:.60} has text beside elements"


def _loads(root: Element) -> Iterator[str]:
    for element in root.walk():
        if element.name in ("script", "iframe", "object", "embed", "link", "base", "form", "video", "audio"):
            yield f"<{element.name}> has no place in a page that loads and runs nothing"
        for name, value in element.attributes.items():
            if name.startswith("on"):
                yield f"<{element.name}> runs {name}={value!r:.40}"
            inside = value.startswith("data:image/png;base64,") if element.name == "img" else value.startswith("#")
            if name in LOADING and not inside:
                yield f"<{element.name}> loads {name}={value!r:.60}"
        if element.name == "style":
            yield from (f"the style has {s}" for s in re.findall(r"url\(|@import|https?:|expression\(", element.text))


def _structure(root: Element) -> Iterator[str]:
    if [element.attributes.get("lang") for element in root.all("html")] != ["en"]:
        yield "the page does not say its language"
    if not any("width=device-width" in meta.attributes.get("content", "") for meta in root.all("meta")):
        yield "the page does not fit a phone"
    for name in ("title", "main", "header", "nav", "footer", "h1"):
        if len(root.all(name)) != 1:
            yield f"there are {len(root.all(name))} <{name}>"
    ids = [element.attributes["id"] for element in root.walk() if "id" in element.attributes]
    yield from (f"the id {name} is given twice" for name in sorted({name for name in ids if ids.count(name) > 1}))
    targets = {name for a in root.all("a") for name in (a.attributes["href"].removeprefix("#"),)}
    labelled = [e.attributes["aria-labelledby"] for e in root.walk() if "aria-labelledby" in e.attributes]
    labels = {name for names in labelled for name in names.split()}
    yield from (f"nothing has the id {name}" for name in sorted((targets | labels) - set(ids)))


def _headings(root: Element) -> Iterator[str]:
    before = 0
    for heading in root.all("h1", "h2", "h3", "h4", "h5", "h6"):
        level = int(heading.name[1])
        if level > before + 1 or not heading.text:
            yield f"<{heading.name}> {heading.text!r} follows <h{before}>"
        before = level


def _figures(root: Element) -> Iterator[str]:
    for figure in root.all("figure"):
        if len(figure.all("figcaption")) != 1 or not figure.all("table"):
            yield "a figure without a caption or without a table of what it shows"
    for image in root.all("img"):
        if len(image.attributes.get("alt", "").split()) < 5:
            yield f"an image with the words {image.attributes.get('alt')!r}"
    for drawing in root.all("svg"):
        if drawing.attributes.get("aria-hidden") != "true":
            yield "a drawing is read aloud: its numbers stand in a table already"


def _tables(root: Element) -> Iterator[str]:
    for table in root.all("table"):
        if not table.all("caption") or not table.all("thead"):
            yield f"a table without a caption or a head: {table.text[:60]!r}"
        for cell in table.all("th"):
            if cell.attributes.get("scope") not in ("col", "row", "rowgroup") or not cell.text:
                yield f"a head cell without a scope or words: {cell.text!r}"
        columns = sum(int(cell.attributes.get("colspan", 1)) for cell in table.all("thead")[0].all("th"))
        for body in table.all("tbody"):
            yield from _rows(body, columns)


def _rows(body: Element, columns: int) -> Iterator[str]:
    """Yield rows that are not as wide as the head, counting cells of earlier rows that extend into them."""
    reaching: list[int] = []  # rows that are left to each cell from above
    for row in body.all("tr"):
        above = sum(1 for left in reaching if left > 0)
        cells = row.all("td", "th")
        reaching = [left - 1 for left in reaching if left > 1]
        reaching += [int(c.attributes["rowspan"]) - 1 for c in cells if int(c.attributes.get("rowspan", 1)) > 1]
        if len(cells) + above != columns:
            yield f"a row of {len(cells)} cells under a head of {columns}: {row.text[:60]!r}"
