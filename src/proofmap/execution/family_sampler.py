"""Sample a network on a ball and on every member of its family, with the same noise for all, in chunks that fit.

A sample of B becomes a sample of B_u when its group u is restored. The two differ only near the group, and
`incremental` computes the difference. Where differences are unsafe, every sample of every member runs by itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from proofmap.errors import BoundError, InputError
from proofmap.execution.cone import changed_boxes, size_classes
from proofmap.execution.incremental import Schedule, base_elements, base_of
from proofmap.graph import Graph
from proofmap.graph.ops import OPERATIONS
from proofmap.runtime.memory import chunk_bytes, run_in_chunks
from proofmap.runtime.progress import part

SampleFold = Callable[[slice, Tensor, Tensor], None]


def check_precision(said: str, precision: torch.dtype | None) -> None:
    """Raise InputError for a type that samples cannot run in."""
    if precision not in (None, torch.float16, torch.bfloat16):
        raise InputError(
            f"{said}={precision!r}, expected torch.float16 or torch.bfloat16: leave it out to sample in the type of x"
        )


@dataclass(frozen=True, eq=False)
class Sampler:
    """A graph, the type of its differences (None: that of x), and the bytes they may use."""

    graph: Graph
    precision: torch.dtype | None
    available: int

    def at(self, x: Tensor) -> Tensor:
        """Return the output at x (n, *shape)."""
        return channels_last_graph(self.graph, x.device, x.dtype)(channels_last(x))

    def visit(self, x: Tensor, mask: Tensor, delta: Tensor, groups: int, fold: SampleFold) -> None:
        """Call fold(images, members, values) until it has received every sample of every member.

        x (n, *shape), mask (1 or n, *shape), delta (S, n, *shape) in B. values (s, images, members, *output) is the
        output at x + δ for some of the samples, with the member's group restored; member 0 is B itself. Values of a
        chunk that is repeated for lack of memory are passed twice.
        """
        graph = channels_last_graph(self.graph, x.device, x.dtype)
        finite = torch.ones((), dtype=torch.bool, device=x.device)

        def show(images: slice, members: Tensor, values: Tensor) -> None:
            finite.logical_and_(torch.isfinite(values).all())
            fold(images, members.to(x.device), values)

        room = chunk_bytes(self.available, x.device) // x.element_size() // 2  # half for the base, half for the changes
        whole = any(OPERATIONS[node.op].steep(node) for node in graph.nodes[1:])  # b + d may lie beyond a jump
        (_visit_whole if whole else self._visit_changes)(graph, x, mask, delta, groups, room, show)
        if not bool(finite):
            raise BoundError(
                "samples lead to NaN or infinite values, expected finite ones: "
                + ("take a smaller ball" if self.precision is None or whole else "leave `precision` out")
            )

    def _visit_changes(
        self, graph: Graph, x: Tensor, mask: Tensor, delta: Tensor, groups: int, room: int, show: SampleFold
    ) -> None:
        """Compute members by their differences from the samples of B."""
        precision = self.precision or x.dtype

        def work(images: slice, schedules: list[Schedule], names: frozenset[str], first: int, last: int) -> None:
            points = x[images] + delta[first:last, images]
            base, output = base_of(graph, channels_last(points.flatten(0, 1)), names)
            full = output.unflatten(0, points.shape[:2])[:, :, None]
            show(images, torch.zeros(1, dtype=torch.int64), full)
            for schedule in schedules:
                try:
                    change = schedule(base, points, x[images])
                except NotImplementedError as error:
                    raise InputError(
                        f"torch has no {precision} for this network here: leave `precision` out"
                    ) from error
                show(images, 1 + schedule.groups, full + change)

        samples = len(delta)
        for i, one_mask in enumerate(mask):
            block = range(len(x)) if len(mask) == 1 else range(i, i + 1)  # the images that share the mask
            schedules = list(_schedules(graph, one_mask, groups, precision, room))
            names = frozenset[str]().union(*(one.needs for one in schedules))
            largest = max(base_elements(graph, names), *(len(one.groups) * one.elements for one in schedules))
            at_once = max(1, room // largest)
            step = max(1, at_once // samples)
            for start in block[::step]:
                images = slice(start, min(block.stop, start + step))
                with part(images.start / len(x), images.stop / len(x)):
                    run_in_chunks(samples, min(samples, at_once), partial(work, images, schedules, names))


def _visit_whole(
    graph: Graph, x: Tensor, mask: Tensor, delta: Tensor, groups: int, room: int, show: SampleFold
) -> None:
    """Run every member's samples by themselves, in the type of x: B is the member without a restored group."""

    def work(i: int, sample: int, first: int, last: int) -> None:
        member = torch.arange(first, last, device=x.device)
        restored = mask[i % len(mask)] == member.view(-1, *[1] * (x.ndim - 1)) - 1
        value = graph(channels_last(torch.where(restored, x[i], x[i] + delta[sample, i])))
        show(slice(i, i + 1), member, value[None, None])

    at_once, count = room // base_elements(graph, ()), len(x) * len(delta)
    for k in range(count):
        with part(k / count, (k + 1) / count):
            run_in_chunks(1 + groups, at_once, partial(work, *divmod(k, len(delta))))


def _schedules(graph: Graph, mask: Tensor, groups: int, precision: torch.dtype, room: int) -> Iterator[Schedule]:
    """Yield schedules for all groups of a mask that fit into `room` scalars at one point."""
    changed = changed_boxes(graph, mask, groups)
    for ids in size_classes(graph, changed):
        schedule = Schedule.of(graph, mask, changed, ids, precision)
        for few in ids.split(max(1, room // schedule.elements)):
            yield schedule if len(few) == len(ids) else Schedule.of(graph, mask, changed, few, precision)


def channels_last_graph(graph: Graph, device: torch.device, dtype: torch.dtype) -> Graph:
    """Move the graph, with its filters in channels-last memory like the windows."""
    nodes = (
        replace(node, weight=channels_last(node.weight)) if node.op == "conv" and node.weight is not None else node
        for node in graph.to(device, dtype).nodes
    )
    return replace(graph, nodes=tuple(nodes))


def channels_last(value: Tensor) -> Tensor:
    """Return the value in channels-last memory, if it has four axes."""
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value
