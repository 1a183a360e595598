"""Values whose samples do not stand on dimension 0, as torch has them while it puts time first or heads beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError

__all__ = ["DisplacedBatch", "reshape_source"]


@dataclass(frozen=True)
class DisplacedBatch:
    """`branch` is torch's tensor for one sample. For a batch its side `axis` is `before` times as long as the samples
    are many, and that once more for each entry that follows them there.
    """

    branch: str
    axis: int
    before: int
    error: MixedSamplesError

    def shape(self, b: Builder) -> tuple[int, ...]:
        """Torch's shape for a batch."""
        return tuple(n * b.batch if k == self.axis else n for k, n in enumerate(b.shape(self.branch)))


def reshape_source(b: Builder, name: str, x: str, shape: Sequence[int]) -> str:
    """A reshape of what was not reshaped before."""
    while b.nodes[x].op == "reshape":
        x = b.nodes[x].inputs[0]
    return b.reshape(name, x, shape)
