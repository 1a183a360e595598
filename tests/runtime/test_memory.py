"""The budget: where it comes from, pieces that fit, halving when they do not."""

import gc
import os
import subprocess
import sys
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import METHODS, Forward, named
from proofmap.bounds.passes import Bounder
from proofmap.bounds.state import BoundState
from proofmap.errors import InputError, RoomError
from proofmap.runtime import memory
from proofmap.runtime.memory import budget, run_in_chunks
from tests.peak import with_peak


def test_the_default_is_a_part_of_what_is_free() -> None:
    assert 0 < budget(None, torch.device("cpu")) <= psutil.virtual_memory().total / 2


def test_what_the_user_says_counts() -> None:
    assert budget(12345, torch.device("cpu")) == 12345
    assert budget(2e9, torch.device("cpu")) == 2 * 10**9  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", [0, -1, 0.5, float("nan"), float("inf"), True, "300MB"])
def test_what_is_no_number_of_bytes(memory: Any) -> None:
    with pytest.raises(InputError, match=f"got memory={memory!r}, expected a positive number of bytes, or None"):
        budget(memory, torch.device("cpu"))


def test_pieces_cover_everything_once() -> None:
    seen: list[int] = []
    run_in_chunks(10, 3, lambda start, stop: seen.extend(range(start, stop)))
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

    run_in_chunks(20, 16, work)
    assert seen == list(range(20))
    assert tried[:3] == [16, 8, 4]
    assert max(tried[3:]) <= 2


def test_the_smallest_piece_gives_up_with_advice() -> None:
    def work(start: int, stop: int) -> None:
        raise MemoryError

    with pytest.raises(RoomError, match="out of memory with the smallest piece"):
        run_in_chunks(4, 4, work)


def test_other_errors_are_not_swallowed() -> None:
    def work(start: int, stop: int) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        run_in_chunks(4, 4, work)


def test_forward_says_what_it_needs() -> None:
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:1]
    with pytest.raises(
        RoomError, match=r"need about \d+\.\d MB a sample, the budget is 1\.0 MB: .*Backward or CrownIBP"
    ):
        pm.overlap(model, x, pm.Ball(0.01), bounds=Forward(), memory=10**6)


def deep_maps() -> nn.Module:
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for channels in (3, 2, 2, 2):
            layers += [nn.Conv2d(channels, 2, 3, padding=1), nn.ReLU()]
            nn.init.kaiming_normal_(layers[-2].weight)  # type: ignore[arg-type]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 4)).eval()


def check_that_it_is_kept(
    model: nn.Module, x: Tensor, eps: float, cells: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds for every member stay within the limit, where they would take more, and are the same."""
    monkeypatch.setattr(memory, "_CPU_CHUNK_BYTES", 2**40)  # the budget alone decides
    graph = pm.trace(model, x)
    ball, groups = pm.Ball(eps, domain=(0.0, 1.0)), pm.groups.grid(cells)
    large, free = with_peak(lambda: pm.overlap(graph, x, ball, groups=groups, memory=4 * 10**9))
    small, kept = with_peak(lambda: pm.overlap(graph, x, ball, groups=groups, memory=limit))
    assert kept < limit < free
    torch.testing.assert_close(small.full, large.full, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(small.frozen, large.frozen, rtol=1e-4, atol=1e-4)


def test_the_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pm.data.digits()[0][:8].double()
    check_that_it_is_kept(pm.zoo.mnist_mlp().double(), x, 0.03, 12, 80 * 10**6, monkeypatch)


def test_the_budget_is_kept_where_forms_are_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(1, 3, 80, 80, generator=torch.Generator().manual_seed(0))
    check_that_it_is_kept(deep_maps(), x, 0.002, 12, 150 * 10**6, monkeypatch)


@pytest.mark.slow
def test_the_cifar_network_of_the_paper_runs_in_300_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full backward bounds for every member, where the coefficients of one layer alone would take 20 GB if dense."""
    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    check_that_it_is_kept(pm.zoo.cifar_cnn(), x, 0.001, 4, 300 * 10**6, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_walk_leaves_nothing_that_waits_for_the_collector(method: str) -> None:
    """Coefficients and intervals are freed with the walk: on a GPU, what waits in a cycle is memory nobody has."""
    x = pm.data.digits()[0][:1]
    graph = pm.trace(pm.zoo.mnist_mlp(), x)
    gc.collect()
    gc.disable()
    try:
        pm.overlap(graph, x, pm.Ball(0.01), groups=pm.groups.grid(2), bounds=named(method))
        left = [one for one in gc.get_objects() if issubclass(type(one), BoundState | Bounder)]
    finally:
        gc.enable()
    assert left == []


_AGAIN = """
import resource, sys, torch
from proofmap.runtime.memory import keep_freed
print(keep_freed())
def walk():
    parts = [torch.ones(2**20) for _ in range(16)]
    return sum(float(part[0]) for part in parts)
for _ in range(3):
    walk()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
walk()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's C library is asked")
def test_what_a_walk_freed_is_there_for_the_next() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    kept, faults = subprocess.run(
        [sys.executable, "-c", _AGAIN], check=True, capture_output=True, text=True, env=env
    ).stdout.split()
    assert kept == "True"
    assert int(faults) < 16 * 2**20 * 4 / 4096 / 10  # a tenth of the pages


def test_who_has_set_the_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.keep_freed.cache_clear()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not memory.keep_freed()
    memory.keep_freed.cache_clear()


def sizes_of(total: int, row_bytes: int, budget: int, device: torch.device) -> list[int]:
    """Return the sizes of the chunks in which rows are processed."""
    found: list[int] = []
    memory.run_rows(total, row_bytes, budget, device, lambda start, stop: found.append(stop - start))
    return found


def test_rows_on_a_gpu_begin_with_a_third_and_grow_while_the_budget_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: 300)
    assert sizes_of(100, 10, 600, gpu) == [10, 20, 30, 30, 10]  # at most half of the budget: 30 rows
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: 301)
    assert sizes_of(30, 10, 600, gpu) == [10, 10, 10]
    assert sizes_of(100, 10, 600, cpu) == [30, 30, 30, 10]


def test_chunks_that_were_halved_do_not_grow_again() -> None:
    found: list[int] = []

    def work(start: int, stop: int) -> None:
        if stop - start > 8:
            raise MemoryError
        found.append(stop - start)

    memory.run_in_chunks(20, 16, work, lambda size: 2 * size)
    assert found == [8, 8, 4]
