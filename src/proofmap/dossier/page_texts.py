"""Texts of a dossier: the templates of its pages, and samples.json with the statements of its maker.

The templates have a `$name` for each figure that the checker inserts: see `TEXTS` in proof/check.py. No certificate
proves the statements of the maker.
"""

import json
import sys
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from proofmap.dossier.dossier_certificates import RunCertificates, SampleCertificate
from proofmap.report.provenance import day
from proofmap.runs import Results
from proofmap.storage.exported_tables import escape_surrogates, one_line
from proofmap.text.wording import taken_off

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PAGES = {
    "README.txt": "readme.txt",
    **{name: name for name in ("evidence.html", "evidence.md", "report.html", "sample.html")},
}


@cache
def templates(kind: str = "decisions") -> dict[str, bytes]:
    """Return the templates of the pages, by their names in the dossier. kind: "decisions" or "outputs"."""
    texts = _evidence("evidence.toml")
    texts["outputs"] = kind == "outputs"
    if texts["outputs"]:
        other = {row["title"]: row for row in _evidence("evidence_of_outputs.toml")["rows"]}
        for framework in texts["frameworks"]:
            framework["rows"] = [row | other.pop(row["title"], {}) for row in framework["rows"]]
        assert not other, f"no rows of these titles: {[*other]}"
    plain, html = _environment(autoescape=False), _environment(autoescape=True)
    html.filters["members"] = _code_names
    made = {}
    for name, file in _PAGES.items():
        page = (html if file.endswith(".html") else plain).get_template(file).render(texts)
        made[f"templates/{name}"] = f"{page.strip()}\n".encode()
    return made


def _evidence(name: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(files("proofmap.dossier").joinpath(name).read_text(encoding="utf-8"))
    return found


def _code_names(text: str) -> Markup:
    """Return HTML with each `name` between backticks set as code, and all other text escaped."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if k % 2 else p for k, p in enumerate(parts))


def _environment(*, autoescape: bool) -> Environment:
    loader = PackageLoader("proofmap", "dossier")
    return Environment(
        loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def member(folder: str, claimed: SampleCertificate) -> str:
    """Return the name in the dossier of a sample's file."""
    path = claimed.certificate if folder == "certificates" else claimed.input
    return f"{folder}/{path.name}"


def maker_statements(results: Results, certificates: RunCertificates, by: str | None, when: date) -> bytes:
    """Return samples.json: texts for the pages, and each sample with its certificate or the reason why it has none."""
    samples, claimed = [], {one.row: one for one in certificates.claimed}
    labels = results["label"].tolist() if "label" in results.names else [-1] * len(results)
    about_outputs = certificates.kind == "outputs"
    rows = zip(results.samples, results.files, labels, results["predicted"].tolist(), strict=True)
    for row, (name, file, label, predicted) in enumerate(rows):
        one: dict[str, Any] = {"sample": one_line(escape_surrogates(name)), "file_sha256": file}
        if about_outputs:
            label = predicted = -1  # outputs have no classes
        one |= {"label": None if label < 0 else label, "predicted": None if predicted < 0 else predicted}
        if row in claimed:
            files = {"certificate": member("certificates", claimed[row]), "input": member("inputs", claimed[row])}
            samples.append({**one, **files})
        else:
            samples.append({**one, "reason": one_line(escape_surrogates(certificates.reasons[row]))})
    versions = ", ".join(f"{name} {version}" for name, version in results.about["versions"].items())
    words = {
        "model": results.manifest.model.name or "not named",
        "origin": _origin(certificates),
        "note": "" if results.taken_off is None else f"{taken_off(results.taken_off).capitalize()}.",
        "versions": versions,
        "made": f"{'Made' if by is None else f'Made by {by}'} on {day(when)}",
    }
    plain = {name: one_line(text)[:1000] for name, text in words.items()}
    return (json.dumps({"stated": plain, "samples": samples}, indent=1) + "\n").encode()


def _origin(certificates: RunCertificates) -> str:
    """Describe the origin of the model's file, as the certificates state it."""
    name, original = f"model/{certificates.model.name}", certificates.claimed[0].claim.file.get("exported_from")
    if original is None:
        return f"{name} is the file that the run was given."
    source = {"file": "an ONNX file with the SHA-256", "model": "a model with the hash"}[original["kind"]]
    return f"{name} was exported from {source} {original['sha256']}, because {original['because']}."
