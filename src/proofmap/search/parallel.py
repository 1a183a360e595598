"""Parallel execution of searches: CPU threads share a batch of parts; several samples run on GPU streams at once."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from queue import SimpleQueue
from threading import Event
from typing import TypeVar

import torch
from torch import Tensor

from proofmap.runtime import progress
from proofmap.runtime.progress import Listener
from proofmap.search.frontier import SearchResult

P = TypeVar("P")
R = TypeVar("R")

SampleSearch = Callable[[int, Listener], SearchResult]  # receives a sample's number and a listener for its progress

_MIN_SHARE_PARTS = 32  # a thread receives at least so many parts: smaller shares cost more than they gain
_MAX_GPU_SEARCHES = 4  # at once on one GPU; one search alone leaves it idle between its steps
_BYTES_PER_GPU_SEARCH = 2**32  # memory budget that each of them needs
_REPORT_SECONDS = 0.5  # from one progress report to the next


def map_shares(work: Callable[[Mapping[str, Tensor]], R], parts: Mapping[str, Tensor]) -> Iterable[R]:
    """Apply `work` to shares of parts (B, ...), one share for each thread that torch may use, and keep their order.

    The operations of one part are too small to be divided among threads themselves.
    """
    one = next(iter(parts.values()))
    size = max(_MIN_SHARE_PARTS, -(-len(one) // torch.get_num_threads())) if one.device.type == "cpu" else len(one)
    starts = range(0, len(one), max(1, size))
    shares = [{name: column[start : start + size] for name, column in parts.items()} for start in starts]
    return map_threads(work, shares, one.device)


def map_threads(work: Callable[[P], R], pieces: Sequence[P], device: torch.device) -> Iterable[R]:
    """Apply `work` to every piece and keep their order; on a CPU in as many threads as torch may use."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or min(threads, len(pieces)) < 2:
        return map(work, pieces)

    def alone(piece: P) -> R:
        torch.set_num_threads(1)  # in this thread and in all threads that start later
        with torch.no_grad():
            return work(piece)

    try:
        return list(_pool(os.getpid(), threads).map(alone, pieces))
    finally:
        torch.set_num_threads(threads)  # restores the value for threads that start later


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process: a forked process does not have the threads of its parent."""
    return ThreadPoolExecutor(threads, f"proofmap-{process}")


def concurrent_searches(device: torch.device, available: int) -> int:
    """Return the number of searches at once: several on a GPU with enough memory; one on a CPU, which it keeps busy."""
    if device.type != "cuda":
        return 1
    return max(1, min(_MAX_GPU_SEARCHES, available // _BYTES_PER_GPU_SEARCH))


def run_searches(
    count: int, workers: int, device: torch.device, halted: Event, work: SampleSearch
) -> list[SearchResult]:
    """Run `work` for samples 0 to `count` - 1, begun in this order, in threads with a GPU stream each.

    Ctrl-C and errors set `halted`: from then on `work` has to end soon and return what it has. An error is raised after
    all threads have ended. Only the calling thread reports progress.
    """
    said: dict[int, tuple[float, str]] = {}
    done: dict[int, SearchResult] = {}  # beside the futures: Ctrl-C may come after a start, before its future is stored
    streams = _streams(workers, device)

    def one(n: int) -> SearchResult:
        stream = streams.get()
        try:
            with torch.cuda.stream(stream):
                found = work(n, lambda share, place: said.update({n: (share, place)}))
                if stream is not None:
                    stream.synchronize()  # so that all streams can read the result
            done[n] = found
            return found
        except BaseException:
            halted.set()
            raise
        finally:
            streams.put(stream)

    pool = ThreadPoolExecutor(workers)
    futures: list[Future[SearchResult]] = []
    try:
        futures = [pool.submit(one, n) for n in range(count)]
        while wait(futures, _REPORT_SECONDS).not_done:
            progress.report(*_state(futures, said))
    except KeyboardInterrupt:
        halted.set()
    except BaseException:
        halted.set()
        raise
    finally:
        pool.shutdown()
        for stream in [streams.get() for _ in range(workers)]:  # waits for a thread whose start Ctrl-C interrupted, too
            streams.put(stream)
    for future in futures:
        future.result()  # raises the error of that thread
    return [done[n] if n in done else one(n) for n in range(count)]


def _streams(workers: int, device: torch.device) -> SimpleQueue[torch.cuda.Stream | None]:
    """Return one stream for each worker, which waits for all earlier computations; None on a CPU."""
    if device.type == "cuda":
        one = torch.ones(1, 1, device=device)
        torch.linalg.solve_triangular(one, one, upper=False)  # loads the solvers: two threads at once fail
    streams: SimpleQueue[torch.cuda.Stream | None] = SimpleQueue()
    for _ in range(workers):
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
        streams.put(stream)
    return streams


def _state(futures: Sequence[Future[SearchResult]], said: dict[int, tuple[float, str]]) -> tuple[float, str]:
    """Return the finished share of all searches, and the progress text of the first unfinished one that has a text."""
    left = [said.get(n, (0.0, "")) for n, future in enumerate(futures) if not future.done()]
    done = len(futures) - len(left) + sum(share for share, _ in left)
    return done / len(futures), next((place for _, place in left if place), "")
