"""Our sizes against the published ones, one point for each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

_PUBLISHED = (("verix_size", "VeriX+", "#8c6d31", "o"), ("fame_size", "FAME", "#0b7a75", "^"))


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
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
