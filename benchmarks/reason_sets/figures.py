"""Figures: our sizes against the published ones, and sufficient sets of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import proofmap as pm
from proofmap.reasons.reason import Reason

from .measure import case_of, sufficient
from .rows import Row

_PUBLISHED = (("verix_size", "VeriX+", "#8c6d31", "o"), ("fame_size", "FAME", "#0b7a75", "^"))


def scatter(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Write a figure with a panel for each network; images that are classified wrong have hollow marks."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure = Figure(figsize=(4.2 * len(networks), 4.2), layout="constrained")
    for axes, network in zip(figure.subplots(1, len(networks), squeeze=False)[0], networks, strict=True):
        some = [row for row in rows if row["network"] == network and row["groups"] == "pixels" and row["kept"] != ""]
        most = max(float(row[name]) for row in some for name, *_ in _PUBLISHED if row[name] != "") * 1.04
        axes.plot([0, most], [0, most], color="0.6", linewidth=1, zorder=0)
        for name, label, color, mark in _PUBLISHED:
            for right in (True, False):
                chosen = [row for row in some if row[name] != "" and (row["label"] == row["predicted"]) == right]
                axes.scatter(
                    [float(row[name]) for row in chosen],
                    [float(row["kept"]) for row in chosen],
                    s=18,
                    marker=mark,
                    facecolor=color if right else "none",
                    edgecolor=color,
                    linewidth=0.8,
                    label=f"{label}, {len(chosen)}" if right else f"{label}, classified wrong, {len(chosen)}",
                )
        axes.set(xlim=(0, most), ylim=(0, most), xlabel="pixels, published", ylabel="pixels, ours", aspect="equal")
        axes.set_title(network)
        axes.legend(fontsize=7, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def pictures(tasks: Sequence[Row], path: Path) -> None:
    """Write a figure with a row for each image: the image, three sufficient sets, and an adversarial example."""
    figure = Figure(figsize=(9.4, 1.95 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), 5, squeeze=False)
    for row, task in zip(panels, tasks, strict=True):
        case = case_of(task)
        x = case.x[int(str(task["index"]))][None]
        default = sufficient(task).explain(x)
        eva = pm.EVA(case.on("cpu"), case.ball(float(str(task["eps"]))), progress=False).explain(x)
        random = torch.rand(1, x[0].numel(), generator=torch.Generator().manual_seed(0))
        sets = [default, *(sufficient(task, order).explain(x) for order in (eva.scores, random))]
        row[0].imshow(x[0, 0], cmap="gray_r", vmin=0, vmax=1)
        row[0].set_title(f"class {int(default.predicted[0])}", fontsize=8)
        for axes, found, name in zip(row[1:4], sets, ("prices", "EVA", "random order"), strict=True):
            assert found.reason is not None
            axes.imshow(_colours(x[0, 0], found.reason))
            axes.set_title(f"{name}: {int(found.reason.size[0])} kept", fontsize=8)
        assert default.reason is not None
        group = int(default.reason.point_of[int(default.reason.values.argmax()), 1])
        point = default.reason.point(0, group)
        row[4].imshow(point[0], cmap="gray_r", vmin=0, vmax=1)
        y, column = divmod(group, x.shape[-1])
        row[4].plot([column], [y], "s", markersize=5, markerfacecolor="none", markeredgecolor="#d1495b")
        row[4].set_title(f"one pixel more: class {int(case.on('cpu')(point[None]).argmax())}", fontsize=8)
        for axes in row:
            axes.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def _colours(image: Tensor, reason: Reason) -> Tensor:
    """Return the image in light grey, and its kept pixels: necessary ones in green, undecided ones in orange."""
    shade = 1 - 0.25 * image
    colours = torch.stack([shade] * 3, -1)
    for marked, colour in ((reason.necessary[0], (0.04, 0.48, 0.46)), (reason.undecided[0], (0.93, 0.55, 0.14))):
        colours[marked.view_as(image)] = torch.tensor(colour)
    return colours
