import pickle
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

from proofmap.errors import InputError, ModelError, ProofmapError, UnsupportedError
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family

IMAGES = torch.full((2, 3, 4, 5), 0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eps": -0.1}, r"eps=-0\.1, expected finite radii >= 0"),
        ({"eps": inf}, "eps=inf, expected finite radii"),
        ({"eps": torch.tensor([0.1, -2.0])}, r"eps=-2\.0, expected finite radii"),
        ({"eps": float("nan")}, "NaN in eps"),
        ({"eps": [0.1, 0.2]}, r"eps=\[0\.1, 0\.2\], a list, expected a number or a tensor: torch\.tensor\(radii\)"),
        ({"eps": (0.1, 0.2)}, r"a tuple, expected .* and pm\.curve\(model, x, radii\) bounds the overlap at each"),
        ({"eps": "big"}, "eps='big', expected a number, a fraction such as '2/255', 'auto' or a tensor"),
        ({"eps": "2/0"}, "eps='2/0', expected a number, a fraction"),
        ({"eps": 0.1, "norm": 3}, r"norm=3, expected 1, 2 or float\('inf'\)"),
        ({"eps": 0.1, "norm": "inf"}, "norm='inf', expected 1, 2"),
        ({"eps": 0.1, "domain": 1.0}, r"domain=1\.0, expected a pair \(low, high\)"),
        ({"eps": 0.1, "domain": (0, 1, 2)}, r"domain=\(0, 1, 2\), expected a pair"),
        ({"eps": 0.1, "domain": (1, 0)}, "domain from 1 to 0, expected low < high"),
        ({"eps": 0.1, "domain": (0, torch.tensor([1.0, -1.0]))}, "domain from 0 to -1, expected low < high"),
        ({"eps": 0.1, "domain": (0, float("nan"))}, "NaN in domain"),
        ({"eps": 0.1, "half": "up"}, r"half='up', expected '\+'"),
        ({"eps": 0.1, "relative": True}, "relative=True with eps=0.1, norm=inf and domain=None, expected a share"),
        ({"eps": 1.1, "relative": True, "domain": (0, 1)}, "expected a share from 0 to 1"),
        ({"eps": 0.1, "relative": True, "domain": (0, 1), "norm": 2}, "norm=2 and domain"),
        ({"eps": "auto", "relative": True, "domain": (0, 1)}, "eps=auto"),
    ],
)
def test_what_is_no_ball_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ball(**settings)


