"""Threads that share a batch leave nothing of it out, and a search by several ends where one by itself does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, get_ident

import pytest
import torch
from torch import Tensor

from proofmap.search import cpu_threads as crew
from proofmap.search.branch_and_bound import search
from proofmap.search.cpu_threads import each, shared
from proofmap.search.goal import FINER, Goal
from tests.search.setting import GAP, exact_overlaps, setting

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 31, 64, 65, 200])
def test_every_part_is_in_one_share_in_order(threads: int, count: int) -> None:
    parts = {"row": torch.arange(count), "value": torch.rand(count, 2)}
    found = list(shared(dict, parts))
    assert len(found) == min(threads, -(-count // 32))
    for name, column in parts.items():
        assert torch.equal(torch.cat([part[name] for part in found]), column)


def test_shares_are_worked_on_at_the_same_time_by_one_thread_each(threads: int) -> None:
    together = Barrier(threads)

    def work(part: Mapping[str, Tensor]) -> tuple[int, int, bool]:
        together.wait(20)
        return get_ident(), torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        found = list(shared(work, {"row": torch.arange(100 * threads)}))
    assert len({ident for ident, _, _ in found}) == threads
    assert {(count, grad) for _, count, grad in found} == {(1, False)}
    with ThreadPoolExecutor(1) as later:
        assert later.submit(torch.get_num_threads).result() == threads


def test_what_goes_wrong_in_a_share_is_raised(threads: int) -> None:
    def work(piece: int) -> int:
        if piece == 3:
            raise KeyboardInterrupt
        return piece

    with pytest.raises(KeyboardInterrupt):
        list(each(work, range(5), CPU))
    assert torch.get_num_threads() == threads
    assert list(each(lambda piece: piece**2, range(3), CPU)) == [0, 1, 4]


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("threads", [2], indirect=True)
def test_a_search_by_threads_ends_at_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_LEAST", 1)
    one = setting("pooled", "box", 2)
    exact = exact_overlaps(one.graph, one.family, one.forms[None])[0]
    reached = exact - GAP / FINER / 2
    goal, soon = Goal(GAP, time.monotonic() + 20, 2**30), ((0.0, 2), (0.0, 16))
    found = search(one.units, one.balls, reached.clone(), goal, lambda *_: reached, lambda *_: None, soon)
    assert found.stopped == ""
    assert bool((found.upper >= exact - 1e-6).all())
    assert bool((found.upper <= exact + GAP / FINER).all())
