"""Proven ranks: the groups that are proven to have the largest scores, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from proofmap.text.wording import plural

if TYPE_CHECKING:
    from proofmap.explainers.explanation import Explanation

MAX_LARGEST = 10  # at most this many scores are called the largest, and at most half of them


@dataclass(frozen=True)
class Ranks:
    """The groups with the largest scores of one sample: those with a proof of their rank, and those without."""

    count: int  # the number of groups in the sample
    most: int  # the number of groups that are called the largest
    proven: tuple[int, ...]  # groups that are proven to be among them, the largest score first
    open: tuple[int, ...]  # groups whose scores are among the largest, but without a proof
    noun: str  # the word for a group: "pixel", "cell", "column"

    @property
    def sentence(self) -> str:
        """A sentence such as "these 10 of 144 cells are proven to matter most"; "" if nothing is proven."""
        proven = len(self.proven)
        if not proven:
            return ""
        some, verb = f"{proven} of {plural(self.count, self.noun)}", "is" if proven == 1 else "are"
        if proven == self.most:
            return f"{'this' if proven == 1 else 'these'} {some} {verb} proven to matter most"
        return f"{some} {verb} proven to be among the {self.most} that matter most"


def ranks(e: Explanation, k: int) -> Ranks:
    """Find the largest scores of sample k by absolute value: ten, or half of them if there are fewer than twenty."""
    mask = e.mask[k if len(e.mask) > 1 else 0]
    present = torch.bincount(mask.flatten(), minlength=e.scores.shape[1]) > 0
    count = int(present.sum())
    most = min(MAX_LARGEST, count // 2)
    sizes = e.scores[k].double().nan_to_num(0.0).abs().masked_fill(~present, -1.0)
    order = sizes.argsort(descending=True, stable=True).tolist()
    certain = (e[k].top(most)[0] & present).tolist() if most else [False] * len(order)
    proven = tuple(group for group in order if certain[group])
    return Ranks(count, most, proven, tuple(group for group in order[:most] if not certain[group]), noun(e))


def standing(e: Explanation, k: int) -> str:
    """Say how many scores of sample k differ significantly from their neighbours in rank, where scores are means.

    For instance "3 of 144 cells differ significantly from their neighbours in rank (95 %); the others are ties".
    """
    if e.errors is None:
        return ""
    mask = e.mask[k if len(e.mask) > 1 else 0]
    ties = e.ties[k][mask.unique()]
    apart, of = int((~ties).sum()), plural(len(ties), noun(e))
    one = apart == 1
    verb, whose = ("differs", "its") if one else ("differ", "their")
    differ = f"{verb} significantly from {whose} neighbours in rank (95 %)"
    if not apart:
        return f"none of {of} {differ}: all are ties"
    return f"all {of} {differ}" if apart == len(ties) else f"{apart} of {of} {differ}; the others are ties"


def searched(e: Explanation) -> bool:
    """Return whether scores have lower bounds: an input reaches more than x itself, or the drops were bounded.

    Otherwise no score is proven to be above 0.
    """
    sides = [side for side in (e.overlap, e.opposite) if side is not None and side.certified]
    return any(side.drops is not None or bool((side.full_lower > side.nominal).any()) for side in sides)


def is_series(e: Explanation) -> bool:
    """Return whether the groups are windows of a series (T,) or (C, T)."""
    return e.x.ndim in (2, 3) and str(e.settings.get("groups")).startswith("Windows(")


def is_sequence(e: Explanation) -> bool:
    """Return whether the samples are sequences (T, D) of tokens, each with all of its D features in one group.

    Cells of a grid may also be whole rows, but a grid is for images.
    """
    groups = str(e.settings.get("groups"))
    if e.x.ndim != 3 or groups.startswith(("Grid(", "Windows(")):
        return False
    whole = e.x.shape[2] > 1 and e.scores.shape[1] > 1 and bool((e.mask == e.mask[..., :1]).all())
    return whole or groups.startswith("Tokens(")


def noun(e: Explanation) -> str:
    """Return the word for a group: "pixel", "cell", "column", ..."""
    count = len(e.mask[0].unique())
    if is_series(e):
        return "window"
    if is_sequence(e):
        return "token" if count == e.x.shape[1] else "group"
    if e.x.ndim == 2:
        return "column" if count == e.x.shape[1] else "group"
    if count == e.x.shape[-2:].numel():
        return "pixel"
    kind = str(e.settings.get("groups")).partition("(")[0]
    return {"Grid": "cell", "Superpixels": "superpixel"}.get(kind, "group")
