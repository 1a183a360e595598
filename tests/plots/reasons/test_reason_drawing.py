"""Figures of sufficient sets: kept, undecided and free groups differ, and the chosen example is shown."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_reason import reason_facts, shown_group
from proofmap.plots.explanation_figure import draw
from proofmap.plots.figure_look import LINE_COLOURS
from proofmap.plots.reasons.reason_picture import kept_picture, undecided_pixels
from tests.explainers.making import make
from tests.plots.reasons.reasoned import STATES, reasoned


def texts(figure: Any) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in figure.texts]


def test_facts_are_those_of_the_set() -> None:
    e = reasoned()
    facts = reason_facts(e, 0)
    assert (facts.groups, facts.kept, facts.necessary, facts.undecided, facts.within_rounding) == (4, 3, 2, 1, 1)
    assert reason_facts(e, 1).kept == 0


def test_groups_that_a_sample_lacks_are_not_counted() -> None:
    mask = torch.tensor([[[[0, 1], [1, 0]]], [[[0, 1], [2, 3]]]])
    e = reasoned((1, 2, 2), mask)
    assert [reason_facts(e, k).groups for k in range(2)] == [2, 4]


def test_the_title_leads_with_the_set_and_not_with_the_whole_ball() -> None:
    e = reasoned()
    said = texts(e.plot())
    assert any(one.startswith("class 0 · proven: 3 of 4 groups decide over the ball") for one in said)
    assert any(one.startswith("class 1 · proven: no group has to keep its value") for one in said)
    assert not any("AO" in one or "changes the class; AO" in one for one in said)


def test_a_necessary_group_is_chosen() -> None:
    e = reasoned()
    assert [shown_group(e, k) for k in range(2)] == [3, None]
    assert shown_group(e, 0, 1) == 1
    drawn = e[0].plot(panels=["adversary"], group=1)
    assert any("decided within rounding errors" in one for one in texts(drawn))
    assert any("another class" in one for one in texts(e[0].plot(panels=["adversary"])))
    for group in (0, 2, 7, -1):
        with pytest.raises(InputError, match=f"got group {group} of sample 0, expected a group that is necessary"):
            e[0].plot(group=group)
    with pytest.raises(InputError, match="got 1 groups for 2 samples"):
        e.plot(group=[3])
    with pytest.raises(InputError, match="got group=1 for EVA, expected it with Sufficient"):
        make().plot(group=1)


def test_the_picture_shows_kept_groups_alone() -> None:
    """Free pixels have no colour and little contrast; necessary ones are bluish, undecided ones reddish."""
    e = reasoned()
    picture, mask = e.x[0, 0].double().numpy(), e.mask[0].numpy()
    shown = kept_picture(picture, mask, (STATES[0] == 0).numpy(), (STATES[0] == 2).numpy())
    state = STATES[0][e.mask[0, 0]].numpy()
    assert np.ptp(shown[state == 0], axis=1).max() < 1e-9
    assert np.ptp(shown[state == 0]) < 0.2
    assert (shown[state == 1][:, 2] > shown[state == 1][:, 0]).all()
    assert (shown[state == 2][:, 0] > shown[state == 2][:, 2]).all()
    black = kept_picture(np.zeros((4, 4)), mask, (STATES[0] == 0).numpy(), (STATES[0] == 2).numpy())
    assert np.allclose(black[state == 1], 0.85 * np.array(to_rgb(LINE_COLOURS[0])))


def test_a_pixel_is_kept_if_one_of_its_channels_is() -> None:
    mask = np.stack([np.zeros((1, 2), int), np.array([[1, 0]])])
    shown = kept_picture(np.zeros((1, 2)), mask, np.array([True, False]), np.array([False, False]))
    assert shown[0, 0, 2] > shown[0, 0, 0]
    assert shown[0, 1, 0] == shown[0, 1, 2]


def test_undecided_pixels_are_hatched() -> None:
    e = reasoned()
    figure, panel = plt.subplots()
    e[0].plot(ax=panel, panels="kept")
    boxes = [one for one in panel.patches if isinstance(one, Rectangle) and one.get_hatch()]
    expected = list(undecided_pixels(e.mask[0].numpy(), (STATES[0] == 2).numpy()))
    assert [(one.get_x() + 0.5, one.get_y() + 0.5, one.get_width()) for one in boxes] == expected
    assert expected == [(2, row, 1) for row in range(4)]
    plt.close(figure)


@pytest.mark.parametrize(
    ("shape", "groups", "panels"),
    [
        ((1, 4, 4), "None", ["input", "kept", "adversary"]),
        ((3, 4, 4), "None", ["input", "kept", "adversary"]),
        ((8,), "Columns()", ["kept", "adversary"]),
        ((1, 8), "Windows(steps=2)", ["kept", "adversary"]),
        ((4, 3), "Tokens()", ["kept", "adversary"]),
    ],
)
def test_every_kind_of_input_has_its_panels(shape: tuple[int, ...], groups: str, panels: list[str]) -> None:
    mask = None
    if groups.startswith("Windows"):
        mask = (torch.arange(8) // 2).expand(1, 1, 8).contiguous()
    elif groups.startswith("Tokens"):
        mask = torch.arange(4)[:, None].expand(1, 4, 3).contiguous()
    settings = {**make().settings, "groups": groups}
    e = reasoned(shape, mask, settings=settings)
    assert len(draw(e).axes) == 2 * len(panels)
    for panel in panels:
        assert len(e.plot(panels=panel).axes) == 2
    with pytest.raises(InputError, match="got panels=\\['map'\\], expected one or more of"):
        e.plot(panels="map")


def test_a_table_lists_necessary_columns_first_with_their_values() -> None:
    e = reasoned((8,), settings={**make().settings, "groups": "Columns()"})
    kept = e[0].plot(columns=list("abcdefgh"), panels="kept").axes[0]
    assert [one.get_text() for one in kept.texts] == ["necessary", "necessary", "undecided", "free"]
    assert kept.get_yticklabels()[0].get_text() in ("d, h", "b, f")


def test_an_output_has_no_class() -> None:
    objective = {"output": "0", "direction": "both"}
    settings = {**make().settings, "objective": objective, "within": 0.5, "groups": "Columns()"}
    e = reasoned((8,), settings=settings)
    assert any("changes output 0 by 0.5 or more" in one for one in reason_words(e))
    assert any("a change of output 0 by more than 0.5" in one for one in texts(e[0].plot()))


def reason_words(e: Explanation) -> list[str]:
    from proofmap.text.reason_wording import reason_sentences

    return reason_sentences(reason_facts(e, 0))


def test_the_class_at_the_point_is_that_of_the_network() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
    x = torch.rand(1, 6)
    e = pm.Sufficient(model, pm.Ball(0.3, domain=(0.0, 1.0)), groups=pm.groups.columns(), progress=False).explain(x)
    assert e.reason is not None
    group = shown_group(e, 0)
    assert group is not None
    became = int(model(e.reason.point(0, group)[None]).argmax())
    assert became != int(e.predicted)
    assert any(one.endswith(f"freed as well: class {became}") for one in texts(e.plot()))
    assert any(one.endswith("freed as well: right") for one in texts(e.plot(class_names=["right"] * 3)))


def test_frames_have_the_states_of_groups() -> None:
    frame = reasoned().to_frame()
    assert frame["kept"].tolist() == (STATES > 0).flatten().tolist()
    assert frame["necessary"].tolist() == (STATES == 1).flatten().tolist()
    assert frame["undecided"].tolist() == (STATES == 2).flatten().tolist()
    assert "kept" not in make().to_frame()
