"""What `proofmap explain` says of an explanation: a line for people, a record for programs, an origin in its file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from proofmap.cli.options import shared_options as o
from proofmap.cli.options.samples_and_balls import Case
from proofmap.explainers import Explanation, Origin
from proofmap.explainers.explanation import rounded
from proofmap.sources import Model
from proofmap.text.figure_titles import known
from proofmap.text.group_places import largest
from proofmap.text.proven_ranks import MOST, ranks, searched
from proofmap.text.wording import around, beside, bound_name, confidence, known_side, noise, reached_name
from proofmap.verify.objective import decides

__all__ = ["line", "origin", "plain", "record", "stems"]

_LONGEST = 160  # characters of a stem: with what is put before and behind it, a file's name has at most 255
_START, _END = 110, 49  # of which so many are kept of a longer one, with "-" between them


def stems(names: Sequence[str]) -> list[str]:
    """A file's name for each sample: its own without an ending, numbered where another has it already."""
    distinct: dict[str, None] = {}
    last: Counter[str] = Counter()
    for name in names:
        stem = again = plain(re.sub(r"\.[A-Za-z0-9]+(?=#|$)", "", name))
        while again in distinct:
            last[stem] += 1
            again = f"{stem}-{last[stem] + 1}"
        distinct[again] = None
    return list(distinct)


def plain(name: str) -> str:
    """A name of letters, digits, points and dashes that every file system takes."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "input"
    return stem if len(stem) <= _LONGEST else f"{stem[:_START]}-{stem[-_END:]}"


def origin(case: Case, model: Model) -> Origin:
    """Where an input and its explanation come from, for whoever has the file alone."""
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    columns = case.columns if len(case.columns or ()) == case.x[0].numel() else None  # of a row
    return Origin(model.source, (case.source(),), (case.label,), model.classes, columns, made)


def decided(case: Case, e: Explanation, model: Model) -> str:
    """The class that was predicted, and whether it is the label."""
    return f"{model.title(int(e.predicted))}{beside(case.label, int(e.predicted), model.title)}"


def line(case: Case, e: Explanation, model: Model) -> str:
    """What is known about an input, in one line."""
    aim = int(e.target)
    subject = f"{case.name}: {decided(case, e, model)}"
    if e.opposite is not None and aim == int(e.overlap.target):
        return f"{subject}; it is {model.title(aim)} already: nothing is asked"
    if e.opposite is not None:
        adding, removing = (
            f"{known_side(side, sign='<=')} by {how}, {'proven' if float(side.full) < 0 else 'undecided'}"
            for side, how in ((e.overlap, "adding"), (e.opposite, "removing"))
        )
        return f"{subject}; towards {model.title(aim)}, {_ball(case, e)}: AO(B) {adding}; {removing}{known(e, 0)}"
    other = "" if aim == int(e.predicted) else f", explained as {model.title(aim)}, which is not the prediction"
    return f"{subject}{other}; {_ball(case, e)}: {_meaning(e)}{known(e, 0)}"


def _ball(case: Case, e: Explanation) -> str:
    if case.boxed:
        return "the file's box"
    if isinstance(case.ball.eps, str):
        why = "the radius proven" if _radius(e) else "as no radius is proven: give --eps"
        return f"{around(e.settings)} ({why})"
    return around(e.settings)


def _radius(e: Explanation) -> Any:
    eps = e.settings["eps"]
    return eps[0] if isinstance(eps, list) else eps


def _meaning(e: Explanation) -> str:
    value = float(e.overlap.full)
    shown, side = rounded(value, e.guarantee), known_side(e.overlap, sign="<=")
    objective = e.settings.get("objective", "margin")
    if e.guarantee == "sampled" and not decides(objective):
        return f"the objective {objective!r} >= {shown}, which decides no class: nothing is proven"
    match e.guarantee:
        case "certified" if value < 0:
            return f"AO(B) {side}, proven: no input of the ball is classified otherwise"
        case "certified" if float(e.overlap.nominal) > 0:
            return f"AO(B) {side}, refuted: the input itself is classified otherwise"
        case "certified" if float(e.overlap.full_lower) > 0:
            return f"AO(B) {side}, refuted: an input of the ball is classified otherwise"
        case "certified":
            return f"AO(B) {side}, undecided: an input of the ball may be classified otherwise, or none"
        case "probable":
            answer = "undecided" if value >= 0 else "in the whole ball most copies are classified so"
            sure = f"with probability {confidence(e.settings)}, {noise(e.settings)}"
            return f"smoothed AO(B) <= {shown} {sure}: {answer}; nothing is proven of the network itself"
        case "sampled" if value > 0:
            return f"AO(B) >= {shown}, refuted: a sample of the ball is classified otherwise"
        case "sampled":
            return f"AO(B) >= {shown}: no sample of the ball is classified otherwise; nothing is proven"
        case _:
            return f"AO(B) about {shown}: an estimate; nothing is proven"


def record(case: Case, e: Explanation, model: Model, file: Path, picture: Path | None) -> dict[str, Any]:
    """What is known about an input, for a program."""
    sides = {"": e.overlap, **({} if e.opposite is None else {"opposite": e.opposite})}
    objective = e.settings.get("objective", "margin")
    met = sides if searched(e) else {}
    return {
        "name": case.name,
        "label": case.label,
        "predicted": int(e.predicted),
        "target": int(e.target),
        "class": model.title(int(e.target)),
        **{bound_name(e.guarantee, objective, part): o.finite(float(side.full)) for part, side in sides.items()},
        **{reached_name(objective, part): o.finite(float(side.full_lower)) for part, side in met.items()},
        "guarantee": e.guarantee,
        **({"level": e.settings["level"]} if e.guarantee == "probable" else {}),
        "certified": bool(e.proven),
        **({"rigorous": bool(e.settings.get("rigorous"))} if e.guarantee == "certified" else {}),
        "eps": None if case.boxed else _radius(e),
        "norm": e.settings["norm"],
        "domain": e.settings["domain"],
        "seconds": e.seconds,
        "file": str(file),
        "picture": None if picture is None else str(picture),
        "largest": _largest(e),
    }


def _largest(e: Explanation) -> list[dict[str, Any]] | None:
    """The largest scores, the numbers between which the true ones lie, and whether these are proven to be the largest.

    None where no inputs were searched that reach the overlaps: nothing is then known of the scores.
    """
    if not searched(e):
        return None
    proven, intervals = ranks(e, 0).proven, e.intervals[0].tolist()
    mask = e.mask[0].cpu().numpy()
    names = None if e.origin is None or e.x.ndim != 2 else e.origin.columns
    return [
        {
            "group": group,
            "where": where,
            "score": o.finite(float(e.scores[0, group])),
            "lower_proven": o.finite(intervals[group][0]),
            "upper_proven": o.finite(intervals[group][1]),
            "proven_to_matter_most": group in proven,
        }
        for group, where in largest(e.scores[0].double().cpu().numpy(), mask, MOST, names)
    ]
