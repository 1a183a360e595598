"""LRP, layer-wise relevance propagation (Bach et al. 2015), with the ε-rule and the γ-rule."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.propagation import (
    Inputs,
    class_indicator,
    node_values,
    operation_kind,
    propagate,
    vector_jacobian,
)
from proofmap.graph import Node
from proofmap.graph.ops import WEIGHTED, compute
from proofmap.settings import number

_UNWEIGHTED_SUMS = (
    "add",
    "sum",
    "avg_pool",
    "adaptive_avg_pool",
)  # other operations without a weight only move entries
_CONVOLUTIONS = ("conv", "conv_transpose")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LRP(Baseline):
    """Relevance R = f_c at the output, propagated from z_k = Σ_j a_j w_jk + b_k back to a:

        R_j = Σ_k a_j w_jk / (z_k + epsilon · sign z_k) · R_k          (the ε-rule, Bach et al. 2015).

    Convolutions use w + gamma · max(w, 0) in place of w, in numerator and denominator, where z_k > 0 and a_j > 0 (the
    γ-rule, Montavon et al. 2019, with their gamma). Other signs follow by symmetry: contributions with the sign of z_k
    are weighted by 1 + gamma. gamma = 0 is the ε-rule everywhere. A bias keeps its share and is not enlarged, as in
    Captum.

    Functions of one scalar pass relevance on unchanged, a maximum to its winner. Batch norm is merged into the layer
    before it.
    """

    epsilon: float = number(1e-6, "a finite number above 0", lambda epsilon: epsilon > 0)
    gamma: float = number(0.25, "a finite number of at least 0", lambda gamma: gamma >= 0)

    def _maps(self, task: BaselineBatch) -> Tensor:
        values = node_values(task.graph, task.x, type(self).__name__)

        def rule(node: Node, inputs: Inputs, relevance: Tensor) -> Inputs:
            if operation_kind(node) == "scalar":
                return (relevance,)
            if node.op in _CONVOLUTIONS and self.gamma > 0:
                return (self._gamma_rule(node, inputs[0], values[node.name], relevance),)
            if node.op in WEIGHTED or node.op in _UNWEIGHTED_SUMS:
                parts = vector_jacobian(node, inputs, self._stabilised_quotient(relevance, values[node.name]))
                return tuple(value * part for value, part in zip(inputs, parts, strict=True))
            return vector_jacobian(node, inputs, relevance)

        start = class_indicator(task, values) * values[task.graph.output]
        return propagate(task, values, start, rule)

    def _stabilised_quotient(self, relevance: Tensor, z: Tensor) -> Tensor:
        """Return R / (z + epsilon · sign z), with sign 0 = 1."""
        return relevance / (z + torch.where(z < 0, -self.epsilon, self.epsilon))

    def _gamma_rule(self, node: Node, a: Tensor, z: Tensor, relevance: Tensor) -> Tensor:
        """Apply the γ-rule: enlarge positive weights where a and z agree in sign, and negative ones elsewhere."""
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
            share = torch.where(sign, self._stabilised_quotient(relevance, total), 0.0)
            for one, half in zip(pair, halves, strict=True):
                back += half * vector_jacobian(one, (half,), share)[0]
        return back
