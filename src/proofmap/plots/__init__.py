"""Figures: every figure takes axes, a colour map, titles and a choice of panels, and follows rcParams.

>>> with pm.plots.paper(columns=2):
...     pm.EVA(model, ball, groups=cells).explain(x).plot().savefig("figure.pdf")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proofmap.plots.paper_style import COLUMN_WIDTHS, paper

__all__ = ["COLUMN_WIDTHS", "paper"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load a public name with matplotlib, which takes a while, on its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from proofmap.plots import paper_style

    return getattr(paper_style, name)
