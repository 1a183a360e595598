"""Output about sufficient and contrastive sets on the command line: a line for people, and a record for programs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from proofmap.cli.options import shared_options as o
from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_contrast import contrast_facts
from proofmap.explainers.statements.explained_inputs import variable_names
from proofmap.explainers.statements.explained_reason import reason_facts
from proofmap.explainers.statements.proven_ranks import is_sequence
from proofmap.text.contrast_wording import contrast_sentences, contrast_title
from proofmap.text.group_places import first_names, place
from proofmap.text.output_wording import explained_output, value_text
from proofmap.text.reason_wording import reason_sentences, title_clause


def reason_line(name: str, decided: str, e: Explanation, ball: str) -> str:
    """Return one line about the sufficient set of a sample: its decision, the kept groups and the proof."""
    return f"{name}: {_start(decided, e)}; {title_clause(reason_facts(e, 0, ball))}"


def contrast_line(name: str, decided: str, e: Explanation, ball: str, title: Callable[[int], str]) -> str:
    """Return one line about the contrastive set of a sample. title: the name of a class."""
    return f"{name}: {_start(decided, e)}; {contrast_title(contrast_facts(e, 0, ball, title))}"


def _start(decided: str, e: Explanation) -> str:
    """Return the decision, or the value of the explained output."""
    output = explained_output(e.settings)
    if output is not None and e.overlap.value is not None:
        return value_text(output, float(e.overlap.value[0]))
    return decided


def reason_record(e: Explanation) -> dict[str, Any]:
    """Return a JSON record of the sufficient set of an explanation of one sample."""
    assert e.reason is not None
    reason, facts = e.reason, reason_facts(e)
    kept = reason.kept[0].nonzero().flatten().tolist()
    close = reason.necessary[0] & ~reason.adversarial[0]
    return {
        "groups": facts.groups,
        "noun": facts.noun,
        "size": facts.kept,
        "no_set_smaller_than": facts.least,
        "subset_minimal": facts.minimal,
        "smallest": facts.smallest,
        "kept": kept,
        "where": [where(e, group) for group in kept],
        "necessary": reason.necessary[0].nonzero().flatten().tolist(),
        "undecided": reason.undecided[0].nonzero().flatten().tolist(),
        "decided_within_rounding": close.nonzero().flatten().tolist(),
        "free_upper_proven": o.finite(float(reason.bound[0])),  # on the ball in which only the free groups move
        "limit": o.finite(float(reason.limit[0])),
        "seconds": float(reason.seconds[0]),
        "said": reason_sentences(facts),
    }


def contrast_record(e: Explanation, title: Callable[[int], str]) -> dict[str, Any]:
    """Return a JSON record of the contrastive sets of an explanation of one sample. title: the name of a class."""
    assert e.contrast is not None
    contrast, facts = e.contrast, contrast_facts(e, name=title)
    sets = [groups.nonzero().flatten().tolist() for groups in contrast.sets]
    return {
        "groups": facts.groups,
        "noun": facts.noun,
        "found": facts.found,
        "size": facts.size if facts.found else None,
        "no_set_smaller_than": None if facts.impossible else facts.least,
        "smallest": facts.smallest,
        "no_set_possible": facts.impossible,
        "counted_by_solver": facts.counted,
        "sets": [
            {
                "changed": groups,
                "where": [where(e, group) for group in groups],
                "class": int(reached) if int(reached) >= 0 else None,
                "value": o.finite(float(value)),
            }
            for groups, reached, value in zip(sets, contrast.classes, contrast.values, strict=True)
        ],
        "limit": o.finite(float(contrast.limit[0])),
        "seconds": float(contrast.seconds[0]),
        "said": contrast_sentences(facts),
    }


def where(e: Explanation, group: int) -> str:
    """Describe the position of a group of an explanation of one sample."""
    member = e.mask[0].cpu().numpy() == group
    if is_sequence(e):
        return place(member[:, 0], [f"token {at}" for at in range(len(member))])
    names = variable_names(e)
    if names is None and e.origin is not None and e.x.ndim == 2:
        names = None if e.origin.columns is None else list(e.origin.columns)
    if names is not None:
        return first_names(list(dict.fromkeys(names[k] for k in np.flatnonzero(member))))
    return place(member)
