"""Several searches at once: one alone leaves a GPU idle between its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from threading import Event

import torch

from proofmap.runtime import progress
from proofmap.runtime.progress import Listener
from proofmap.search.goal import Found

Work = Callable[[int, Listener], Found]  # the number of a sample, whom to tell how far it is -> what was found

_AT_ONCE = 4  # on a GPU
_EACH = 2**32  # bytes of the budget, for each of them
_HEARD = 0.5  # seconds from one report to the next


def workers_for(device: torch.device, available: int) -> int:
    """How many searches at once: several on a GPU that has room for them; one on a CPU, whose cores it keeps busy."""
    return max(1, min(_AT_ONCE, available // _EACH)) if device.type == "cuda" else 1


def together(count: int, workers: int, device: torch.device, halted: Event, work: Work) -> list[Found]:
    """What work finds for samples 0, 1, ... `count` - 1, begun in this order in so many threads, each on a stream of
    its own.

    Ctrl-C and errors set `halted`: from then on work has to end soon, with what it has. An error is raised when all
    have ended. Only the calling thread reports.
    """
    said: dict[int, tuple[float, str]] = {}
    done: dict[int, Found] = {}  # not by futures: Ctrl-C may come between the start of one and its return to us
    streams = _streams(workers, device)

    def one(n: int) -> Found:
        stream = streams.get()
        try:
            with torch.cuda.stream(stream):
                found = work(n, lambda share, place: said.update({n: (share, place)}))
                if stream is not None:
                    stream.synchronize()  # so that what was found is there for all streams
            done[n] = found
            return found
        except BaseException:
            halted.set()
            raise
        finally:
            streams.put(stream)

    pool = ThreadPoolExecutor(workers)
    futures: list[Future[Found]] = []
    try:
        futures = [pool.submit(one, n) for n in range(count)]
        while wait(futures, _HEARD).not_done:
            progress.report(*_state(futures, said))
    except KeyboardInterrupt:
        halted.set()
    except BaseException:
        halted.set()
        raise
    finally:
        pool.shutdown()
        for stream in [streams.get() for _ in range(workers)]:  # of a thread whose start Ctrl-C broke off, too
            streams.put(stream)
    for future in futures:
        future.result()  # raises what went wrong there
    return [done[n] if n in done else one(n) for n in range(count)]


def _streams(workers: int, device: torch.device) -> SimpleQueue[torch.cuda.Stream | None]:
    """One for each worker, which sees what was computed so far; None on a CPU."""
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


def _state(futures: Sequence[Future[Found]], said: dict[int, tuple[float, str]]) -> tuple[float, str]:
    """The share of all that is done, and where the first is that is not."""
    left = [said.get(n, (0.0, "")) for n, future in enumerate(futures) if not future.done()]
    done = len(futures) - len(left) + sum(share for share, _ in left)
    return done / len(futures), next((place for _, place in left if place), "")