@pytest.mark.parametrize("half", [None, "+", "-"])
def test_a_relative_ball_goes_a_share_of_the_way_to_the_ends(half: Any) -> None:
    x, low, high = torch.tensor([[0.0, 5.0], [1.0, 2.0]]), torch.tensor([0.0, -10.0]), torch.tensor([1.0, 10.0])
    found = Ball(0.1, domain=(low, high), half=half, relative=True).at(x)
    zero = torch.zeros(2, 2)
    torch.testing.assert_close(found.lower, zero if half == "+" else torch.tensor([[0.0, -1.5], [-0.1, -1.2]]))
    torch.testing.assert_close(found.upper, zero if half == "-" else torch.tensor([[0.1, 0.5], [0.0, 0.8]]))
    assert bool(found.contains(found.sample(100)).all())
    assert Ball(1.0, domain=(low, high), relative=True).at(x).box()[1].tolist() == [[1.0, 10.0], [1.0, 10.0]]
    with pytest.raises(InputError, match="relative=True with a domain that has no end"):
        Ball(0.1, domain=(low, inf), relative=True).at(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), "x is torch.int64, expected a float32 or float64"),
        (torch.zeros(2, 3, dtype=torch.float16), "x is torch.float16, expected a float32 or float64"),
        ([[0.5]], "x is list, expected a float32"),
        (torch.zeros(3), r"x has shape \(3,\), expected \(N, \*sample\): put one sample in as x\[None\]"),
        (torch.zeros(0, 3), r"x has shape \(0, 3\), expected \(N, \*sample\)"),
        (torch.tensor([[0.0, inf]]), r"x is not finite at \(0, 1\)"),
        (torch.tensor([[0.5, 1.0], [0.1, 1.2]]), r"x leaves the domain: 1\.2 at \(1, 1\) is not in \[0, 1\]"),
        (torch.tensor([[-0.5, 1.2]]), r"x leaves the domain: -0\.5 at \(0, 0\) is not in \[0, 1\]"),
    ],
)
def test_an_input_that_cannot_be_used_is_refused(x: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ball(0.1, domain=(0, 1)).at(x)


@pytest.mark.parametrize(
    ("ball", "message"),
    [
        (Ball(torch.ones(7)), r"eps has shape \(7,\) at x of shape \(2, 3, 4, 5\): expected a number, \(2,\)"),
        (Ball(1e39), "eps is too large for x's torch.float32"),
        (Ball(torch.ones(1, 1, 2, 3, 4, 5)), r"eps has shape \(1, 1, 2, 3, 4, 5\)"),
        (Ball(torch.ones(4, 5), 2), r"eps has shape \(4, 5\), a radius for each variable, which norm=2 cannot have"),
        (Ball(torch.ones(2, 3, 1, 1), 1), "which norm=1 cannot have"),
        (Ball(0.1, domain=(torch.zeros(6), 1)), r"end of shape \(6,\) at samples of shape \(3, 4, 5\)"),
        (Ball(0.1, domain=(torch.zeros(3), torch.zeros(4, 5))), "domain from 0 to 0, expected low < high"),
    ],
)
def test_a_ball_that_does_not_fit_is_refused(ball: Ball, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ball.at(IMAGES)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.zeros(4, 5), "mask is torch.float32, expected a tensor of integer ids"),
        (torch.zeros(4, 5, dtype=torch.bool), "mask is torch.bool, expected a tensor of integer ids"),
        ([[0]], "mask is list, expected a tensor of integer ids"),
        (torch.zeros(5, 4, dtype=torch.int64), r"mask has shape \(5, 4\) at x of shape \(2, 3, 4, 5\)"),
        (torch.zeros(3, 3, 4, 5, dtype=torch.int64), r"mask has shape \(3, 3, 4, 5\) at x"),
        (torch.full((4, 5), -1), "mask has the id -1, expected ids 0..G-1"),
        (torch.arange(20).view(4, 5) // 10 * 3, r"never uses the id 1 .* 3: number its 2 groups without gaps"),
        (torch.full((4, 5), 10**12), r"never uses the id 0 below its largest, 1000000000000: number its 1 groups"),
        (
            torch.full((2, 3, 4, 5), 10**12),
            r"never uses the id 0 below its largest, 1000000000000: number its 1 groups",
        ),
        (torch.arange(20).view(1, 1, 4, 5) + 1, r"never uses the id 0 .*torch\.unique\(mask, return_inverse=True\)"),
    ],
)
def test_a_mask_that_cannot_be_used_is_refused(mask: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ball(0.1).at(IMAGES, mask)


def test_an_input_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="eps"):
        Ball(-1)
    assert issubclass(InputError, ProofmapError)


