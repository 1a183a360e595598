"""The interface of panels, the sections of the report, and panels that a template writes.

A panel adds one section to the page and one link to its contents. `panels/__init__.py` lists the panels of the report.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from proofmap.bench import Table
from proofmap.report.network_data import NetworkPage
from proofmap.report.provenance import Record
from proofmap.runs import Results
from proofmap.text.verdict_wording import GLYPHS
from proofmap.text.wording import number


class Panel(Protocol):
    """A section of the report.

    id: the anchor of the section. The section is one HTML element that contains an element with this id.
    title: the text of its link in the contents.
    style: its CSS rules, in addition to those in `report.css`.
    """

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def style(self) -> str: ...

    def section(self) -> str:
        """Return the HTML of the section. The panel escapes texts that come from files."""
        ...


@dataclass(frozen=True, eq=False)
class ReportData:
    """The content of a report, which panels show."""

    networks: Sequence[NetworkPage]  # the explained networks with their inputs and findings
    runs: Sequence[tuple[str, Results]]
    table: Table | None  # a comparison of methods
    records: Sequence[Record]  # settings, versions and digests of the explanations
    model: str | None  # the name of the model that was given to the report


PanelSource: TypeAlias = Callable[[ReportData], Iterable[Panel]]  # returns no panel if it has nothing to show


@dataclass(frozen=True, eq=False)
class TemplatePanel:
    """A panel that a template writes, which escapes all texts. Its blocks are `section` and, if needed, `style`."""

    id: str
    title: str
    template: str  # its path in the folder `report`
    values: Mapping[str, Any]

    @property
    def style(self) -> str:
        return self._block("style")

    def section(self) -> str:
        """Return the block `section`."""
        return self._block("section")

    def _block(self, name: str) -> str:
        template = TEMPLATES.get_template(self.template)
        block = template.blocks.get(name)
        return "" if block is None else "".join(block(template.new_context(dict(self.values))))


TEMPLATES = Environment(
    loader=PackageLoader("proofmap", "report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "place": "{:.2f}%".format,
    "score": lambda value: f"{value:.3g}".replace("-", "−"),
    "bound": number,
}
TEMPLATES.globals |= {"glyphs": GLYPHS}
