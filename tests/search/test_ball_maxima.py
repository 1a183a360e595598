"""Maxima of linear forms on flat balls agree with those of the family."""

import pytest
import torch

import proofmap as pm
from proofmap.search.ball_maxima import SampleBalls
from tests.search.setting import BALLS, points, setting


@pytest.mark.parametrize("ball", BALLS)
def test_largest_values_are_those_of_the_family(ball: str) -> None:
    one = setting("dense", ball)
    family, balls, generator = one.family, one.balls, torch.Generator().manual_seed(0)
    form = torch.randn(24, 4, generator=generator, dtype=torch.float64)
    wanted = family.concretise(form, torch.zeros(24, dtype=torch.int64))  # (24, members)
    torch.testing.assert_close(balls.member_suprema(form), wanted)
    torch.testing.assert_close(balls.supremum(form), wanted[:, 0])
    other = torch.randn(24, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(balls.value_at_maximiser(form, other), (other * balls.maximise(form, None)[1]).sum(1))
    for member in range(balls.members):
        index = torch.full((24,), member)
        value, delta = balls.maximise(form, index if member else None)
        torch.testing.assert_close(value, wanted[:, member])
        torch.testing.assert_close((form * delta).sum(1), value)
        single = family.split(index)
        assert bool(single.contains(delta).all())
        torch.testing.assert_close(balls.maximise(form, index)[0], wanted[:, member])
        low, high = balls.box(torch.tensor(member))
        for inside in (delta, points(single.pick(torch.tensor([0])), generator)):
            assert bool(((inside >= low - 1e-12) & (inside <= high + 1e-12)).all())


def test_without_groups_there_is_one_member() -> None:
    balls = SampleBalls(pm.Ball(0.5).at(torch.zeros(1, 3)))
    form = torch.tensor([[1.0, -2.0, 0.0]])
    assert balls.members == 1
    assert balls.maximise(form, torch.zeros(1, dtype=torch.int64))[0].tolist() == [1.5]
    assert balls.member_suprema(form).tolist() == [[1.5]]
    assert balls.to(torch.float64).member_suprema(form.double()).dtype == torch.float64
