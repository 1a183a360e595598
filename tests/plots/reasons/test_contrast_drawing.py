"""Figures of contrastive sets: both kinds of sets differ, and the changed input and the difference are shown."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.statements.explained_contrast import contrast_facts
from proofmap.explainers.statements.explained_verdict import verdict_of
from proofmap.plots.figure_look import LINE_COLOURS
from proofmap.plots.overlay import picture_of
from tests.plots.reasons.contrasted import contrasted


def texts(figure: Any) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in figure.texts]


def test_facts_are_those_of_the_sets() -> None:
    e = contrasted()
    first, second, third = (contrast_facts(e, k) for k in range(3))
    assert (first.groups, first.size, first.least, first.further, first.smallest) == (4, 2, 1, (1,), False)
    assert (first.after, first.aim, first.counted) == ("class 2", None, False)
    assert (second.size, second.least, second.counted, second.impossible) == (0, 3, True, False)
    assert third.impossible


def test_a_verdict_is_about_the_whole_ball() -> None:
    e = contrasted()
    first, second, third = (verdict_of(e, k) for k in range(3))
    assert (first.kind, first.outcome, first.witness) == ("contrast", "refuted", "search")
    assert first.bounds[0].searched == 0.5
    assert (second.outcome, third.outcome) == ("undecided", "proven")


def test_the_title_leads_with_the_set() -> None:
    said = texts(contrasted().plot())
    assert any("· changing 2 of 4 groups can change the decision to class 2 over the ball" in one for one in said)
    assert any("· no set of groups was found" in one for one in said)
    assert any("· proven: no change within the ball" in one for one in said)
    assert "changed input: class 2" in said
    assert not any("AO" in one for one in said)


def test_images_show_the_changed_input_and_the_difference() -> None:
    e = contrasted()[0]
    assert e.contrast is not None
    figure: Any = e.plot()
    panels = [axis.images[0].get_array() for axis in figure.axes]
    np.testing.assert_allclose(panels[0], picture_of(e.x[0]))
    np.testing.assert_allclose(panels[1], picture_of(e.contrast.points[0]))
    np.testing.assert_allclose(panels[2], (e.contrast.points[0] - e.x[0])[0], atol=1e-6)
    lines = {to_rgb(line.get_colors()[0]) for line in figure.axes[0].collections}
    assert lines == {(1.0, 1.0, 1.0), to_rgb(LINE_COLOURS[0]), to_rgb(LINE_COLOURS[1])}
    styles = {to_rgb(line.get_colors()[0]): line.get_linestyles()[0][1] for line in figure.axes[0].collections}
    assert styles[to_rgb(LINE_COLOURS[0])] is None  # solid
    assert styles[to_rgb(LINE_COLOURS[1])] is not None  # dashed
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 2


def test_tables_show_both_values() -> None:
    e = contrasted((4,), torch.tensor([[0, 1, 2, 3]]))
    figure: Any = e[0].plot(columns=["age", "income", "height", "weight"])
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words[2:] == ["in a further set", "unchanged"]
    before, after = e.x[0].tolist(), [value + 0.25 for value in e.x[0].tolist()]
    assert set(words[:2]) == {f"{before[k]:.4g} → {after[k]:.4g}" for k in (1, 3)}
    widths = sorted(bar.get_width() for bar in figure.axes[1].patches)
    np.testing.assert_allclose(widths, [0, 0, 0.25, 0.25], atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "mask", "settings"),
    [
        ((2, 8), (torch.arange(8) // 2).expand(1, 2, 8), {"groups": "Windows(2)"}),
        ((4, 3), torch.arange(4)[None, :, None].expand(1, 4, 3), {"groups": "Tokens()"}),
    ],
    ids=["series", "tokens"],
)
def test_other_inputs_have_their_own_drawings(shape: Any, mask: torch.Tensor, settings: Any) -> None:
    e = contrasted(shape, mask, settings=settings)
    figure = e.plot()
    said = texts(figure)
    assert "changed input: class 2" in said
    assert any(one.startswith("input, with the ") and one.endswith("that change") for one in said)
    assert any("none" in [text.get_text() for text in axis.texts] for axis in figure.axes)


def test_figures_go_into_given_axes() -> None:
    e = contrasted()[0]
    figure, axes = plt.subplots(1, 3)
    assert e.plot(ax=axes) is figure
    assert "2 of 4 groups can change it" in axes[0].get_title()
    plt.close(figure)
    with pytest.raises(InputError, match="expected one or more of 'input', 'changed', 'difference'"):
        e.plot(panels="kept")
    with pytest.raises(InputError, match="expected it with Sufficient"):
        e.plot(group=1)


def test_each_of_several_inputs_has_its_part() -> None:
    first, second = torch.nn.Linear(2, 3), torch.nn.Linear(3, 3)

    class Sum(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            total: torch.Tensor = first(a) + second(b)
            return total

    torch.manual_seed(0)
    for layer in (first, second):
        layer.reset_parameters()
    balls = (pm.Ball(2.0), pm.Ball(2.0))
    e = pm.Contrastive(Sum().eval(), balls, progress=False).explain((torch.rand(1, 2), torch.rand(1, 3)))
    assert e.contrast is not None
    parts = [part.contrast for part in e.inputs]
    assert [part.groups for part in parts if part is not None] == [2, 3]
    assert torch.equal(torch.cat([part.moved for part in parts if part is not None], 1), e.contrast.moved)
