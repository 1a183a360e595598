"""The panels of an explanation's figure, each drawn into given axes or on a white page with headings and captions.

All lengths are in inches, from the upper left corner.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import matplotlib
from matplotlib.axes import Axes
from matplotlib.legend_handler import HandlerTuple
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import MAX_LARGEST, is_series, ranks, searched
from proofmap.plots import token_sequence
from proofmap.plots.figure_look import Look, figure_of
from proofmap.plots.figure_page import (
    MARGIN,
    PAGE_WIDTH,
    Heading,
    Picture,
    fit,
    page,
    page_width,
    panel_at,
    text_height,
    text_size,
    text_width,
    write,
)
from proofmap.plots.figure_titles import caption, selection, short_title
from proofmap.plots.largest_scores import MAX_BARS, Chart, largest_scores, mask_of_sample
from proofmap.plots.output_position import CAPTION, mark_output, output_box
from proofmap.plots.overlay import draw_picture, ends, layers, numbers, picture_of, pixels_of
from proofmap.plots.score_chart import draw_bars, legend, mark
from proofmap.plots.time_series import draw_series, draw_windows, reading

_MAX_IMAGE_WIDTH, _MAX_IMAGE_HEIGHT = 3.2, 2.6  # inches, on a page of the natural width
_MIN_IMAGE_HEIGHT = 0.8  # inches; a flat image is stretched to it
_IMAGE_GAP = 0.2  # on a page of the natural width; narrower pages have narrower gaps
_COLOUR_BAR_WIDTH = 0.1  # inches
_COLOUR_BAR_ROOM, _MIN_COLOUR_BAR_ROOM = 0.6, 0.5  # a colour bar with its labels
_BAR_HEIGHT, _AXIS_HEIGHT = 0.17, 0.5  # a bar of a chart; its axis and margins
_SERIES_HEIGHT, _WINDOWS_HEIGHT = 1.1, 0.75  # inches: a time series; the scores of its windows
_LEGEND_LINE = 0.2  # a line of the legend
_MIN_LEGEND_WIDTH = 6.5  # on a narrower page each entry has a line of its own

Painter: TypeAlias = Callable[[Axes, int], Any]  # draws a panel of one sample


class ExplanationDrawing:
    """Draws explanations of one kind of input: images, tables, series or sequences.

    painters: the panels of one sample by name. usual: those that are drawn by default.
    """

    def __init__(
        self, e: Explanation, look: Look, columns: Sequence[str] | None, tokens: Sequence[Sequence[str]] | None
    ) -> None:
        self._e, self._look, self._columns, self._tokens = e, look, columns, tokens
        self._scales = _scales(e)
        self._kept: list[Chart] | None = None
        self.painters: dict[str, Painter]
        if is_series(e):
            self.painters = {
                "series": lambda panel, k: draw_series(panel, e, k, self._scales[k], look),
                "scores": lambda panel, k: draw_windows(panel, e, k, self._scales[k], look),
            }
        elif tokens is not None:
            self.painters = {"tokens": self._sequence, "scores": self._bars}
        elif e.x.ndim in (3, 4):
            self.painters = {"input": self._input, "map": self._map, "overlay": self._overlay, "scores": self._bars}
        else:
            self.painters = {"scores": self._bars}
        images = "map" in self.painters
        self.usual: list[str] = [
            name for name in self.painters if not images or name != "scores" or searched(e) or e.errors is not None
        ]

    @property
    def _charts(self) -> list[Chart]:
        """The largest scores of each sample."""
        if self._kept is None:
            most = MAX_LARGEST if "map" in self.painters or self._tokens is not None else MAX_BARS
            self._kept = largest_scores(self._e, most, self._columns, self._tokens)
        return self._kept

    def _input(self, panel: Axes, k: int) -> None:
        draw_picture(panel, self._e.x[k], self._look)
        self._finish_image(panel)

    def _map(self, panel: Axes, k: int) -> Any:
        e, (low, high) = self._e, self._scales[k]
        values, cmap = pixels_of(e.attributions[k]), self._look.colours(e.signed)
        heat = panel.imshow(values, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
        if searched(e):
            mark(panel, mask_of_sample(e, k), ranks(e, k))
        self._finish_image(panel)
        return heat

    def _overlay(self, panel: Axes, k: int) -> Any:
        e, look = self._e, self._look
        picture, values = picture_of(e.x[k], look.mean, look.std), pixels_of(e.attributions[k])
        self._finish_image(panel)
        return layers(picture, values, self._scales[k][1], e.signed, look.colours(e.signed)).draw(panel)

    @property
    def _box(self) -> tuple[float, float, float, float] | None:
        """The explained output in the image."""
        return output_box(self._e.settings, *pixels_of(self._e.attributions[0]).shape)

    def _finish_image(self, panel: Axes) -> None:
        """Remove the ticks of an image, and draw the box of an explained output."""
        panel.set(xticks=[], yticks=[])
        if self._box is not None:
            mark_output([panel], self._box)

    def _bars(self, panel: Axes, k: int) -> None:
        draw_bars(panel, *self._charts[k], self._scales[k], self._e.signed, self._look)

    def _sequence(self, panel: Axes, k: int) -> None:
        assert self._tokens is not None
        draw = token_sequence.draw_tokens
        draw(panel, self._e, k, self._tokens[k], self._scales[k], self._look, text_size())

    def draw_into(self, panels: Sequence[Axes], chosen: Sequence[str], class_names: Sequence[str] | None) -> Picture:
        """Draw into given axes, sample by sample, in the style of their figure; return this figure."""
        with matplotlib.rc_context({"text.parse_math": False}):
            texts = self._look.titles([short_title(self._e, k, class_names) for k in range(len(self._e))])
            for at, panel in enumerate(panels):
                k, which = divmod(at, len(chosen))
                self.painters[chosen[which]](panel, k)
                if not which:
                    panel.set_title(texts[k])
        return figure_of(panels)

    def page(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:
        """Draw on a white page of its own."""
        if "map" in self.painters:
            return self._images(headings, note, chosen)
        if "series" in self.painters:
            return self._series(headings, note, chosen)
        return self._rows(headings, note, chosen)

    def _images(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:
        e, images = self._e, [name for name in chosen if name != "scores"]
        charts = self._charts if "scores" in chosen else []
        coloured = {name for name in images if name == "map" or (name == "overlay" and "map" not in images)}
        width, size = page_width(), text_size()
        scale, gap = max(1.0, width / PAGE_WIDTH), _IMAGE_GAP * min(1.0, width / PAGE_WIDTH)
        beside = max(_MIN_COLOUR_BAR_ROOM, min(_COLOUR_BAR_ROOM, _COLOUR_BAR_ROOM * width / PAGE_WIDTH))
        room = [beside if name in coloured else 0.0 for name in images]
        free = width - 2 * MARGIN - gap * (len(images) - 1) - sum(room)
        slot = min(free / max(1, len(images)), _MAX_IMAGE_WIDTH * scale)
        rows, columns = pixels_of(e.attributions[0]).shape
        tall = min(max(slot * rows / columns, min(slot, _MIN_IMAGE_HEIGHT)), _MAX_IMAGE_HEIGHT * scale)
        wide = min(slot, tall * columns / rows)
        start = (width - sum(room) - slot * len(images) - gap * (len(images) - 1)) / 2
        lefts = [start + at * (slot + gap) + sum(room[:at]) + (slot - wide) / 2 for at in range(len(images))]
        recoloured = self._look.cmap is not None
        captions = {
            "input": "input" if self._box is None else CAPTION,
            "map": caption(e, recoloured),
            "overlay": "overlay",
        }
        if "map" not in images:
            captions["overlay"] = captions["map"]
        allowed = [slot + min(gap / 2 + each, 1.5 * MARGIN) for each in room]
        texts = [fit(captions[name], most, size) for name, most in zip(images, allowed, strict=True)]
        said = max((text_height(text, size) for text in texts), default=0.0)
        below = (said if images else 0.0) + self._chart_height if charts else 0.0
        heights = [heading.height + (tall if images else 0.0) + below + 0.2 for heading in headings]
        known = bool(charts) and charts[0][0].intervals is not None
        final = "" if coloured else fit(caption(e, recoloured).replace("\n", " "), width - 2 * MARGIN, size)
        end = self._legend_height * known + (text_height(final, size) if final else 0.0) if charts else said
        figure = page(sum(heights) - 0.1 + end, note)
        top = 0.1
        for k, heading in enumerate(headings):
            heading.write(figure, top)
            under = top + heading.height
            panels = [panel_at(figure, left, under, wide, tall) for left in lefts]
            drawn = [self.painters[name](panel, k) for name, panel in zip(images, panels, strict=True)]
            for name, left, heat in zip(images, lefts, drawn, strict=True):
                if name in coloured:
                    self._colour_bar(figure, heat, k, left + wide + 0.08, under, tall)
            if charts or k == len(e) - 1:
                for left, text in zip(lefts, texts, strict=True):
                    write(figure, left + wide / 2, under + tall + 0.08, text, size, ha="center")
            if charts:
                self._chart(figure, under + (tall + said if images else 0.0) + 0.1, k)
            top += heights[k]
        if known:
            self._key(figure, top - 0.15)
        if charts and final:
            write(figure, width / 2, top - 0.15 + self._legend_height * known, final, size, ha="center")
        return figure

    def _colour_bar(self, figure: Picture, drawn: Any, k: int, left: float, top: float, tall: float) -> None:
        beside = panel_at(figure, left, top, _COLOUR_BAR_WIDTH, tall)
        cut = not self._e.signed and bool((pixels_of(self._e.attributions[k]) < 0).any())
        bar = figure.colorbar(drawn, cax=beside, extend="min" if cut else "neither", ticks=MaxNLocator(4))
        bar.ax.tick_params(labelsize=text_size(), length=2)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))

    def _rows(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:
        """Draw tables and sequences: the tokens, if there are any, and a bar chart."""
        e, size, width = self._e, text_size(), page_width()
        charts, drawn = "scores" in chosen, "tokens" in chosen
        lines = [token_sequence.lines_of(one, width - 2 * MARGIN, size) for one in self._tokens or ()]
        blocks = [drawn * (token_sequence.line_height(size) * many + 0.1) for many in lines] or [0.0] * len(headings)
        tall = self._chart_height if charts else 0.0
        heights = [one.height + block + tall + 0.15 for one, block in zip(headings, blocks, strict=True)]
        known = charts and self._charts[0][0].intervals is not None
        said = caption(e, self._look.cmap is not None)
        text = f"{said}\n{selection(e, len(self._charts[0][1]))}" if charts else said.replace("\n", " ")
        text = fit(text, width - 2 * MARGIN, size)
        figure = page(sum(heights) + text_height(text, size) - 0.1 + self._legend_height * known, note)
        top = 0.1
        for k, (heading, block) in enumerate(zip(headings, blocks, strict=True)):
            heading.write(figure, top)
            if drawn:
                self._sequence(panel_at(figure, MARGIN, top + heading.height, width - 2 * MARGIN, block - 0.1), k)
            if charts:
                self._chart(figure, top + heading.height + block, k)
            top += heights[k]
        left = self._beside if charts and width >= _MIN_LEGEND_WIDTH else MARGIN
        write(figure, left + (width - left - (0.35 if charts else MARGIN)) / 2, top - 0.15, text, size, ha="center")
        if known:
            self._key(figure, top - 0.15 + text_height(text, size))
        return figure

    def _series(self, headings: list[Heading], note: str, chosen: list[str]) -> Picture:
        size, width = text_size(), page_width()
        sizes = {"series": _SERIES_HEIGHT, "scores": _WINDOWS_HEIGHT}
        heights = [heading.height + sum(sizes[name] for name in chosen) + 0.35 for heading in headings]
        text = fit(f"{caption(self._e, self._look.cmap is not None)}\n{reading(self._e)}", width - 2 * MARGIN, size)
        figure = page(sum(heights) + text_height(text, size), note)
        top = 0.1
        for k, heading in enumerate(headings):
            heading.write(figure, top)
            under = top + heading.height
            for at, name in enumerate(chosen):
                panel = panel_at(figure, MARGIN + 0.4, under, width - 2 * MARGIN - 0.45, sizes[name])
                self.painters[name](panel, k)
                panel.tick_params(labelsize=size, length=2)
                if at < len(chosen) - 1:
                    panel.set_xticks([])
                under += sizes[name] + 0.06
            top += heights[k]
        write(figure, width / 2, top, text, size, ha="center")
        return figure

    @property
    def _chart_height(self) -> float:
        return _AXIS_HEIGHT + _BAR_HEIGHT * max(len(labels) for _, labels in self._charts)

    @property
    def _beside(self) -> float:
        """The left edge of the bars: right of the longest label."""
        return MARGIN + 0.1 + max(text_width(label, text_size()) for _, labels in self._charts for label in labels)

    def _chart(self, figure: Picture, top: float, k: int) -> None:
        left = self._beside
        panel = panel_at(figure, left, top, page_width() - left - 0.35, self._chart_height - 0.25)
        self._bars(panel, k)
        panel.tick_params(labelsize=text_size(), length=2)

    @property
    def _legend_height(self) -> float:
        return 0.1 + _LEGEND_LINE * (1 if page_width() >= _MIN_LEGEND_WIDTH else 3)

    def _key(self, figure: Picture, top: float) -> None:
        """Draw the legend of solid and hatched bars, outlines and whiskers."""
        e = self._e
        found = [bars.ranks for bars, _ in self._charts if bars.ranks is not None]
        handles, texts = legend(found, e.signed, outlined="map" in self.painters, look=self._look)
        at = (0.5, 1 - top / figure.get_figheight())
        look: Any = {
            "fontsize": text_size(),
            "frameon": False,
            "numpoints": 2,
            "handlelength": 3.6,
            "handler_map": {tuple: HandlerTuple(None)},
        }
        columns = 3 if page_width() >= _MIN_LEGEND_WIDTH else 1
        figure.legend(handles, texts, loc="upper center", bbox_to_anchor=at, ncols=columns, **look)


def _scales(e: Explanation) -> list[tuple[float, float]]:
    """Return the colour range of each row: its own from 0, or a symmetric one for all rows."""
    scores = numbers(e.scores)  # (N, G)
    return [ends(scores if e.signed else row, e.signed) for row in scores]
