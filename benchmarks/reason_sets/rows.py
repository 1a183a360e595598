"""Rows of a benchmark in one CSV file. A row is written as soon as it is computed; a stopped run continues."""

from __future__ import annotations

import csv
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

Row = dict[str, object]


def read(path: Path) -> list[dict[str, str]]:
    """Return the complete rows of a file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


def numbers(rows: Iterable[Mapping[str, str]], name: str) -> list[float]:
    """Return one column as numbers; rows without a value are skipped."""
    return [float(row[name]) for row in rows if row[name] != ""]


def compute(path: Path, tasks: Sequence[Row], work: Callable[[Row], Row | list[Row]], processes: int) -> None:
    """Write the rows of all tasks that the file does not contain, in sorted order at the end.

    Args:
        tasks: The settings of each piece of work, which are the first columns of its rows.
        work: It returns the other columns. Each process has one thread.
    """
    known = read(path)
    left = [task for task in tasks if not any(_has(row, task) for row in known)]
    with_header = not known
    path.parent.mkdir(parents=True, exist_ok=True)
    for row in _results(left, work, processes):
        with path.open("w" if with_header else "a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
            if with_header:
                writer.writeheader()
            writer.writerow({name: _text(value) for name, value in row.items()})
        with_header = False
        print(", ".join(f"{name} {_text(value)}" for name, value in row.items()), flush=True)
    if left:
        _sort(path, list(tasks[0]))


def _results(tasks: Sequence[Row], work: Callable[[Row], Row | list[Row]], processes: int) -> Iterator[Row]:
    if processes <= 1 or len(tasks) < 2:
        torch.set_num_threads(1)
        found = ((task, work(task)) for task in tasks)
        yield from _flat(found)
        return
    with multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        yield from _flat(pool.imap_unordered(_Both(work), tasks))


class _Both:
    """Returns a task with its result, so that results may come in any order."""

    def __init__(self, work: Callable[[Row], Row | list[Row]]) -> None:
        self.work = work

    def __call__(self, task: Row) -> tuple[Row, Row | list[Row]]:
        return task, self.work(task)


def _flat(found: Iterable[tuple[Row, Row | list[Row]]]) -> Iterator[Row]:
    for task, result in found:
        for row in result if isinstance(result, list) else [result]:
            yield {**task, **row}


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _has(row: Mapping[str, str], task: Row) -> bool:
    return all(row.get(name) == _text(value) for name, value in task.items())


def _sort(path: Path, keys: Sequence[str]) -> None:
    rows = read(path)
    rows.sort(
        key=lambda row: [(0, float(row[key]), "") if _is_number(row[key]) else (1, 0.0, row[key]) for key in keys]
    )
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
