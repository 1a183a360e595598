"""The checked arguments of `pm.explain`, and the time that its work takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proofmap.explainers.automatic.ranged_samples import RangedSamples
from proofmap.explainers.explainer import Explainer
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_inputs import with_inputs
from proofmap.graph import Graph
from proofmap.inputs import groups as grouping


@dataclass(frozen=True, eq=False)
class ExplainRequest:
    """The checked arguments of `explain`."""

    model: Graph  # as traced
    graph: Graph  # in the precision of x, on its device
    x: Tensor
    target: Tensor  # (N,)
    samples: RangedSamples
    progress: bool

    @property
    def groups(self) -> grouping.Groups:
        """The groups of the map."""
        return self.samples.groups

    @property
    def domain(self) -> tuple[Any, Any] | None:
        """The range of the values."""
        return self.samples.domain

    def explained(self, explainer: Explainer) -> Explanation:
        """Explain the samples; the explanation names the parts of several inputs."""
        return with_inputs(explainer.explain(self.x, self.target), self.samples.record)

    def seconds_of(self, work: Callable[[], object]) -> float:
        """Return the seconds that a second call takes, after one call to warm up."""
        work()
        begin = time.perf_counter()
        work()
        if self.x.is_cuda:
            torch.cuda.synchronize(self.x.device)
        return max(time.perf_counter() - begin, 1e-6)
