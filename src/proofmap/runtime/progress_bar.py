"""Progress for people: a bar on a terminal and in a notebook, a line now and then in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import floor

from tqdm.auto import tqdm

from proofmap.runtime.progress import listening, part, report

__all__ = ["Bar", "say"]

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
_BETWEEN = 10  # seconds between two lines of a file, at least
_STEP = 0.1  # of the work, after which there is a line,
_SILENCE = 60  # or so many seconds,
_SHARE = 0.1  # or this share of the time so far, where that is longer


class Bar:
    """How far `total` units of work are, on the error output, with the time that is left.

    Inside `work`, what is reported counts as shares of the units that are at work. Without `show` nothing
    is shown, and whoever listens around hears it instead.
    """

    def __init__(self, total: int, title: str, *, show: bool = True, done: int = 0, unit: str = "sample") -> None:
        self._total, self._done, self._unit = total, done, unit
        self._within = 0.0  # of the next units, the share that is done
        display = _Drawn if "ipykernel" in sys.modules or _is_terminal() else _Lines
        self._display = display(total, title, done) if show else None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._display is not None:
            self._display.close()

    @contextmanager
    def work(self, count: int = 1) -> Iterator[None]:
        """Inside, the next `count` units are done."""
        with self.ahead(count):
            yield
        self.advance(count)

    @contextmanager
    def ahead(self, count: int) -> Iterator[None]:
        """Inside, what is reported counts as shares of the `count` units after those that are done."""
        if self._display is None:
            with part(self._done / self._total, min(1.0, (self._done + count) / self._total)):
                yield
            return

        def hear(share: float, place: str) -> None:
            self._within = max(self._within, min(share, 1.0))  # a guess may be too high, but time does not run back
            self._tell(self._done + min(count, self._total - self._done) * self._within, place)

        with listening(hear):
            yield

    def advance(self, count: int = 1) -> None:
        """So many more units are done."""
        self._done, self._within = self._done + count, 0.0
        if self._display is None:
            report(self._done / self._total)
        else:
            self._tell(self._done, "")

    def write(self, text: str) -> None:
        """A line on the output, beside the bar."""
        if isinstance(self._display, _Drawn):
            tqdm.write(text)
        else:
            print(text, flush=True)

    def _tell(self, done: float, place: str) -> None:
        assert self._display is not None
        count = f"{self._done} of {self._total} {self._unit}s" if self._total > 1 else ""
        self._display.show(done, ", ".join(filter(None, (count, place))))


def say(text: str) -> None:
    """A line on the error output. Where that is closed or full, the line is lost and the work goes on."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)


def _is_terminal() -> bool:
    with suppress(OSError, ValueError):
        return sys.stderr is not None and sys.stderr.isatty()
    return False


class _Drawn:
    """A bar that moves, from the first second on."""

    def __init__(self, total: int, title: str, done: int) -> None:
        self._bar = tqdm(
            total=total,
            initial=done,
            desc=title,
            bar_format=_FORMAT,
            smoothing=0,  # by the mean speed: parts differ
            mininterval=0.2,
            miniters=0,
            delay=1,
            leave=False,
        )

    def show(self, done: float, text: str) -> None:
        """So many units are done, and the rest in words."""
        with suppress(OSError, ValueError):  # the terminal is gone
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._bar.close()


class _Lines:
    """A line when there is news, and a sign of life in between: the longer it takes, the rarer."""

    def __init__(self, total: int, title: str, done: int) -> None:
        self._total, self._title, self._first = total, title, done
        self._started = self._last = time.monotonic()
        self._shown = done / total

    def show(self, done: float, text: str) -> None:
        now, share = time.monotonic(), done / self._total
        silent, elapsed = now - self._last, now - self._started
        due = share - self._shown >= _STEP or silent >= max(_SILENCE, _SHARE * elapsed)
        if silent < _BETWEEN or not due:
            return
        self._last, self._shown = now, share
        speed = (done - self._first) / elapsed
        left = f", about {tqdm.format_interval((self._total - done) / speed)} left" if speed else ""
        where = f", {text}" if text else ""
        took = tqdm.format_interval(elapsed)
        say(f"{self._title}: {floor(100 * share)} %{where}, {took} so far{left}")

    def close(self) -> None:
        pass
