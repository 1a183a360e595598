import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError

# A number, a whole number, three categories, one that never changes, two categories, a flag.
ROWS = np.array(
    [
        [0.5, 3, 1, 0, 0, 7.5, 0, 1, 1],
        [2.5, 9, 0, 1, 0, 7.5, 1, 0, 1],
        [1.0, 4, 0, 0, 1, 7.5, 0, 1, 0],
        [1.5, 8, 0, 1, 0, 7.5, 0, 1, 0],
        [0.7, 6, 1, 0, 0, 7.5, 1, 0, 1],
    ]
)
NAMES = ("mass", "count", "hue_red", "hue_green", "hue_blue", "unit", "sex=f", "sex=m", "flag")


def domain(**settings: Any) -> pm.Domain:
    return pm.Domain.from_data(ROWS, names=NAMES, **settings)


def test_what_rows_say_of_their_columns() -> None:
    found = domain()
    assert found.low.tolist() == [0.5, 3, 0, 0, 0, 7.5, 0, 0, 0]
    assert found.high.tolist() == [2.5, 9, 1, 1, 1, 7.5, 1, 1, 1]
    assert found.one_hot == ((2, 3, 4), (6, 7))
    assert [name for name, whole in zip(NAMES, found.integers, strict=True) if whole] == ["count", "flag"]
    assert found.groups.tolist() == [0, 1, 2, 2, 2, 3, 4, 4, 5]
    assert found.group_names() == ("mass", "count", "hue", "unit", "sex", "flag")
    assert found.deviation.tolist() == pytest.approx(ROWS.std(0).tolist())
    assert repr(found) == "Domain(9 columns, 2 of whole numbers, 2 one-hot blocks)"
    low, high = found
    assert low is found.low
    assert high is found.high


def test_blocks_hold_one_category_in_every_row() -> None:
    """Columns that exclude each other are none where a row has neither; nor are those that never change."""
    assert pm.Domain.from_data([[1, 0], [0, 1], [0, 0]]).one_hot == ()
    assert pm.Domain.from_data([[1, 0], [1, 0]]).one_hot == ()
    assert pm.Domain.from_data([[1, 1, 0], [0, 1, 0], [0, 0, 1]]).one_hot == ((1, 2),)


def test_columns_are_named_or_counted() -> None:
    stated = domain(one_hot=[["sex=f", 7]], integers=["count"])
    assert stated.one_hot == ((6, 7),)
    assert [k for k, whole in enumerate(stated.integers) if whole] == [1]
    assert domain(one_hot=()).one_hot == ()
    assert pm.Domain.from_data(torch.as_tensor(ROWS)).names[3] == "column 3"


def test_a_frame_has_its_own_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"mass": [1.0, 2.0, 3.0], "hue": ["red", "blue", "red"], "old": [True, True, False]})
    with pytest.raises(InputError, match=r"the column 'hue' holds .*, expected numbers: encode it"):
        pm.Domain.from_data(frame)
    found = pm.Domain.from_data(pandas.get_dummies(frame))
    assert (found.names, found.one_hot) == (("mass", "old", "hue_blue", "hue_red"), ((2, 3),))


def test_quantiles_leave_out_what_is_rare() -> None:
    found = pm.Domain.from_data(np.stack([np.linspace(0, 1, 101), np.arange(101)], axis=1), quantiles=(0.015, 0.985))
    assert found.low.tolist() == pytest.approx([0.015, 1])  # whole numbers: outwards to the next
    assert found.high.tolist() == pytest.approx([0.985, 99])


def test_rows_outside_make_it_as_wide_as_they_need() -> None:
    wider = domain().including(ROWS[:1] - np.array([1, 0, 0, 0, 0, 0, 0, 0, 0]))
    assert wider.low.tolist() == [-0.5, *domain().low.tolist()[1:]]
    assert torch.equal(wider.high, domain().high)
    with pytest.raises(InputError, match=r"one-hot block \(hue_red, hue_green, hue_blue\) with .* in row 0"):
        domain().including(ROWS[:1] * 2)


def test_radii_are_shares_of_ranges_or_deviations() -> None:
    found = domain()
    assert found.eps(0.25).tolist() == [[0.5, 1, 1, 1, 1, 0, 1, 1, 0]]  # 1.5 of count is 1, .25 of a flag none
    assert found.eps(0.25, fixed=["mass", "hue_green", 7]).tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 0]]
    assert found.eps(0).max() == 0
    assert found.eps(0.5, "deviation")[0, 0] == pytest.approx(0.5 * ROWS[:, 0].std())
    box = pm.Ball(found.eps(0.25, fixed=[2, 6]), domain=found).at(torch.as_tensor(ROWS)).box()
    assert box[0][0].tolist() == [0.5, 3, 1, 0, 0, 7.5, 0, 1, 1]
    assert box[1][0].tolist() == [1.0, 4, 1, 0, 0, 7.5, 0, 1, 1]


def test_it_can_be_copied() -> None:
    for other in (pickle.loads(pickle.dumps(domain())), deepcopy(domain())):  # noqa: S301
        assert other.names == NAMES
        assert torch.equal(other[1], domain().high)
        assert other.one_hot == domain().one_hot


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"X": ROWS[0]}, r"rows of shape \(9,\), expected a table"),
        ({"X": ROWS[:0]}, r"rows of shape \(0, 9\), expected a table"),
        ({"X": [["a"]]}, "got list, expected rows of numbers"),
        ({"X": ROWS * np.nan}, "gaps in the column 'mass', expected numbers: fill them first"),
        ({"names": ["a", "b"]}, "got 2 names, 2 of them different, for 9 columns"),
        ({"names": ["a"] * 9}, "got 9 names, 1 of them different, for 9 columns"),
        ({"quantiles": (0.9, 0.1)}, "expected two shares such as"),
        ({"quantiles": 0.1}, "expected two shares such as"),
        ({"integers": ["mass"]}, "'mass' as whole numbers, but it contains fractions"),
        ({"integers": ["weight"]}, "the column 'weight', expected one of 9 names or 0 to 8"),
        ({"one_hot": [[2, 3]]}, r"block \(hue_red, hue_green\) with \[0.0, 0.0\] in row 2, expected a single 1"),
        ({"one_hot": [[2]]}, "expected at least two columns, each in one block"),
        ({"one_hot": [[2, 2]]}, "expected at least two columns, each in one block"),
        ({"one_hot": [[2, 3, 4], [4, 6]]}, "expected at least two columns, each in one block"),
        ({"one_hot": [[2, 9]]}, "the column 9, expected one of 9 names or 0 to 8"),
    ],
)
def test_what_is_no_domain_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pm.Domain.from_data(**{"X": ROWS, "names": NAMES, **settings})


@pytest.mark.parametrize(
    ("asked", "message"), [(((-1,), {}), "a share >= 0"), (((0.1, "width"), {}), "expected 'range' or 'deviation'")]
)
def test_what_is_no_radius_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        domain().eps(*asked[0], **asked[1])
