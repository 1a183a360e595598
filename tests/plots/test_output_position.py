"""The box around an explained output: only where outputs map to pixels of the input."""

from typing import Any

import pytest
import torch
from matplotlib.patches import Rectangle
from torch import nn

import proofmap as pm
from proofmap.plots.figure_titles import title
from proofmap.plots.output_position import CAPTION, output_box
from proofmap.verify.objectives import Output

FULL = slice(None)


@pytest.mark.parametrize(
    ("output", "shape", "box"),
    [
        (Output((1, 2, 3)), [2, 8, 8], (2, 3, 1, 1)),
        (Output((1, 2, 3)), [2, 4, 4], (4, 6, 2, 2)),  # one output for 2 x 2 pixels
        (Output((0, slice(2, 5), FULL)), [2, 8, 8], (2, 0, 3, 8)),
        (Output((0, slice(0, 8, 3), slice(-2, None))), [2, 8, 8], (0, 6, 7, 2)),
        (Output((2, 3)), [8, 8], (2, 3, 1, 1)),
        (Output((0, 1, 1)), [2, 4, 8], None),  # another shape than the image
        (Output((0, 0, 0)), [2, 1, 1], None),
        (Output(3), [10], None),
    ],
)
def test_positions(output: Output, shape: list[int], box: Any) -> None:
    assert output_box({"objective": output.record(), "output_shape": shape}, 8, 8) == box


def test_no_output_no_box() -> None:
    assert output_box({"objective": "margin"}, 8, 8) is None
    assert output_box({"objective": Output((0, 1, 1)).record()}, 8, 8) is None  # a record without the shape


def test_the_picture_shows_the_box() -> None:
    torch.manual_seed(0)
    net = nn.Conv2d(1, 2, 3, padding=1)
    x = torch.rand(1, 1, 6, 6)
    objective = pm.objectives.Output((1, slice(2, 4), 5), "up", name="edge")
    e = pm.EVA(net, pm.Ball(0.1, domain=(0.0, 1.0)), objective=objective, progress=False).explain(x)
    figure = e.plot()
    drawn = [p for axes in figure.axes for p in axes.patches if isinstance(p, Rectangle) and not p.get_fill()]
    assert len(drawn) == 6  # white on black in three panels
    assert {(p.get_y(), p.get_x(), p.get_height(), p.get_width()) for p in drawn} == {(1.5, 4.5, 2.0, 1.0)}
    assert CAPTION in [text.get_text() for text in figure.texts]
    said = title(e, 0, None)
    assert said.startswith("edge = ")
    assert "proven: it rises by at most" in said
    assert "class" not in said
    assert e[0].settings["output_shape"] == [2, 6, 6]
