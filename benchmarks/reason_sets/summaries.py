"""Means of stored rows as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import median

from .rows import numbers

Stored = Mapping[str, str]
_COMPARED = ("verix_size", "verix_s", "fame_size", "fame_s", "kept", "cpu_s")


def mean(values: Sequence[float]) -> float:
    """Return the mean, or nan for no values."""
    return sum(values) / len(values) if values else nan


def sizes(rows: Sequence[Stored]) -> str:
    """Return a table with a line for each network, groups and radius."""
    lines = []
    for name in dict.fromkeys((row["network"], row["groups"], row["eps"]) for row in rows):
        some = [row for row in rows if (row["network"], row["groups"], row["eps"]) == name]
        done = [row for row in some if row["kept"] != ""]
        if not done:
            continue
        kept, undecided = numbers(done, "kept"), numbers(done, "undecided")
        lines.append(
            {
                "network": name[0],
                "groups": f"{name[1]} ({done[0]['of']})",
                "ε": f"{float(name[2]):.4g}",
                "images": len(done),
                "refused": len(some) - len(done),
                "kept": f"{mean(kept):.1f}",
                "undecided": f"{mean(undecided):.2f}",
                "share undecided": f"{sum(undecided) / max(1.0, sum(kept)):.1%}",
                "minimal": sum(value == 0 for value in undecided),
                "smallest": sum(float(row["least"]) >= float(row["kept"]) for row in done),
                "within rounding": f"{mean(numbers(done, 'within_rounding')):.2f}",
                "CPU s, mean": f"{mean(numbers(done, 'cpu_s')):.2f}",
                "median": f"{median(numbers(done, 'cpu_s')):.2f}",
                "largest": f"{max(numbers(done, 'cpu_s')):.2f}",
            }
        )
    return markdown(lines)


def published(rows: Sequence[Stored]) -> str:
    """Return the sizes, and the means beside the published ones."""
    return f"{beside_published(rows)}\n\n{sizes(rows)}"


def checks(rows: Sequence[Stored]) -> str:
    """Return what the second check found for each network."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in rows):
        some = [row for row in rows if row["network"] == network]
        lines.append(
            {
                "network": network,
                "images": len(some),
                "largest margin, attack": f"{max(numbers(some, 'attack')):.2g}",
                "largest bound, HiGHS": f"{max(numbers(some, 'milp_bound')):.2g}",
                "points": f"{sum(numbers(some, 'points')):.0f}",
                "least margin of a point": f"{min(numbers(some, 'least_point')):.2g}",
                "groups solved": f"{sum(numbers(some, 'milp_groups')):.0f}",
                "least maximum": f"{min(numbers(some, 'milp_least_maximum')):.2g}",
                "below 0": f"{sum(numbers(some, 'milp_below_zero')):.0f}",
                "rounding": f"{max(numbers(some, 'rounding')):.2g}",
                "wrong claims": f"{sum(numbers(some, 'wrong')):.0f}",
                "CPU s, attack": f"{sum(numbers(some, 'attack_cpu_s')):.0f}",
                "CPU s, HiGHS": f"{sum(numbers(some, 'milp_cpu_s')):.0f}",
            }
        )
    return markdown(lines)


def orders(rows: Sequence[Stored]) -> str:
    """Return the mean size by order for each network."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    names = list(dict.fromkeys(row["order"] for row in rows))
    lines = []
    for name in names:
        line: dict[str, object] = {"order": name}
        for network in networks:
            done = [{row["index"] for row in rows if (row["network"], row["order"]) == (network, one)} for one in names]
            common = set.intersection(*done)
            some = [row for row in rows if (row["order"], row["network"]) == (name, network) and row["index"] in common]
            line |= {
                f"{network}, {len(some)} images": f"{mean(numbers(some, 'kept')):.1f}",
                f"{network}, undecided": f"{sum(numbers(some, 'undecided')):.0f}",
                f"{network}, CPU s": f"{mean(numbers(some, 'cpu_s')):.2f}",
            }
        lines.append(line)
    return markdown(lines)


def schools(rows: Sequence[Stored]) -> str:
    """Return the mean size by map, and how many of a map's first groups are necessary."""
    lines = []
    for key in dict.fromkeys((row["groups"], row["network"], row["eps"], row["map"]) for row in rows):
        some = [row for row in rows if (row["groups"], row["network"], row["eps"], row["map"]) == key]
        own, default = (numbers(some, f"top_necessary_{name}") for name in ("own", "default"))
        lines.append(
            {
                "groups": key[0],
                "network": key[1],
                "ε": key[2],
                "order": key[3],
                "images": len(some),
                "kept": f"{mean(numbers(some, 'kept')):.2f}",
                "undecided": f"{sum(numbers(some, 'undecided')):.0f}",
                "top necessary, own set": f"{mean(own):.0%}" if own else "-",
                "top necessary, default set": f"{mean(default):.0%}" if default else "-",
                "CPU s": f"{mean(numbers(some, 'cpu_s')):.2f}",
            }
        )
    return markdown(lines)


def beside_published(rows: Sequence[Stored]) -> str:
    """Return a table with the published means, over the images that both published methods report."""
    lines = []
    for name in dict.fromkeys((row["network"], row["groups"]) for row in rows if row["groups"] == "pixels"):
        some = [row for row in rows if (row["network"], row["groups"]) == name]
        for label, right in (("all", False), ("classified right", True)):
            both = [row for row in some if row["verix_size"] and row["fame_size"] and row["kept"] != ""]
            done = [row for row in both if row["label"] == row["predicted"] or not right]
            if done:
                columns = {column: mean(numbers(done, column)) for column in _COMPARED}
                minimal = sum(row["undecided"] == "0" for row in done)
                lines.append(
                    {
                        "network": name[0],
                        "images": f"{len(done)}, {label}",
                        "VeriX+": f"{columns['verix_size']:.1f} px, {columns['verix_s']:.1f} s",
                        "FAME": f"{columns['fame_size']:.1f} px, {columns['fame_s']:.1f} s",
                        "ours": f"{columns['kept']:.1f} px, {columns['cpu_s']:.2f} s",
                        "subset-minimal": minimal,
                    }
                )
    return markdown(lines)


def markdown(lines: Sequence[Mapping[str, object]]) -> str:
    """Return rows as a Markdown table."""
    if not lines:
        return "no rows"
    head = list(lines[0])
    marks = ["---" if isinstance(lines[0][name], str) and not _numeric(lines[0][name]) else "---:" for name in head]
    cells = [head, marks, *([str(line[name]) for name in head] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _numeric(value: object) -> bool:
    return str(value).replace(".", "").replace("-", "").replace("%", "").strip().isdigit()


def put(page: Path, name: str, text: str) -> None:
    """Replace the table after the line `<!-- reasons NAME -->` of a page."""
    head, mark, rest = page.read_text(encoding="utf-8").partition(f"<!-- reasons {name} -->\n")
    if not mark:
        return
    lines = rest.split("\n")
    while lines and (not lines[0] or lines[0].startswith("|")):
        lines.pop(0)
    page.write_text(f"{head}{mark}\n{text}\n\n" + "\n".join(lines), encoding="utf-8")
