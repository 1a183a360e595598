"""The texts of a dossier's pages, with a `$name` where the checker puts a figure: see `TEXTS` in proof/check.py."""

from __future__ import annotations

import sys
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["templates"]

_PAGES = {
    "README.txt": "readme.txt",
    **{name: name for name in ("evidence.html", "evidence.md", "report.html", "sample.html")},
}


@cache
def templates() -> dict[str, bytes]:
    """The members of a dossier that hold these texts, by name."""
    texts = tomllib.loads(files("proofmap.dossier").joinpath("evidence.toml").read_text(encoding="utf-8"))
    plain, html = _environment(autoescape=False), _environment(autoescape=True)
    html.filters["members"] = _members
    made = {}
    for name, file in _PAGES.items():
        page = (html if file.endswith(".html") else plain).get_template(file).render(texts)
        made[f"templates/{name}"] = f"{page.strip()}\n".encode()
    return made


def _members(text: str) -> Markup:
    """HTML with `names` of members set as code; everything else is text."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if k % 2 else p for k, p in enumerate(parts))


def _environment(*, autoescape: bool) -> Environment:
    loader = PackageLoader("proofmap", "dossier")
    return Environment(
        loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
