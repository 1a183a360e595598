"""The pages of a dossier: its figures put into the texts of evidence.toml, as HTML and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from proofmap.dossier.archive import Check
from proofmap.dossier.facts import Facts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["pages"]


def pages(facts: Facts, first: Check, signed: str) -> dict[str, bytes]:
    """The pages by name. first: a certificate, its model and its input, as an example. signed: who and when."""
    texts = tomllib.loads(files("proofmap.dossier").joinpath("evidence.toml").read_text(encoding="utf-8"))
    told = {**_told(texts, vars(facts)), "facts": facts, "first": first, "signed": signed}
    told["version"] = sys.modules["proofmap"].__version__
    named = {"evidence.html": _HTML, "evidence.md": _PLAIN, "readme.txt": _PLAIN}
    made = {name: kind.get_template(name).render(told).encode(errors="replace") for name, kind in named.items()}
    return {"README.txt" if name == "readme.txt" else name: page for name, page in made.items()}


def _told(text: Any, figures: Mapping[str, Any]) -> Any:
    """Texts with their figures, at any depth."""
    if isinstance(text, dict):
        return {key: _told(value, figures) for key, value in text.items()}
    if isinstance(text, list):
        return [_told(value, figures) for value in text]
    return _PLAIN.from_string(text).render(figures)


def _members(text: str) -> Markup:
    """HTML with `names` of members set as code; all else is text."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if k % 2 else p for k, p in enumerate(parts))


def _environment(*, autoescape: bool) -> Environment:
    loader = PackageLoader("proofmap", "dossier")
    return Environment(
        loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


_PLAIN, _HTML = _environment(autoescape=False), _environment(autoescape=True)
_HTML.filters["members"] = _members
