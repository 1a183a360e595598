"""How far methods are ahead of one of them, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proofmap.bench.table import Table, interval

__all__ = ["against"]


def against(table: Table, rival: str, methods: Sequence[str]) -> str:
    """Markdown: the mean difference of each metric to the rival's on the same samples, above 0 where it is better.

    The 95 % interval is a bootstrap over samples; where it holds 0, the two are not told apart.
    """
    labels = [column.label for column in table.columns]
    lines = [f"| ahead of {rival} by | {' | '.join(labels)} |", "| --- |" + " ---: |" * len(labels)]
    for method in methods:
        cells = []
        for column in table.columns:
            ours, theirs = (table.values[one].get(column.name) for one in (method, rival))
            if ours is None or theirs is None:
                cells.append("n/a")
                continue
            ahead = (1 if column.higher else -1) * (ours - theirs)
            low, high = interval(ahead)
            cells.append(f"{np.nanmean(ahead):.4f} [{low:.4f}, {high:.4f}]")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
