"""The facts of a sample's contrastive sets, in the form that `text/contrast_wording.py` puts into words."""

from collections.abc import Callable

import torch

from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.proven_ranks import noun
from proofmap.text.contrast_wording import ContrastFacts
from proofmap.text.output_wording import explained_output
from proofmap.text.wording import around


def contrast_facts(
    e: Explanation, k: int = 0, ball: str | None = None, name: Callable[[int], str] | None = None
) -> ContrastFacts:
    """Return the facts of sample k.

    ball: its words, by default with its radius. name: the name of a class, by default "class 4".
    """
    assert e.contrast is not None
    contrast, mask = e.contrast, e.mask[k if len(e.mask) > 1 else 0]
    groups = int((torch.bincount(mask.flatten(), minlength=e.scores.shape[1]) > 0).sum())
    sizes = contrast.sets[contrast.owner == k].sum(1).tolist()
    within, decides = e.settings.get("within"), e.settings.get("objective", "margin") == "margin"
    named = name or "class {}".format
    predicted, aim, reached = int(e.predicted[k]), int(e.target[k]), int(contrast.reached[k])
    return ContrastFacts(
        groups=groups,
        size=sizes[0] if sizes else 0,
        least=groups + 1 if bool(contrast.impossible[k]) else int(contrast.least[k]),
        further=tuple(sizes[1:]),
        counted=bool(contrast.counted[k]),
        noun=noun(e),
        ball=f"the ball ({around(e.settings, k, len(e))})" if ball is None else ball,
        rigorous=bool(e.settings.get("rigorous")),
        before=named(predicted) if decides else None,
        after=named(reached) if decides and reached >= 0 else None,
        aim=named(aim) if decides and aim != predicted else None,
        output=explained_output(e.settings),
        within=float(within) if isinstance(within, int | float) else None,
    )