def test_unsupported_operations_are_all_named_and_travel() -> None:
    error = UnsupportedError([("encoder.3", "aten.cumsum"), ("x", "aten.foo")])
    assert str(error).startswith("no rule for aten.cumsum (node 'encoder.3'), aten.foo (node 'x'): add one under")
    assert isinstance(error, ModelError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (again.nodes, str(again)) == (error.nodes, str(error))


@pytest.mark.parametrize("norm", [1, 2, inf])
def test_the_box_is_the_radius_the_domain_and_the_half(norm: float) -> None:
    x = torch.tensor([[0.0, 0.05, 0.5, 1.0]])
    family = Ball(0.1, norm, (0, 1)).at(x)
    torch.testing.assert_close(family.lower, torch.tensor([[0.0, -0.05, -0.1, -0.1]]))
    torch.testing.assert_close(family.upper, torch.tensor([[0.1, 0.1, 0.1, 0.0]]))
    up, down = (Ball(0.1, norm, (0, 1), half).at(x) for half in ("+", "-"))
    assert torch.equal(up.upper, family.upper)
    assert torch.equal(down.lower, family.lower)
    assert not up.lower.any()
    assert not down.upper.any()
    torch.testing.assert_close(family.box()[0], torch.tensor([[0.0, 0.0, 0.4, 0.9]]))
    torch.testing.assert_close(family.box()[1], torch.tensor([[0.1, 0.15, 0.6, 1.0]]))


def test_an_input_at_the_edge_up_to_rounding_keeps_zero_in_the_box() -> None:
    family = Ball(0.1, domain=(0, 1)).at(torch.tensor([[1 + 5e-7, -5e-7]]))
    assert (float(family.upper[0, 0]), float(family.lower[0, 1])) == (0, 0)


@pytest.mark.parametrize(
    ("eps", "expected"),
    [
        (0.5, torch.full((2, 3, 4, 5), 0.5)),
        (torch.tensor(0.5), torch.full((2, 3, 4, 5), 0.5)),
        (torch.tensor([0.5]), torch.full((2, 3, 4, 5), 0.5)),
        (torch.tensor([1, 2]), torch.tensor([1.0, 2.0]).view(2, 1, 1, 1).expand(2, 3, 4, 5)),
        (torch.tensor([1.0, 2.0]).view(2, 1, 1, 1), torch.tensor([1.0, 2.0]).view(2, 1, 1, 1).expand(2, 3, 4, 5)),
        (torch.arange(5.0), torch.arange(5.0).expand(2, 3, 4, 5)),
        (torch.arange(3.0).view(3, 1, 1), torch.arange(3.0).view(3, 1, 1).expand(2, 3, 4, 5)),
    ],
)
def test_a_radius_is_one_for_all_one_a_sample_or_one_a_variable(eps: float | Tensor, expected: Tensor) -> None:
    family = Ball(eps).at(IMAGES)
    assert torch.equal(family.upper, expected)
    assert torch.equal(family.lower, -expected)
    assert torch.equal(family.eps, expected.flatten(1).amax(1))


def test_a_square_batch_takes_one_radius_a_sample_unless_told_otherwise() -> None:
    x, eps = torch.zeros(3, 3), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(Ball(eps).at(x).upper, eps[:, None].expand(3, 3))
    assert torch.equal(Ball(eps[None]).at(x).upper, eps.expand(3, 3))


@pytest.mark.parametrize("norm", [1, 2])
def test_a_radius_a_sample_in_x_s_rank_serves_every_norm(norm: float) -> None:
    assert torch.equal(Ball(torch.tensor([0.1, 0.2]).view(2, 1, 1, 1), norm).at(IMAGES).eps, torch.tensor([0.1, 0.2]))


@pytest.mark.parametrize(
    "low",
    [
        -1,
        torch.tensor([-1.0, -2.0, -3.0]),
        -torch.rand(4, 5),
        -torch.rand(3, 4, 5),
        -torch.rand(2, 3, 4, 5),
        -torch.rand(2, 1, 1, 1),
    ],
)
def test_a_domain_is_one_for_all_a_channel_or_a_pixel(low: float | Tensor) -> None:
    family = Ball(9, domain=(low, inf)).at(IMAGES)
    channels = isinstance(low, Tensor) and low.shape == (3,)
    expected = torch.as_tensor(low).view(3, 1, 1) if channels else torch.as_tensor(low)
    torch.testing.assert_close(family.lower, expected.expand(IMAGES.shape) - IMAGES, check_dtype=False)
    assert torch.equal(family.upper, torch.full_like(IMAGES, 9.0))


def test_one_mask_for_all_is_not_copied() -> None:
    cells = torch.arange(20).view(4, 5) // 10
    for mask in (cells, cells[None], cells.expand(3, 4, 5), cells[None, None], cells.int()):
        family = Ball(0.1).at(IMAGES, mask)
        assert family.mask is not None
        assert family.mask.dtype == torch.int64
        assert torch.equal(family.mask, cells.expand(2, 3, 4, 5))
        assert family.mask.untyped_storage().nbytes() <= 8 * 60
        assert (family.groups, family.members, family.count, family.shape) == (2, 3, 2, (3, 4, 5))


def test_a_mask_a_sample_may_leave_groups_out() -> None:
    mask = torch.stack([torch.zeros(1, 4, 5), torch.full((1, 4, 5), 3)]).long()
    family = Ball(0.1).at(IMAGES, mask)
    assert family.groups == 4
    assert family.mask is not None
    assert torch.equal(family.mask, mask.expand(2, 3, 4, 5))
    assert Ball(0.1).at(IMAGES[1:], mask[1:].expand(1, 3, 4, 5)).groups == 4


def family_of_masks(*, shared: bool) -> Family:
    x = torch.tensor([[0.1, 0.5, 0.9], [0.2, 0.3, 0.4]])
    mask = torch.tensor([0, 1, 1]) if shared else torch.tensor([[0, 1, 1], [1, 0, 0]])
    return Ball(torch.tensor([0.3, 0.6]), 2, (0, 1)).at(x, mask)


@pytest.mark.parametrize("shared", [True, False])
def test_picked_families_are_those_of_the_samples(shared: bool) -> None:
    family = family_of_masks(shared=shared)
    picked = family.pick(torch.tensor([1, 1, 0]))
    assert family.mask is not None
    assert picked.mask is not None
    for name in ("x", "lower", "upper", "eps", "mask"):
        assert torch.equal(getattr(picked, name), getattr(family, name)[[1, 1, 0]])
    assert (picked.norm, picked.groups, picked.count) == (2, 2, 3)
    assert (picked.mask.stride(0) == 0) == shared


@pytest.mark.parametrize("shared", [True, False])
def test_split_members_freeze_their_groups(shared: bool) -> None:
    family = family_of_masks(shared=shared)
    singles = family.split()
    assert (singles.count, singles.members, singles.mask) == (6, 1, None)
    assert family.mask is not None
    for sample in range(2):
        for member in range(3):
            index = sample * 3 + member
            kept = family.mask[sample] != member - 1
            assert torch.equal(singles.x[index], family.x[sample])
            assert torch.equal(singles.lower[index], family.lower[sample] * kept)
            assert torch.equal(singles.upper[index], family.upper[sample] * kept)
            assert singles.eps[index] == family.eps[sample]
    assert torch.equal(family.split(torch.tensor([5, 1])).upper, singles.upper[[5, 1]])
    assert Ball(0.1).at(torch.zeros(2, 3)).split().count == 2


@pytest.mark.parametrize(
    ("norm", "domain", "half", "capped"),
    [
        (2, None, None, False),
        (1, None, "+", False),
        (2, (0, 9), None, False),  # x = 0 sits at the edge: a closed side, not a cap
        (2, (-0.05, 9), None, True),
        (1, (-9, 0.05), None, True),
        (2, (-9, 0.0999), None, True),
        (2, (-9, 0.1), None, False),
        (2, (-0.05, 9), "+", False),
        (inf, (-0.05, 9), None, False),
    ],
)
def test_capped_says_whether_the_box_cuts_the_ball(norm: float, domain: Any, half: Any, capped: bool) -> None:
    assert Ball(0.1, norm, domain, half).at(torch.zeros(1, 4)).capped == capped


def test_contains_tells_members_from_others() -> None:
    family = Ball(1.0, 2, (0, 1)).at(torch.tensor([[0.2, 0.5]]))
    delta = torch.tensor([[[0.6, 0.5]], [[-0.2, -0.5]], [[-0.21, 0.0]], [[0.8, 0.6]], [[0.79, 0.49]]])
    assert family.contains(delta)[:, 0].tolist() == [True, True, False, False, True]
    ball = Ball(1.0, 2).at(torch.zeros(1, 2))
    assert ball.contains(torch.tensor([[[0.6, 0.8]], [[0.61, 0.8]]]))[:, 0].tolist() == [True, False]


def test_balls_compare_by_value() -> None:
    assert Ball(0.1, 2, (0, 1)) == Ball(0.1, 2.0, (0, 1))
    assert Ball(0.1) != Ball(0.2)


def test_the_room_is_what_the_domain_leaves() -> None:
    x = torch.tensor([[0.25, 0.5, 0.75, 1.0]], dtype=torch.float64)
    mask = torch.arange(4)
    low, high = torch.tensor([0.0, -inf, 0.0, 0.0]), torch.tensor([1.0, 1.0, inf, 1.0])
    room = Ball(0.1, 2.0, (low, high)).room(x, mask)
    assert room.norm == inf
    assert room.groups == 4
    torch.testing.assert_close(room.lower, torch.tensor([[-0.25, -0.1, -0.75, -1.0]], dtype=torch.float64))
    torch.testing.assert_close(room.upper, torch.tensor([[0.75, 0.5, 0.1, 0.0]], dtype=torch.float64))
    assert room.eps.tolist() == [1.0]
    assert Ball(0.1, domain=(0.0, 1.0), half="+").room(x, mask).lower.tolist() == [[0.0] * 4]
    fixed = Ball(torch.tensor([[0.1, 0.0, 0.1, 0.1]]), domain=(0.0, 1.0)).room(x, mask)
    assert (float(fixed.lower[0, 1]), float(fixed.upper[0, 1])) == (0.0, 0.0)
    free = Ball(0.1, 2.0)
    assert (free.room(x, mask).norm, float(free.room(x, mask).upper.max())) == (2.0, 0.1)
