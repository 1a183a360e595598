"""Sizes and seconds of sufficient sets, one sample at a time."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

import proofmap as pm
from proofmap.errors import ProofmapError

from .cases import (
    Case,
    cifar,
    groups_of,
    mnist_file,
    mnist_mlp,
    normalised_cifar,
    published_rows,
    table,
)
from .rows import Row

COLUMNS = ("label", "predicted", "of", "kept", "necessary", "undecided", "within_rounding", "least", "bound")
_LISTED = 100  # the published lists are of the first training images
WARM_SECONDS = 5.0  # limit of an unmeasured call, which loads what a process loads once


def case_of(task: Row) -> Case:
    """Return the case of a task by its columns `case` and `network`, with the files that it names."""
    case, network, data = str(task["case"]), str(task["network"]), str(task.get("data", ""))
    if case == "published":
        return mnist_file(str(task["networks"]), network, data, "train")
    if case == "mlp":
        return mnist_mlp(data, "train" if task.get("split") == "train" else "test")
    if case == "cifar":
        return cifar(network, data, not task.get("part"))
    if case == "resnet":
        return normalised_cifar(str(task["onnx"]), data, not task.get("part"))
    return table(network)


def sufficient(task: Row, order: Tensor | None = None) -> pm.Sufficient:
    """Return the explainer of a task."""
    case = case_of(task)
    smallest = float(str(task.get("smallest_s", 0)))
    more: dict[str, Any] = {"smallest": smallest} if smallest else {}
    return pm.Sufficient(
        case.on(str(task["device"])),
        case.ball(float(str(task["eps"]))),
        groups=groups_of(str(task["groups"])),
        seconds=float(str(task["limit_s"])),
        order=order,
        progress=False,
        **more,
    )


def measure(task: Row) -> Row:
    """Explain one sample; a refusal leaves the columns of the set empty."""
    case, index = case_of(task), int(str(task["index"]))
    x = case.x[index][None].to(str(task["device"]))
    if task.get("clock") == "processor":
        time.monotonic = time.process_time  # time limits read this clock
    warm(task)
    explainer = sufficient(task)
    begin, used = time.perf_counter(), time.process_time()
    try:
        found = explainer.explain(x)
    except ProofmapError as error:
        none = dict.fromkeys(COLUMNS, "")
        return {**none, "label": int(case.labels[index]), "seconds": "", "cpu_s": "", "error": str(error)[:80]}
    seconds, cpu = time.perf_counter() - begin, time.process_time() - used
    return {**columns(found, int(case.labels[index])), "seconds": seconds, "cpu_s": cpu, "error": ""}


def included(task: Row) -> Row:
    """Compare the images that `Backward` leaves open at a radius with those of the published lists."""
    case = case_of(task)
    x, labels = case.x[:_LISTED], case.labels[:_LISTED]
    ball = case.ball(float(str(task["eps"])))
    over = pm.overlap(case.on("cpu"), x, ball, bounds=pm.bounds.Backward(), target=labels, rigorous=False)
    left = set((over.full > 0).nonzero().flatten().tolist())
    rows = published_rows(Path(str(task["networks"])), str(task["network"]))
    found: Row = {"open": len(left)}
    for name, column in (("VeriX+", "verix_size"), ("FAME", "fame_size")):
        listed = {int(row["index"]) for row in rows if row[column] != ""}
        found |= {f"{name}, listed": len(listed), f"{name}, differ": len(listed ^ left)}
    return found


def columns(found: pm.Explanation, label: int) -> Row:
    """Return the columns that state the sets of one sample."""
    reason = found.reason
    assert reason is not None
    within = reason.necessary & ~reason.adversarial
    return {
        "label": label,
        "predicted": int(found.predicted[0]),
        "of": reason.free.shape[1],
        "kept": int(reason.size[0]),
        "necessary": int(reason.necessary.sum()),
        "undecided": int(reason.undecided.sum()),
        "within_rounding": int(within.sum()),
        "least": int(reason.least[0]),
        "bound": float(reason.bound[0]),
    }


def warm(task: Row) -> None:
    """Explain another sample once in each process, so that loading is not measured."""
    name = (task["case"], task["network"], task["groups"])
    if name not in _WARM:
        _WARM.add(name)
        with suppress(ProofmapError):
            sufficient({**task, "limit_s": WARM_SECONDS}).explain(case_of(task).x[-1:].to(str(task["device"])))


_WARM: set[tuple[object, ...]] = set()
