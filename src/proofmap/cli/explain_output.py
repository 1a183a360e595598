"""Output of `proofmap explain`: a line for people, a record for programs, and the origin that its file stores."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from proofmap.cli.options import shared_options as o
from proofmap.cli.options.samples_and_balls import SampleInBall
from proofmap.cli.reason_output import contrast_line, contrast_record, reason_line, reason_record
from proofmap.explainers import Explanation, Origin
from proofmap.explainers.statements.explained_verdict import bounds_text, verdict_of
from proofmap.explainers.statements.proven_ranks import MAX_LARGEST, ranks, searched
from proofmap.plots.figure_titles import known, output_summary
from proofmap.sources import Model
from proofmap.text.group_places import largest
from proofmap.text.output_wording import explained_output
from proofmap.text.verdict_wording import TEXT_SIGNS, sentence
from proofmap.text.wording import around, beside, bound_name, reached_name

_MAX_STEM = 160  # characters of a stem, so that the whole file name has at most 255
_STEM_START, _STEM_END = 110, 49  # characters that are kept at both ends of a longer stem, with "-" between them


def stems(names: Sequence[str]) -> list[str]:
    """Return a file stem for each sample: its name without extension, with a number if the stem is taken."""
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
    """Return the name with only letters, digits, dots, underscores and dashes, valid on every file system."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "input"
    return stem if len(stem) <= _MAX_STEM else f"{stem[:_STEM_START]}-{stem[-_STEM_END:]}"


def origin(case: SampleInBall, model: Model) -> Origin:
    """Return the origin of an input and its explanation, which the .proofmap file stores."""
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    columns = case.columns if len(case.columns or ()) == case.x[0].numel() else None  # names of a row's values
    return Origin(model.source, (case.source(),), (case.label,), model.classes, columns, made)


def decided(case: SampleInBall, e: Explanation, model: Model) -> str:
    """Return the predicted class, and whether it is the label if one is known."""
    return f"{model.title(int(e.predicted))}{beside(case.label, int(e.predicted), model.title)}"


def line(case: SampleInBall, e: Explanation, model: Model) -> str:
    """Return one line about an explained input."""
    aim, verdict = model.title(int(e.target)), verdict_of(e)
    if e.reason is not None:
        return reason_line(case.name, decided(case, e, model), e, _ball(case, e))
    if e.contrast is not None:
        return contrast_line(case.name, decided(case, e, model), e, _ball(case, e), model.title)
    subject, answer = f"{case.name}: {decided(case, e, model)}", sentence(verdict, _ball(case, e), aim=aim)
    if verdict.kind == "own":
        return f"{subject}; {answer}"
    output = explained_output(e.settings)
    if output is not None:
        return f"{case.name}: {output_summary(e, 0, output, _ball(case, e))}{known(e, 0)}"
    bounds = bounds_text(e, name="AO(B)", signs=TEXT_SIGNS)
    if e.opposite is not None:
        raised, lowered = bounds
        return f"{subject}; towards {aim}; {answer}; {raised} by raising, {lowered} by lowering{known(e, 0)}"
    other = "" if int(e.target) == int(e.predicted) else f", explained as {aim}, which is not the prediction"
    return f"{subject}{other}; {answer}; {bounds[0]}{known(e, 0)}"


def _ball(case: SampleInBall, e: Explanation) -> str:
    if case.boxed:
        return "the file's box"
    why = ""
    if isinstance(case.ball.eps, str):
        why = "; the largest proven radius" if _radius(e) else "; no radius is proven: give --eps"
    return f"the ball ({around(e.settings)}{why})"


def _radius(e: Explanation) -> Any:
    eps = e.settings["eps"]
    return eps[0] if isinstance(eps, list) else eps


def _radii(case: SampleInBall, e: Explanation) -> dict[str, Any]:
    """Return the radius of each input by its name; None for one that stays fixed."""
    return {name: _radius(e) if eps == "auto" else eps for name, eps in case.eps.items()}


def record(case: SampleInBall, e: Explanation, model: Model, file: Path, picture: Path | None) -> dict[str, Any]:
    """Return a JSON record about an explained input."""
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
        "eps": None if case.boxed else _radius(e) if case.several is None else _radii(case, e),
        "norm": e.settings["norm"],
        "domain": e.settings["domain"] if case.several is None else case.domain,
        "seconds": e.seconds,
        "file": str(file),
        "picture": None if picture is None else str(picture),
        "largest": _largest(e),
        **({} if e.reason is None else {"reason": reason_record(e)}),
        **({} if e.contrast is None else {"contrast": contrast_record(e, model.title)}),
    }


def _largest(e: Explanation) -> list[dict[str, Any]] | None:
    """Return the largest scores, their proven intervals, and whether they are proven to be the largest.

    None without a search for lower bounds of the overlaps: nothing is then proven about the scores.
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
        for group, where in largest(e.scores[0].double().cpu().numpy(), mask, MAX_LARGEST, names)
    ]
