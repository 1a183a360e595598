"""Progress display: a bar on a terminal or in a notebook, and occasional lines in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from math import floor
from typing import Any

from tqdm import tqdm

from proofmap.runtime.progress import listening, part, report

_BAR_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
_FIRST_BAR_SECONDS = 1  # a bar appears after this time
_BAR_SECONDS = 0.2  # least seconds between two states of a bar
_NOTEBOOK_COLUMNS = 100  # characters of a bar in a notebook
_MIN_LINE_SECONDS = 10  # least seconds between two lines in a file
_LINE_SHARE = 0.1  # print a line after this share of the work,
_MAX_SILENCE_SECONDS = 60  # or after these seconds,
_SILENCE_SHARE = 0.1  # or after this share of the elapsed time, whichever is longer


class ProgressBar:
    """Shows how many of `total` units of work are done, on the error output, with the remaining time.

    Inside `work`, reports count as shares of the units in progress. Without `show` nothing is displayed, and reports go
    to the surrounding listener.
    """

    def __init__(self, total: int, title: str, *, show: bool = True, done: int = 0, unit: str = "sample") -> None:
        self._total, self._done, self._unit = total, done, unit
        self._within = 0.0  # the share of the units in progress that is done
        display = _NotebookBar if "ipykernel" in sys.modules else _TerminalBar if _is_terminal() else _LogLines
        self._display = display(total, title, done) if show else None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._display is not None:
            self._display.close()

    @contextmanager
    def work(self, count: int = 1) -> Iterator[None]:
        """Inside, the next `count` units are processed."""
        with self.ahead(count):
            yield
        self.advance(count)

    @contextmanager
    def ahead(self, count: int) -> Iterator[None]:
        """Inside, reports count as shares of the next `count` units."""
        if self._display is None:
            with part(self._done / self._total, min(1.0, (self._done + count) / self._total)):
                yield
            return

        def hear(share: float, place: str) -> None:
            self._within = max(self._within, min(share, 1.0))  # a guess may be too high, but progress must not go back
            units = min(count, self._total - self._done)
            self._tell(self._done + units * self._within, place, units)

        with listening(hear):
            yield

    def advance(self, count: int = 1) -> None:
        """Count `count` more units as done."""
        self._done, self._within = self._done + count, 0.0
        if self._display is None:
            report(self._done / self._total)
        else:
            self._tell(self._done, "")

    def write(self, text: str) -> None:
        """Print a line on the standard output, above the bar."""
        if isinstance(self._display, _TerminalBar):
            tqdm.write(text)
        else:
            print(text, flush=True)

    def _tell(self, done: float, place: str, together: int = 1) -> None:
        """Show the share that is done. Units that are processed together are named by their numbers."""
        assert self._display is not None
        count = f"{self._done} of {self._total} {self._unit}s" if self._total > 1 else ""
        if together > 1:
            count = f"{self._unit}s {self._done + 1} to {self._done + together} of {self._total}"
        self._display.show(done, ", ".join(filter(None, (count, place))))


def print_status(text: str) -> None:
    """Print a line on the error output. If that is closed or full, the line is lost and the work continues."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)


def _is_terminal() -> bool:
    with suppress(OSError, ValueError):
        return sys.stderr is not None and sys.stderr.isatty()
    return False


class _NotebookBar:
    """A moving bar in the output of a cell, shown after the first second and removed at the end.

    It is one output that is updated, so that a stored notebook keeps neither the bar nor its history.
    """

    def __init__(self, total: int, title: str, done: int) -> None:
        self._total, self._title, self._first = total, title, done
        self._started = self._last = time.monotonic()
        self._output: Any = None

    def show(self, done: float, text: str) -> None:
        now = time.monotonic()
        if now - self._started < _FIRST_BAR_SECONDS or now - self._last < _BAR_SECONDS:
            return
        self._last = now
        self._put(
            tqdm.format_meter(
                done,
                self._total,
                now - self._started,
                ncols=_NOTEBOOK_COLUMNS,
                prefix=self._title,
                bar_format=_BAR_FORMAT,
                postfix=text,
                initial=self._first,
            )
        )

    def _put(self, line: str) -> None:
        """Show a line in place of the last one."""
        content = {"text/plain": line}
        if self._output is not None:
            self._output.update(content, raw=True)
            return
        display: Any = import_module("IPython.display").display  # every notebook's kernel has this module
        self._output = display(content, raw=True, display_id=True)

    def close(self) -> None:
        if self._output is not None:
            self._put("")


class _TerminalBar:
    """A moving bar, shown after the first second."""

    def __init__(self, total: int, title: str, done: int) -> None:
        self._bar = tqdm(
            total=total,
            initial=done,
            desc=title,
            bar_format=_BAR_FORMAT,
            smoothing=0,  # use the mean speed, because units differ
            mininterval=_BAR_SECONDS,
            miniters=0,
            delay=_FIRST_BAR_SECONDS,
            leave=False,
        )

    def show(self, done: float, text: str) -> None:
        """Show the number of units that are done, and a text."""
        with suppress(OSError, ValueError):  # the terminal was closed
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._bar.close()


class _LogLines:
    """Prints a line when there is news, and less often the longer the work takes."""

    def __init__(self, total: int, title: str, done: int) -> None:
        self._total, self._title, self._first = total, title, done
        self._started = self._last = time.monotonic()
        self._shown = done / total

    def show(self, done: float, text: str) -> None:
        now, share = time.monotonic(), done / self._total
        silent, elapsed = now - self._last, now - self._started
        due = share - self._shown >= _LINE_SHARE or silent >= max(_MAX_SILENCE_SECONDS, _SILENCE_SHARE * elapsed)
        if silent < _MIN_LINE_SECONDS or not due:
            return
        self._last, self._shown = now, share
        speed = (done - self._first) / elapsed
        left = f", about {tqdm.format_interval((self._total - done) / speed)} left" if speed else ""
        where = f", {text}" if text else ""
        took = tqdm.format_interval(elapsed)
        print_status(f"{self._title}: {floor(100 * share)} %{where}, {took} so far{left}")

    def close(self) -> None:
        pass
