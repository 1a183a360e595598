"""The figure of pm.curve: its lines are the numbers, and its titles never claim more than they do."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from proofmap.errors import InputError
from proofmap.plots.curves.overlap_curve import OverlapCurve
from proofmap.verify.radius import Radius


def curve(count: int = 2, refuted: float = 0.31239, rigorous: bool = True) -> OverlapCurve:
    eps = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64)
    upper = torch.tensor([[-2.0, -1.0, 5.0]]).repeat(count, 1)
    proven, points = torch.full((count,), 0.234567), torch.zeros(count, 4)
    radius = Radius(proven, torch.full((count,), refuted), points, rigorous)
    return OverlapCurve(eps, upper, upper - 1, torch.arange(count), radius, inf, (0.0, 1.0), rigorous)


def test_lines_are_the_bounds() -> None:
    for k, panel in enumerate(curve().plot().axes):
        upper, lower, zero, certified, refuted = panel.lines
        np.testing.assert_array_equal(np.asarray(upper.get_ydata()), [-2.0, -1.0, 5.0])
        np.testing.assert_array_equal(np.asarray(lower.get_ydata()), [-3.0, -2.0, 4.0])
        np.testing.assert_array_equal(np.asarray(upper.get_xdata()), [0.1, 0.2, 0.4])
        assert list(np.asarray(zero.get_ydata())) == [0, 0]
        assert np.asarray(certified.get_xdata())[0] == pytest.approx(0.234567)
        assert np.asarray(refuted.get_xdata())[0] == pytest.approx(0.31239)
        assert panel.get_title().replace("\u00a0", " ").startswith(f"class {k} · proven for ε ≤ 0.234,")


def test_titles_round_to_the_safe_side() -> None:
    title = " ".join(curve(1).plot().axes[0].get_title().split())
    assert title == "class 0 · proven for ε ≤ 0.234, refuted for ε ≥ 0.313"
    assert " ".join(curve(1, inf).plot().axes[0].get_title().split()) == "class 0 · proven for ε ≤ 0.234"
    assert len(curve(1, inf).plot().axes[0].lines) == 4
    assert "rounding is not covered" in " ".join(curve(1, rigorous=False).plot().axes[0].get_title().split())
    none = curve(1)
    none = replace(none, radius=replace(none.radius, proven=torch.zeros(1)))
    assert "not proven for any ε" in " ".join(none.plot().axes[0].get_title().split())


def test_panels_are_samples_and_axes_may_be_given() -> None:
    assert len(curve(20).plot().axes) == 12
    assert [panel.get_title()[:7] for panel in curve(20).plot(panels=[17, 3]).axes] == ["class 1", "class 3"]
    figure = Figure()
    panel = figure.subplots()
    assert curve(3).plot(ax=panel, panels=1, title="mine", cmap="cividis") is figure
    assert panel.get_title() == "mine"
    with pytest.raises(InputError, match="expected one or more of 0, 1"):
        curve(2).plot(panels=2)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("width", [None, 3.5, 7.16])
def test_no_text_leaves_the_page(count: int, width: float | None) -> None:
    from matplotlib import rc_context

    with rc_context({} if width is None else {"figure.figsize": (width, 1.0)}):
        figure = curve(count).plot()
    figure._repr_png_()
    page = figure.bbox
    boxes = [panel.get_tightbbox() for panel in figure.axes if panel.axison]
    boxes += [key.get_window_extent() for key in figure.legends]
    for box in boxes:
        assert box is not None
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0 < box.y1 <= page.y1
