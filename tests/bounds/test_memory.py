"""The budget: where it comes from, pieces that fit, halving when they do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
import torch

import proofmap as pm
from proofmap.bounds import Forward
from proofmap.bounds.memory import budget, heartbeat, in_pieces
from proofmap.errors import BoundError, InputError


def test_the_default_is_a_part_of_what_is_free() -> None:
    found = budget(None, torch.device("cpu"))
    assert 0 < found <= psutil.virtual_memory().total / 2


def test_what_the_user_says_counts() -> None:
    assert budget(12345, torch.device("cpu")) == 12345
    with pytest.raises(InputError, match="got memory=0, expected a positive number of bytes"):
        budget(0, torch.device("cpu"))


def test_pieces_cover_everything_once() -> None:
    seen: list[int] = []
    in_pieces(10, 3, lambda start, stop: seen.extend(range(start, stop)))
    assert seen == list(range(10))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
)
def test_pieces_are_halved_until_they_fit(error: Exception) -> None:
    seen: list[int] = []
    tried: list[int] = []

    def work(start: int, stop: int) -> None:
        tried.append(stop - start)
        if stop - start > 3:
            raise error
        seen.extend(range(start, stop))

    in_pieces(20, 16, work)
    assert seen == list(range(20))
    assert tried[:3] == [16, 8, 4]
    assert max(tried[3:]) <= 2


def test_the_smallest_piece_gives_up_with_advice() -> None:
    def work(start: int, stop: int) -> None:
        raise MemoryError

    with pytest.raises(BoundError, match="out of memory with the smallest piece"):
        in_pieces(4, 4, work)


def test_other_errors_are_not_swallowed() -> None:
    def work(start: int, stop: int) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_pieces(4, 4, work)


def test_every_piece_is_a_sign_of_life() -> None:
    beats: list[int] = []
    with heartbeat(lambda: beats.append(1)):
        in_pieces(10, 3, lambda start, stop: None)
    in_pieces(10, 3, lambda start, stop: None)
    assert len(beats) == 4
    model = pm.zoo.mnist_mlp()
    with heartbeat(lambda: beats.append(1)):
        pm.overlap(model, pm.data.digits()[0][:1], pm.Ball(0.02), groups=pm.groups.grid(4))
    assert len(beats) > 8


def test_forward_says_what_it_needs() -> None:
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:1]
    with pytest.raises(
        BoundError, match=r"forward bounds of this network need about .* GB a sample.*Backward or CrownIBP"
    ):
        pm.overlap(model, x, pm.Ball(0.01), bounds=Forward(), memory=10**6)


@contextmanager
def peak_of_process() -> Iterator[list[int]]:
    """The bytes held beyond those at the start, looked at every millisecond; the largest is what counts."""
    process = psutil.Process()
    before = process.memory_info().rss
    seen, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            seen.append(process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def test_the_budget_is_kept() -> None:
    """Peak memory of backward bounds of the packaged network stays near a small budget, with the same numbers."""
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:8]
    graph = pm.trace(model, x)
    ball, cells = pm.Ball(0.03, domain=(0.0, 1.0)), pm.groups.grid(12)
    pm.overlap(graph, x[:1], ball, groups=cells, memory=20 * 10**6)
    with peak_of_process() as seen:
        small = pm.overlap(graph, x, ball, groups=cells, memory=40 * 10**6)
    assert max(seen) < 120 * 10**6
    large = pm.overlap(graph, x, ball, groups=cells, memory=2 * 10**9)
    torch.testing.assert_close(small.frozen, large.frozen, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_cifar_network_of_the_paper_runs_in_300_megabytes() -> None:
    """Full backward bounds for every member, where the coefficients of one layer alone would take 20 GB if dense."""
    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    graph = pm.trace(pm.zoo.cifar_cnn(), x)
    ball, cells = pm.Ball(0.001, domain=(0.0, 1.0)), pm.groups.grid(4)
    with peak_of_process() as seen:
        small = pm.overlap(graph, x, ball, groups=cells, memory=300 * 10**6)
    assert max(seen) < 300 * 10**6
    large = pm.overlap(graph, x, ball, groups=cells, memory=4 * 10**9)
    torch.testing.assert_close(small.full, large.full, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(small.frozen, large.frozen, rtol=1e-4, atol=1e-4)
