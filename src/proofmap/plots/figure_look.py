"""The options that all figures share: axes to draw into, a colour map, titles, and the choice of panels.

rcParams determine what no option states: `figure.figsize` the width of a figure, `font.size` the sizes of texts,
`image.cmap` the colours of unsigned scores, and `figure.dpi` the resolution in notebooks. Where rcParams have
matplotlib's own defaults, a figure has its natural width, and the colour map is magma.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from matplotlib import colormaps, rcParams, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from torch import Tensor

from proofmap.errors import InputError
from proofmap.plots.figure_page import Picture

_UNSIGNED_MAP, _SIGNED_MAP = "magma", "RdBu_r"  # both are readable with every colour-vision deficiency
_UNSIGNED_BAR = "#5c2482"
_BAR_PLACE = 0.35  # position in a given colour map that is the colour of unsigned bars
_SIGNED_BAR_PLACES = 0.12, 0.88  # positions in a signed colour map: negative and positive bars
_PAIR_PLACES = 0.2, 0.75  # positions in a given colour map of two colours that are no scale
LINE_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)  # Okabe and Ito: distinguishable for colour-blind readers

Number: TypeAlias = float | Sequence[float] | Tensor
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Look:
    """The options of a figure; None: its default."""

    ax: Axes | Iterable[Any] | None = None
    cmap: str | Colormap | None = None
    title: str | Sequence[str] | None = None
    panels: str | int | Sequence[str | int] | None = None
    mean: Number | None = None
    std: Number | None = None

    def chosen(self, known: Sequence[_T], default: Sequence[_T] | None = None) -> list[_T]:
        """Return the panels to draw, in the order of the option."""
        if self.panels is None:
            return list(known if default is None else default)
        asked = [self.panels] if isinstance(self.panels, str | int) else list(self.panels)
        if not asked or len(set(asked)) < len(asked) or any(each not in known for each in asked):
            names = ", ".join(map(repr, known))
            raise InputError(f"got panels={asked}, expected one or more of {names}, each at most once")
        return cast("list[_T]", asked)

    def axes(self, count: int) -> list[Axes]:
        """Return the given axes, one for each of `count` panels."""
        assert self.ax is not None
        given: Any = [self.ax] if isinstance(self.ax, Axes) else np.array(list(self.ax), dtype=object).ravel()
        if len(given) != count or not all(isinstance(each, Axes) for each in given):
            raise InputError(
                f"got {len(given)} axes for {count} panels, expected one for each: choose panels=[...], or one sample, "
                "such as explanation[0].plot(ax=ax, panels='map')"
            )
        return list(given)

    def titles(self, default: Sequence[str]) -> list[str]:
        """Return the titles, one for each default; one text is enough if there is one default."""
        if self.title is None:
            return list(default)
        given = [self.title] if isinstance(self.title, str) else list(self.title)
        if len(given) != len(default):
            raise InputError(f"got {len(given)} titles, expected one for each of {len(default)}: title=[...]")
        return given

    def heading(self, default: str) -> str:
        """Return the title of a figure that has one alone."""
        return self.titles([default])[0]

    def colours(self, signed: bool) -> Colormap:
        """Return the colour map from the lowest to the highest score."""
        return colours(signed) if self.cmap is None else colormap(self.cmap)

    def bar(self, score: float, signed: bool) -> Any:
        """Return the colour of a score that is drawn as a bar."""
        if not signed:
            return _UNSIGNED_BAR if self.cmap is None else self.colours(signed)(_BAR_PLACE)
        return self.colours(signed)(_SIGNED_BAR_PLACES[int(score > 0)])

    @property
    def pair(self) -> tuple[Any, Any]:
        """The two colours of a figure without a colour scale."""
        if self.cmap is None:
            return LINE_COLOURS[0], LINE_COLOURS[1]
        first, second = (colormap(self.cmap)(place) for place in _PAIR_PLACES)
        return first, second


def colormap(given: str | Colormap) -> Colormap:
    """Return a colour map by its name."""
    if isinstance(given, Colormap):
        return given
    if given not in colormaps:
        raise InputError(f"got cmap={given!r}, expected the name of a matplotlib colour map, such as 'cividis'")
    return colormaps[given]


def colours(signed: bool) -> Colormap:
    """Return the default colour map: for unsigned scores, rcParams' if it was changed."""
    stated = rcParams["image.cmap"]
    if not signed and stated != rcParamsDefault["image.cmap"]:
        return colormaps[stated]
    return colormaps[_SIGNED_MAP if signed else _UNSIGNED_MAP]


def line_colour() -> Any:
    """Return the colour of lines that are neither scores nor bounds: black on a page of our own."""
    return rcParams["axes.edgecolor"]


def figure_of(panels: Sequence[Axes]) -> Picture:
    """Return the figure of given axes; only a figure of our own has more than matplotlib's methods."""
    return cast("Picture", panels[0].figure.figure)
