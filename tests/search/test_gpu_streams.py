"""Samples at once: in order, each in a thread, and whatever ends one of them is known to all."""

from __future__ import annotations

import threading
from _thread import interrupt_main
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from proofmap.runtime.progress import Listener, listening
from proofmap.search import gpu_streams as module
from proofmap.search.goal import Found
from proofmap.search.gpu_streams import Work, together, workers_for

CPU = torch.device("cpu")
LONG = 20  # seconds: nothing waits for so long unless it is broken


def found(n: int, why: str = "") -> Found:
    return Found(torch.tensor([float(n)]), n, why)


def by(workers: int, count: int, work: Work, halted: threading.Event | None = None) -> list[Found]:
    return together(count, workers, CPU, halted or threading.Event(), work)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports follow each other at once."""
    monkeypatch.setattr(module, "_HEARD", 0.001)


def test_they_run_at_once_are_begun_in_order_and_come_back_in_order() -> None:
    begun: list[int] = []
    meet, last = threading.Barrier(3), threading.Event()

    def work(n: int, say: Listener) -> Found:
        begun.append(n)
        if n < 3:
            meet.wait(LONG)
        if n == 0:  # the first to begin is the last to end
            assert last.wait(LONG)
        elif n == 6:
            last.set()
        return found(n)

    assert [one.parts for one in by(3, 7, work)] == [*range(7)]
    assert sorted(begun[:3]) == [0, 1, 2]
    assert begun[3:] == [3, 4, 5, 6]


def test_one_at_a_time_on_a_cpu_and_on_a_gpu_as_many_as_have_room() -> None:
    assert workers_for(CPU, 2**40) == 1
    gpu = torch.device("cuda")
    assert [workers_for(gpu, room) for room in (0, 2**32, 3 * 2**32, 2**40)] == [1, 1, 3, 4]


def test_ctrl_c_halts_all_and_keeps_what_they_have(ctrl_c: None, soon: None) -> None:
    halted, meet = threading.Event(), threading.Barrier(3)

    def work(n: int, say: Listener) -> Found:
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

    def submit(self: ThreadPoolExecutor, call: Callable[[int], Found], n: int) -> Future[Found]:
        if n == 2:
            raise KeyboardInterrupt
        return usual(self, call, n)

    halted = threading.Event()

    def work(n: int, say: Listener) -> Found:
        assert halted.wait(LONG)
        return found(n)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    assert [one.parts for one in by(2, 4, work, halted)] == [0, 1, 2, 3]


def test_an_error_of_one_ends_the_others_and_is_raised() -> None:
    halted, ended = threading.Event(), []

    def work(n: int, say: Listener) -> Found:
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

    def work(n: int, say: Listener) -> Found:
        assert halted.wait(LONG)
        ended.append(n)
        return found(n)

    def hear(share: float, place: str) -> None:
        raise ValueError("no more room to write")

    with pytest.raises(ValueError, match="no more room"), listening(hear):
        by(2, 2, work, halted)
    assert sorted(ended) == [0, 1]


def test_the_calling_thread_hears_how_far_all_are(soon: None) -> None:
    """The first is done, of the others the one that says something is heard."""
    heard: list[tuple[float, str]] = []
    enough = threading.Event()

    def hear(share: float, place: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        heard.append((share, place))
        if heard[-1] == (0.625, "half-way"):
            enough.set()

    def work(n: int, say: Listener) -> Found:
        if n:
            say(0.25 * n, "half-way" if n == 2 else "")
            assert enough.wait(LONG)
        return found(n)

    with listening(hear):
        by(3, 4, work)
    assert (0.625, "half-way") in heard  # 1 + 1/4 + 1/2 + 3/4 of 4
    assert all(0 <= share <= 1 for share, _ in heard)
