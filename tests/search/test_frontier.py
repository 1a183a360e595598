"""Open leaves behave like a plain list sorted by urgency."""

import random
from math import inf

import pytest
import torch
from torch import Tensor

from proofmap.search.frontier import OpenLeaves

PlainLeaves = list[tuple[float, float, int]]  # (urgency, value, number)


def empty() -> OpenLeaves:
    return OpenLeaves({"value": torch.empty(0, 2, dtype=torch.float64)}, torch.empty(0, dtype=torch.float64))


def made(plain: PlainLeaves) -> tuple[dict[str, Tensor], Tensor]:
    value = torch.tensor([[value, -value] for _, value, _ in plain], dtype=torch.float64).reshape(-1, 2)
    columns = {"value": value, "number": torch.tensor([number for *_, number in plain], dtype=torch.int64)}
    return columns, torch.tensor([urgency for urgency, *_ in plain], dtype=torch.float64)


def same(leaves: OpenLeaves, plain: PlainLeaves) -> None:
    assert len(leaves) == len(plain)
    assert sorted(leaves.column("number").tolist()) == sorted(number for *_, number in plain)
    by_number = {number: value for _, value, number in plain}
    for value, number in zip(leaves.column("value").tolist(), leaves.column("number").tolist(), strict=True):
        assert value == [by_number[number], -by_number[number]]


@pytest.mark.parametrize("seed", range(4))
def test_they_are_a_list_of_which_the_most_urgent_are_taken(seed: int) -> None:
    rng = random.Random(seed)
    leaves, plain = empty(), PlainLeaves()
    for number in range(60):
        step = rng.random()
        if number == 0 or step < 0.5:
            new = [(rng.uniform(-1, 1), rng.uniform(-9, 9), 100 * number + k) for k in range(rng.randrange(8))]
            leaves.add(*made(new))
            plain += new
        elif step < 0.8:
            count = rng.randrange(6)
            plain.sort(reverse=True)
            taken = leaves.most_urgent(count)
            assert taken["number"].tolist() == [number for *_, number in plain[:count]]
            assert taken["value"][:, 0].tolist() == [value for _, value, _ in plain[:count]]
            leaves.drop(count)
            plain = plain[count:]
        else:
            urgency = {number: rng.uniform(-1, 1) for *_, number in plain}
            order = leaves.column("number").tolist()
            leaves.set_urgency(torch.tensor([urgency[number] for number in order], dtype=torch.float64))
            plain = [(urgency[number], value, number) for _, value, number in plain]
        same(leaves, plain)


def test_places_of_those_that_were_taken_are_used_again() -> None:
    leaves = empty()
    leaves.add(*made([(float(k), 0.0, k) for k in range(8)]))
    room = leaves.bytes
    assert room >= 8 * 3 * 8
    for k in range(8, 40):
        leaves.drop(1)
        leaves.add(*made([(float(-k), 0.0, k)]))
    assert len(leaves) == 8
    assert leaves.bytes == room
    leaves.add(*made([(0.0, 0.0, 100 + k) for k in range(40)]))
    assert leaves.bytes > room


def test_taking_more_than_there_are_takes_all() -> None:
    leaves = empty()
    assert len(leaves.column("value")) == 0
    leaves.add(*made([(1.0, 2.0, 3)]))
    assert leaves.most_urgent(9)["number"].tolist() == [3]
    leaves.drop(9)
    assert len(leaves) == 0


@pytest.mark.parametrize("first", ["value", "number"])
@pytest.mark.parametrize("more", [1, 50])
def test_what_breaks_off_while_leaves_are_put_in_changes_none(more: int, first: str) -> None:
    """Also for more leaves than free rows, so that the columns grow."""
    leaves, plain = empty(), [(float(k), k / 7, k) for k in range(9)]
    leaves.add(*made(plain))
    leaves.drop(3)
    plain = plain[:6]
    columns, urgency = made([(5.0, 7.0, 100 + k) for k in range(more)])

    other = "number" if first == "value" else "value"
    with pytest.raises(RuntimeError):  # the second column does not fit
        leaves.add({first: columns[first], other: torch.zeros(more, 7, 7)}, urgency)
    same(leaves, plain)
    assert leaves.most_urgent(2)["number"].tolist() == [5, 4]
    leaves.add(columns, urgency)
    same(leaves, plain + [(5.0, 7.0, 100 + k) for k in range(more)])


def test_nothing_is_left_of_leaves_that_were_taken_however_urgent_others_are() -> None:
    leaves = empty()
    leaves.add(*made([(1.0, 1.0, 1), (2.0, 2.0, 2), (3.0, 3.0, 3)]))
    leaves.drop(1)
    leaves.set_urgency(torch.tensor([-5.0, -6.0], dtype=torch.float64))
    assert leaves.most_urgent(3)["number"].tolist() == [1, 2]
    assert leaves.column("value").amax() == 2.0
    assert float(leaves.column("value").amax()) < inf
