"""Functions of one input, traced as one graph: this takes little longer than tracing one of them."""

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from proofmap.graph import Graph, bounded, trace
from tests.models import Apply


class SideBySide:
    """Named functions or modules of samples of one shape, drawn from [low, low + 1)."""

    def __init__(self, functions: Mapping[str, Callable[[Tensor], Tensor]], *shape: int, low: float = -0.5) -> None:
        self.functions, self.shape, self.low = functions, shape, low
        self._values: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    @cached_property
    def graph(self) -> Graph:
        """The graph of all functions; its output is the concatenation of their outputs."""
        whole = Apply(lambda x: torch.cat([function(x).flatten(1) for function in self.functions.values()], 1))
        whole.parts = nn.ModuleList(part for part in self.functions.values() if isinstance(part, nn.Module))
        return bounded(trace(whole, torch.rand(1, *self.shape, dtype=torch.float64)))

    @cached_property
    def _parts(self) -> dict[str, slice]:
        x = torch.rand(1, *self.shape, dtype=torch.float64)
        with torch.no_grad():
            ends = [0, *accumulate(function(x).numel() for function in self.functions.values())]
        return {name: slice(*pair) for name, pair in zip(self.functions, pairwise(ends), strict=True)}

    def check(self, name: str, tolerance: float = 1e-10, dtype: torch.dtype = torch.float64) -> None:
        """Check that the graph computes the function for one sample and for three."""
        for n in (1, 3):
            if (n, dtype) not in self._values:
                x = torch.rand(n, *self.shape, generator=torch.Generator().manual_seed(n), dtype=dtype) + self.low
                self._values[n, dtype] = x, self.graph.to(x.device, dtype)(x)
            x, values = self._values[n, dtype]
            with torch.no_grad():
                expected = self.functions[name](x).flatten(1)
            assert float((values[:, self._parts[name]] - expected).abs().max()) <= tolerance
