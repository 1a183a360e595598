"""Values whose batch dimension is not axis 0, for instance time-first sequences and attention heads."""

from collections.abc import Sequence
from dataclasses import dataclass

from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError


@dataclass(frozen=True)
class DisplacedBatch:
    """A value whose samples are not on axis 0.

    node: the node with torch's tensor for one sample. For N samples, axis `axis` of torch's tensor has the length
    before · N · (entries of this axis after the batch dimension). error: raised if the value is used otherwise.
    """

    node: str
    axis: int
    before: int
    error: MixedSamplesError

    def shape(self, b: Builder) -> tuple[int, ...]:
        """Return the shape of torch's tensor for a batch."""
        return tuple(n * b.batch if k == self.axis else n for k, n in enumerate(b.shape(self.node)))


def reshape_source(b: Builder, name: str, x: str, shape: Sequence[int]) -> str:
    """Reshape x; earlier reshapes of x are skipped."""
    while b.nodes[x].op == "reshape":
        x = b.nodes[x].inputs[0]
    return b.reshape(name, x, shape)
