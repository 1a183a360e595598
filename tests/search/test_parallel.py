"""Threads share every part of a batch in order; several searches run at once, and an error in one ends all."""

import threading
import time
from _thread import interrupt_main
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, get_ident

import pytest
import torch
from torch import Tensor

from proofmap.runtime.progress import Listener, listening
from proofmap.search import parallel
from proofmap.search.branch_and_bound import branch_and_bound
from proofmap.search.frontier import MEMBER_GAP_DIVISOR, SearchResult, StoppingRule
from proofmap.search.parallel import SampleSearch, concurrent_searches, map_shares, map_threads, run_searches
from tests.search.setting import GAP, exact_overlaps, setting

CPU = torch.device("cpu")
LONG = 20  # seconds: nothing waits for so long unless it is broken


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 31, 64, 65, 200])
def test_every_part_is_in_one_share_in_order(threads: int, count: int) -> None:
    parts = {"row": torch.arange(count), "value": torch.rand(count, 2)}
    found = list(map_shares(dict, parts))
    assert len(found) == min(threads, -(-count // 32))
    for name, column in parts.items():
        assert torch.equal(torch.cat([part[name] for part in found]), column)


def test_shares_are_worked_on_at_the_same_time_by_one_thread_each(threads: int) -> None:
    together = Barrier(threads)

    def work(part: Mapping[str, Tensor]) -> tuple[int, int, bool]:
        together.wait(20)
        return get_ident(), torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        found = list(map_shares(work, {"row": torch.arange(100 * threads)}))
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
        list(map_threads(work, range(5), CPU))
    assert torch.get_num_threads() == threads
    assert list(map_threads(lambda piece: piece**2, range(3), CPU)) == [0, 1, 4]


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("threads", [2], indirect=True)
def test_a_search_by_threads_ends_at_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_MIN_SHARE_PARTS", 1)
    one = setting("pooled", "box", 2)
    exact = exact_overlaps(one.graph, one.family, one.forms[None])[0]
    reached = exact - GAP / MEMBER_GAP_DIVISOR / 2
    goal, soon = StoppingRule(GAP, time.monotonic() + 1e6, 2**30), ((0.0, 2), (0.0, 16))
    found = branch_and_bound(one.units, one.balls, reached.clone(), goal, lambda *_: reached, lambda *_: None, soon)
    assert found.stopped == ""
    assert bool((found.upper >= exact - 1e-6).all())
    assert bool((found.upper <= exact + GAP / MEMBER_GAP_DIVISOR).all())


def found(n: int, why: str = "") -> SearchResult:
    return SearchResult(torch.tensor([float(n)]), n, why)


def by(workers: int, count: int, work: SampleSearch, halted: threading.Event | None = None) -> list[SearchResult]:
    return run_searches(count, workers, CPU, halted or threading.Event(), work)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report progress without pauses."""
    monkeypatch.setattr(parallel, "_REPORT_SECONDS", 0.001)


def test_they_run_at_once_are_begun_in_order_and_come_back_in_order() -> None:
    begun: list[int] = []
    meet, last = threading.Barrier(3), threading.Event()

    def work(n: int, say: Listener) -> SearchResult:
        begun.append(n)
        if n < 3:
            meet.wait(LONG)
        if n == 0:  # the first to begin is the last to end
            assert last.wait(LONG)
        elif n == 6:
            last.set()
        return found(n)

    assert [one.parts for one in by(3, 7, work)] == [*range(7)]
    assert (sorted(begun[:3]), begun[3:]) == ([0, 1, 2], [3, 4, 5, 6])


def test_one_at_a_time_on_a_cpu_and_on_a_gpu_as_many_as_have_room() -> None:
    assert concurrent_searches(CPU, 2**40) == 1
    gpu = torch.device("cuda")
    assert [concurrent_searches(gpu, room) for room in (0, 2**32, 3 * 2**32, 2**40)] == [1, 1, 3, 4]


def test_ctrl_c_halts_all_and_keeps_what_they_have(ctrl_c: None, soon: None) -> None:
    halted, meet = threading.Event(), threading.Barrier(3)

    def work(n: int, say: Listener) -> SearchResult:
        if halted.is_set():
            return found(n, "not begun")
        if meet.wait(LONG) == 0:
            interrupt_main()
        assert halted.wait(LONG)
        return found(n, "interrupted")

    ends = by(3, 5, work, halted)
    assert [one.parts for one in ends] == [*range(5)]
    assert [one.stopped for one in ends] == ["interrupted"] * 3 + ["not begun"] * 2


def test_ctrl_c_before_all_are_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ThreadPoolExecutor.submit

    def submit(self: ThreadPoolExecutor, call: Callable[[int], SearchResult], n: int) -> Future[SearchResult]:
        if n == 2:
            raise KeyboardInterrupt
        return usual(self, call, n)

    halted = threading.Event()

    def work(n: int, say: Listener) -> SearchResult:
        assert halted.wait(LONG)
        return found(n)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    assert [one.parts for one in by(2, 4, work, halted)] == [0, 1, 2, 3]


def test_an_error_of_one_ends_the_others_and_is_raised() -> None:
    halted, ended = threading.Event(), []

    def work(n: int, say: Listener) -> SearchResult:
        if n == 1:
            raise ValueError("of the second")
        assert halted.wait(LONG)
        ended.append(n)
        return found(n)

    with pytest.raises(ValueError, match="of the second"):
        by(3, 3, work, halted)
    assert sorted(ended) == [0, 2]


def test_an_error_of_whoever_listens_ends_them_too(soon: None) -> None:
    halted, ended = threading.Event(), []

    def work(n: int, say: Listener) -> SearchResult:
        assert halted.wait(LONG)
        ended.append(n)
        return found(n)

    def hear(share: float, place: str) -> None:
        raise ValueError("no more room to write")

    with pytest.raises(ValueError, match="no more room"), listening(hear):
        by(2, 2, work, halted)
    assert sorted(ended) == [0, 1]


def test_the_calling_thread_hears_how_far_all_are(soon: None) -> None:
    """One search is finished; the progress text comes from the first other search that has one."""
    heard: list[tuple[float, str]] = []
    enough = threading.Event()

    def hear(share: float, place: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        heard.append((share, place))
        if heard[-1] == (0.625, "half-way"):
            enough.set()

    def work(n: int, say: Listener) -> SearchResult:
        if n:
            say(0.25 * n, "half-way" if n == 2 else "")
            assert enough.wait(LONG)
        return found(n)

    with listening(hear):
        by(3, 4, work)
    assert (0.625, "half-way") in heard  # 1 + 1/4 + 1/2 + 3/4 of 4
    assert all(0 <= share <= 1 for share, _ in heard)
