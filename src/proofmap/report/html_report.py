"""Write the report: one self-contained HTML file without scripts or external resources.

The template escapes all texts that come from files (names, settings, numbers).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from proofmap.bench import Table
from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_inputs import INPUTS
from proofmap.graph import Graph
from proofmap.report.attacked_overlaps import attacked, checked
from proofmap.report.finding_texts import Names
from proofmap.report.provenance import day, records_of
from proofmap.runs import Results
from proofmap.sources import Model
from proofmap.storage.records import write_atomic
from proofmap.text.wording import plural

if TYPE_CHECKING:
    from proofmap.report.network_data import NetworkPage
    from proofmap.report.panel import PanelSource

_MAX_MAPS = 500  # a browser opens a page with more maps slowly


def report(
    out: Path,
    explanations: Sequence[tuple[str, Explanation]],
    *,
    classes: Names = None,
    table: Table | None = None,
    model: nn.Module | Graph | Model | None = None,
    runs: Sequence[tuple[str, Results]] = (),
    by: str | None = None,
    date: date | None = None,
    panels: Sequence[PanelSource] = (),
) -> None:
    """Write the report of named explanations to `out`. The same arguments give the same bytes.

    classes: the names of the classes, by default those in the files.
    table: a comparison of methods, shown as a further section.
    model: the explained model. An attack on it gives the lower bound of each overlap. Without a model, the lower bound
    is the largest value that the explanation itself found.
    runs: named results of data sets; the report shows their totals. They do not contain their samples, so the model is
    only checked to be the same.
    by: the author of the report. date: the date of the report, by default today.
    panels: functions that return further sections of the page, shown after the others.
    """
    if not explanations and not runs:
        raise InputError("got no explanation and no run, expected at least one to report on")
    count = sum(len(e) for _, e in explanations)
    if count > _MAX_MAPS:
        raise InputError(
            f"got {count} explained samples, expected at most {_MAX_MAPS} in one page: report on fewer files"
        )
    _check_classes(explanations, classes)
    network, given = _named(model)
    for name, results in runs:
        about = results.about["model"]
        if network is not None:
            checked(network, torch.zeros(1, *about["shape"]), name, about["sha256"], about.get(INPUTS))
    from proofmap.report.finding_pictures import gradient  # imports matplotlib, which is slow
    from proofmap.report.network_data import networks_of
    from proofmap.report.panel import TEMPLATES, ReportData
    from proofmap.report.panels import PANELS

    reached = [None if network is None else attacked(network, name, e) for name, e in explanations]
    records, ids = records_of(explanations)
    networks = networks_of(explanations, classes, reached, ids, given)
    data = ReportData(networks, runs, table, records, given)
    shown = [panel for source in (*PANELS, *panels) for panel in source(data)]
    _check_ids([panel.id for panel in shown])
    page = TEMPLATES.get_template("report.html").render(
        version=sys.modules["proofmap"].__version__,
        headline=_headline(networks, [results for _, results in runs]),
        date=day(datetime.now().astimezone().date() if date is None else date),
        by=by,
        panels=shown,
        styles=dict.fromkeys(panel.style for panel in shown),
        ramps={"positive": gradient(signed=False), "signed": gradient(signed=True)},
    )
    write_atomic(out, page.encode(errors="replace"), ours=True)  # names may contain lone surrogates


def _named(model: nn.Module | Graph | Model | None) -> tuple[nn.Module | Graph | None, str | None]:
    """Return the network and its name in the report."""
    if isinstance(model, Model):
        return model.network, model.name
    return model, None if model is None else "The model"


def _check_classes(explanations: Sequence[tuple[str, Explanation]], given: Names) -> None:
    for name, e in explanations:
        stated = None if e.origin is None else e.origin.classes
        classes = stated if given is None else given
        if classes is None:
            continue
        labels = [label for k in range(len(e)) if (label := e.label(k)) is not None]
        used = [*torch.cat([e.target, e.predicted, e.overlap.target]).tolist(), *labels]
        low, high = min(used), max(used)
        if low < 0 or high >= len(classes):
            wrong, got = low if low < 0 else high, plural(len(classes), "name")
            raise InputError(f"got {got} for the classes, expected one for class {wrong} of {name} too")


def _check_ids(ids: Sequence[str]) -> None:
    """Refuse two panels with one id: links would lead to the first of them."""
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"got two panels with the id {twice!r}, expected one: give the new panel another id")


def _headline(networks: Sequence[NetworkPage], runs: Sequence[Results]) -> str:
    findings = sum(len(network.findings) for network in networks)
    inputs = len({subject.digest for network in networks for subject in network.subjects})
    about = f"{plural(findings, 'finding')} about {plural(inputs, 'input')} of {plural(len(networks), 'model')}"
    samples = f"{plural(sum(map(len, runs)), 'sample')} of {plural(len(runs), 'data set')}"
    return "; ".join([*([about] if findings else []), *([samples] if runs else [])])
