"""Layer-wise relevance propagation: a logit shared out, layer by layer, among what it was computed from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, Task
from proofmap.explainers.baselines.propagation import Inputs, carried, chosen, kind_of, transposed, values_at
from proofmap.graph import Node
from proofmap.graph.ops import WEIGHTED, compute
from proofmap.settings import number

__all__ = ["LRP"]

_SUMS = ("add", "sum", "avg_pool", "adaptive_avg_pool")  # without a weight; what else has none moves entries
_FILTERS = ("conv", "conv_transpose")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LRP(Baseline):
    """Relevance R = f_c at the output, and from z_k = Σ_j a_j w_jk + b_k back to a:

        R_j = Σ_k a_j w_jk / (z_k + epsilon · sign z_k) · R_k          (the ε-rule, Bach et al. 2015).

    Convolutions have w + gamma · max(w, 0) in place of w, in numerator and denominator, where z_k > 0 and a_j > 0 (the
    γ-rule, Montavon et al. 2019, with its gamma); other signs by symmetry: contributions of the sign of z_k count
    1 + gamma times. gamma = 0 is the ε-rule everywhere. A bias keeps its share and is not enlarged, as in Captum.

    Functions of one scalar pass relevance on, a maximum to its winner. Batch norm is taken into the layer before it.
    """

    epsilon: float = number(1e-6, "a finite number above 0", lambda epsilon: epsilon > 0)
    gamma: float = number(0.25, "a finite number of at least 0", lambda gamma: gamma >= 0)

    def _maps(self, task: Task) -> Tensor:
        values = values_at(task.graph, task.x, type(self).__name__)

        def rule(node: Node, inputs: Inputs, relevance: Tensor) -> Inputs:
            if kind_of(node) == "scalar":
                return (relevance,)
            if node.op in _FILTERS and self.gamma > 0:
                return (self._enlarged(node, inputs[0], values[node.name], relevance),)
            if node.op in WEIGHTED or node.op in _SUMS:
                parts = transposed(node, inputs, self._over(relevance, values[node.name]))
                return tuple(value * part for value, part in zip(inputs, parts, strict=True))
            return transposed(node, inputs, relevance)

        start = chosen(task, values) * values[task.graph.output]
        return carried(task, values, start, rule)

    def _over(self, relevance: Tensor, z: Tensor) -> Tensor:
        """R / (z + epsilon · sign z), with sign 0 = 1."""
        return relevance / (z + torch.where(z < 0, -self.epsilon, self.epsilon))

    def _enlarged(self, node: Node, a: Tensor, z: Tensor, relevance: Tensor) -> Tensor:
        """The γ-rule: where a and z agree in sign the positive weights are enlarged, elsewhere the negative ones."""
        weight = node.weight
        assert weight is not None
        raised, lowered = (
            replace(node, weight=weight + self.gamma * part, bias=None)
            for part in (weight.clamp(min=0), weight.clamp(max=0))
        )
        halves = (a.clamp(min=0), a.clamp(max=0))
        back = torch.zeros_like(a)
        for sign, pair in ((z > 0, (raised, lowered)), (z < 0, (lowered, raised))):
            total = sum((compute(one, half) for one, half in zip(pair, halves, strict=True)), torch.zeros_like(z))
            total = total if node.bias is None else total + node.bias
            share = torch.where(sign, self._over(relevance, total), 0.0)
            for one, half in zip(pair, halves, strict=True):
                back += half * transposed(one, (half,), share)[0]
        return back
