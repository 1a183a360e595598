"""The facts of a sample's sufficient set, in the form that `text/reason_wording.py` puts into words."""

import torch

from proofmap.errors import InputError
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import noun
from proofmap.text.output_wording import explained_output
from proofmap.text.reason_wording import ReasonFacts
from proofmap.text.wording import around


def reason_facts(e: Explanation, k: int = 0, ball: str | None = None) -> ReasonFacts:
    """Return the facts of sample k. ball: its words, by default with its radius.

    Groups that the sample does not have are not counted.
    """
    assert e.reason is not None
    reason, mask = e.reason, e.mask[k if len(e.mask) > 1 else 0]
    groups = int((torch.bincount(mask.flatten(), minlength=e.scores.shape[1]) > 0).sum())
    necessary = reason.necessary[k]
    within = e.settings.get("within")
    return ReasonFacts(
        groups=groups,
        kept=int(reason.size[k]),
        necessary=int(necessary.sum()),
        within_rounding=int((necessary & ~reason.adversarial[k]).sum()),
        least=int(reason.least[k]),
        noun=noun(e),
        ball=f"the ball ({around(e.settings, k, len(e))})" if ball is None else ball,
        rigorous=bool(e.settings.get("rigorous")),
        output=explained_output(e.settings),
        within=float(within) if isinstance(within, int | float) else None,
    )


def shown_group(e: Explanation, k: int, group: int | None = None) -> int | None:
    """Return the necessary group of sample k whose point is shown: by default the one with the largest value.

    None if no group is necessary.

    Raises:
        InputError: The group is not necessary in this sample.
    """
    assert e.reason is not None
    reason = e.reason
    own = (reason.point_of[:, 0] == k).nonzero().flatten()
    if group is None:
        return int(reason.point_of[own[reason.values[own].argmax()], 1]) if len(own) else None
    if not 0 <= group < reason.necessary.shape[1] or not bool(reason.necessary[k, group]):
        known = reason.necessary[k].nonzero().flatten().tolist()
        some = ", ".join(map(str, known[:5])) + ("…" if len(known) > 5 else "")
        raise InputError(
            f"got group {group} of sample {k}, expected a group that is necessary there: {some or 'it has none'}"
        )
    return group
