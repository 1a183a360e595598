"""α-CROWN on members: rows of their own for the hidden bounds that help a member most, started where the ball ended.

The optimised forms of B bound a hidden entry on every member, but use the relaxations and slopes of B. The gain from a
member's own relaxations is unknown. It is estimated as the amount by which freezing the group has already moved the
bounds of the entry's interval. To first order, this changes the member's output bound by this amount times the gradient
of B's output bound (`interval_gradients`). If the estimate exceeds a small share of the output's range, the bound gets
a row of the member's own, with the member's relaxations and B's slopes. If it exceeds ten times that share, its slopes
are optimised as well.
"""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from proofmap.bounds import node_facts
from proofmap.bounds.alpha.optimised_rows import OptimisedRows
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.rules import Interval

_OWN_ROW_GAIN = 1e-4  # share of the output's range: an estimated gain above this gets a row of the member's own
_OWN_SLOPES_GAIN = 1e-3  # an estimated gain above this share gets optimised slopes as well


def member_bounder(
    state: BoundState, settings: BackwardPass, ball: OptimisedRows, case: Tensor, gradients: Mapping[str, Interval]
) -> BackwardBounder:
    """Return the bounder of members whose rows start where those of `ball` ended. Case c is a member of case[c].

    It first tightens the hidden bounds with the largest gain, layer by layer, so that tighter bounds count for the next
    layer.
    """
    optimised = ball.continued(state, case)
    fixed = replace(optimised, steps=0)  # shares the relaxations that are already collected
    bounder, fixed_bounder = (BackwardBounder(state, settings, rows) for rows in (optimised, fixed))
    for node in filter(node_facts.is_nonlinear, state.graph.nodes):
        for name, rows in state.unstable(node):
            chosen = _worthwhile_rows(state, name, rows, ball, case, gradients[name]) if name in gradients else []
            for own, with_slopes in chosen:
                state.tighten(name, (bounder if with_slopes else fixed_bounder).tighten(name, own))
            if chosen:
                state.relax(node)
                optimised.forget(node.name)
    return bounder


def _worthwhile_rows(
    state: BoundState, name: str, rows: BoundRows, ball: OptimisedRows, case: Tensor, gradients: Interval
) -> list[tuple[BoundRows, bool]]:
    """Return the bounds that get rows of their own, each group with a flag: whether its slopes are optimised."""
    at = (case[rows.case], rows.entry)
    whole, member = ball.state.interval(name), state.interval(name)
    whole, member = (one.like((len(one.lower), -1)) for one in (whole, member))
    whole, member, gradient = whole.pick(at), member.pick(rows.at), gradients.pick(at)
    moved = (whole.upper - member.upper) + (member.lower - whole.lower)
    chosen = []
    for side, slope in ((1, gradient.upper), (-1, -gradient.lower)):
        gain = slope * moved
        for with_slopes in (False, True):
            some = (gain > _OWN_ROW_GAIN) & (gain.gt(_OWN_SLOPES_GAIN) == with_slopes)
            if bool(some.any()):
                chosen.append((replace(rows[some], side=side), with_slopes))
    return chosen
