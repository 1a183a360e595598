"""The style of figures for papers: widths, fonts in vector files, and errors."""

from io import BytesIO
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot

import proofmap as pm
from proofmap.errors import InputError
from tests.explainers.making import make, make_signed, ranked


def saved(figure: Any, kind: str) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, format=kind)
    return stream.getvalue()


@pytest.mark.parametrize(("options", "width"), [({}, 3.5), ({"columns": 2}, 7.16), ({"width": 5.5}, 5.5)])
def test_figures_have_the_width_of_the_paper(options: dict[str, Any], width: float) -> None:
    with pm.plots.paper(**options):
        figures = [make((1, 1, 4, 4)).plot(), make((1, 7), 7).plot(), make((9, 7), 7).summary()]
        own = pyplot.figure()
        pyplot.close(own)
    assert [float(figure.get_figwidth()) for figure in (*figures, own)] == [width] * 4
    assert make((1, 7), 7).plot().get_figwidth() != 3.5


def test_the_style_ends_with_its_block() -> None:
    before = dict(matplotlib.rcParams)
    with pm.plots.paper(2, font_size=7):
        assert matplotlib.rcParams["font.size"] == 7
    assert dict(matplotlib.rcParams) == before


def test_vector_files_keep_texts() -> None:
    """Also if they are written after the block: matplotlib would use Type 3 fonts and outlines."""
    with pm.plots.paper():
        figure = make((1, 7), 7).plot(title="mine")
    assert b"/Type3" not in saved(figure, "pdf")
    assert b"<text" in saved(figure, "svg")
    plain = make((1, 7), 7).plot(title="mine")
    assert b"/Type3" in saved(plain, "pdf")
    assert b"<text" not in saved(plain, "svg")


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("name", ["images", "searched images", "signed table", "summary", "one panel", "two panels"])
def test_no_text_is_cut(name: str, columns: int) -> None:
    with pm.plots.paper(columns):
        figure = {
            "images": lambda: make((2, 1, 28, 28), 49).plot(),
            "searched images": lambda: ranked([float(k) for k in range(16)], 0.5, (1, 1, 8, 8)).plot(),
            "signed table": lambda: make_signed((1, 9), 9).plot([f"the name of column {k}" for k in range(9)]),
            "summary": lambda: make((30, 9), 9).summary([f"column {k}" for k in range(9)]),
            "two panels": lambda: make_signed((1, 1, 28, 28), 49).plot(panels=["map", "overlay"]),
            "one panel": lambda: make((1, 1, 28, 28), 49).plot(panels="overlay"),
        }[name]()
    figure._repr_png_()
    page = figure.bbox
    parts: list[tuple[str, Any]] = [(text.get_text(), text.get_window_extent()) for text in figure.texts]
    parts += [(str(panel), panel.get_tightbbox()) for panel in figure.axes]
    parts += [(str(key), key.get_window_extent()) for key in figure.legends]
    for said, box in parts:
        assert page.x0 <= box.x0 < box.x1 <= page.x1, f"{said!r} leaves the page"
        assert page.y0 <= box.y0 < box.y1 <= page.y1, f"{said!r} leaves the page"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": 3}, "paper got columns=3, expected 1 or 2"),
        ({"width": 0}, "paper got width=0, expected a number above 0"),
        ({"font_size": -1}, "paper got font_size=-1, expected a number above 0"),
    ],
)
def test_wrong_sizes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message), pm.plots.paper(**options):
        pass


def test_only_public_names_are_loaded() -> None:
    assert pm.plots.COLUMN_WIDTHS[1] == 3.5
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        pm.plots.nothing  # noqa: B018
