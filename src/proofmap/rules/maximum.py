"""Relaxation of the maximum of several values: max pooling, and the maximum of two branches."""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf, prod

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute, reach
from proofmap.graph.receptive_fields import ReceptiveField, Shapes
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import AffineBounds, Interval, Kind, Nonlinear, Relaxation
from proofmap.runtime.block_sums import dot


@dataclass(frozen=True, eq=False)
class CandidateLines(Relaxation):
    """v[lower] <= y <= slope · v[upper] + bias, where v is all inputs flattened in one row; tensors are (cases,
    outputs).

    reach: the box of an input that contains the candidates of an output, if the values are maps.
    """

    shape: tuple[int, ...]
    inputs: Shapes
    reach: ReceptiveField | None
    lower: Tensor
    upper: Tensor
    slope: Tensor
    bias: Tensor

    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind, ...], Tensor]:
        if isinstance(form, WindowForms):
            return self._pull_windows(form)
        flat = form.flatten(1)  # (rows, outputs)
        one = len(self.lower) == 1
        tensors = (self.lower, self.upper, self.slope, self.bias)
        lower, upper, slope, bias = (t.expand(len(flat), -1) if one else t[owner] for t in tensors)
        weight, index, offset = _picked(flat, lower, upper, slope, bias)
        pulled = flat.new_zeros(len(flat), sum(prod(s) for s in self.inputs)).scatter_add_(1, index, weight)
        parts = pulled.split([prod(s) for s in self.inputs], dim=1)
        return tuple(p.unflatten(1, s) for p, s in zip(parts, self.inputs, strict=True)), offset

    def _pull_windows(self, form: WindowForms) -> tuple[tuple[WindowForms, ...], Tensor]:
        """Pull back window forms, with picks given by their place in the box of their output."""
        assert self.reach is not None
        size, stride = self.reach.extent, self.reach.stride
        lower, upper = (_local(picks, self.reach, self.shape, self.inputs[0]) for picks in (self.lower, self.upper))
        tensors = (lower, upper, self.slope, self.bias)
        at = [form.at_rows(t.unflatten(1, self.shape)).flatten(1) for t in tensors]
        weight, place, offset = _picked(form.values.flatten(1), *at)
        seen = tuple((n - 1) * s + r for n, s, r in zip(form.size, stride, size, strict=True))
        place = place.view(form.values.shape)
        rest, coordinates = place, []
        for extent in reversed(size):
            coordinates.append(rest % extent)
            rest = rest // extent  # in the end, the number of the input
        channels = self.shape[0]
        flat = rest * channels + torch.arange(channels, device=place.device).view(-1, *(1,) * len(seen))
        for axis, inner in enumerate(reversed(coordinates)):
            start = torch.arange(form.size[axis], device=place.device) * stride[axis]
            flat = flat * seen[axis] + inner + start.view(-1, *(1,) * (len(seen) - 1 - axis))
        pulled = weight.new_zeros(len(form), len(self.inputs) * channels * prod(seen))
        pulled.scatter_add_(1, flat.flatten(1), weight)
        parts = pulled.view(len(form), len(self.inputs), channels, *seen).unbind(1)
        back = tuple(-p for p in self.reach.padding)
        return tuple(form.moved(p, s, back, stride) for p, s in zip(parts, self.inputs, strict=True)), offset

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        def flat(values: list[Tensor], start: int) -> Tensor:
            return torch.cat([v.flatten(start) for v in values], dim=-1)

        lower_w = _pick(flat([f.lower_weight for f in inputs], 2), self.lower)
        upper_w = _pick(flat([f.upper_weight for f in inputs], 2), self.upper) * self.slope.unsqueeze(1)
        lower_b = flat([f.lower_bias for f in inputs], 1).gather(1, self.lower)
        upper_b = flat([f.upper_bias for f in inputs], 1).gather(1, self.upper) * self.slope + self.bias
        return AffineBounds(*(t.unflatten(-1, self.shape) for t in (lower_w, lower_b, upper_w, upper_b)))


def _local(index: Tensor, reach: ReceptiveField, shape: tuple[int, ...], source: tuple[int, ...]) -> Tensor:
    """Convert positions in all flattened inputs to input · box size + place in the box that the output reads."""
    channels, *spatial = source
    number = index // (channels * prod(spatial))
    output = torch.arange(prod(shape[1:]), device=index.device).repeat(shape[0])
    place, span = torch.zeros_like(index), 1
    for axis in reversed(range(len(spatial))):
        inner = index % spatial[axis] - (output % shape[1 + axis] * reach.stride[axis] - reach.padding[axis])
        place = place + inner * span
        span *= reach.extent[axis]
        index, output = index // spatial[axis], output // shape[1 + axis]
    return place + number * span


def _picked(
    coefficients: Tensor, lower: Tensor, upper: Tensor, slope: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (weight, place, bias): the upper pick where A > 0, else the lower one. All are (rows, outputs) except
    (rows,).
    """
    positive = coefficients > 0
    weight = coefficients * torch.where(positive, slope, torch.ones_like(slope))
    offset = dot(coefficients, torch.where(positive, bias, torch.zeros_like(bias)))
    return weight, torch.where(positive, upper, lower), offset


def _pick(weights: Tensor, index: Tensor) -> Tensor:
    """Gather entries: (cases, d, all) at (cases, outputs) -> (cases, d, outputs)."""
    return weights.gather(2, index.unsqueeze(1).expand(-1, weights.shape[1], -1))


class MaximumRule(Nonlinear):
    """y_o = max over the candidates of o, which `candidates` lists."""

    @abstractmethod
    def candidates(self, node: Node, shapes: Shapes, device: torch.device) -> Tensor:
        """Return (outputs, k): positions in all inputs, flattened in sequence; the total size means "no candidate"."""

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        return Interval(compute(node, *(i.lower for i in inputs)), compute(node, *(i.upper for i in inputs)))

    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        """Relax the maximum by one candidate below and one line above, without free parameters.

        Below: the candidate with the largest middle of its interval. Above: with i the candidate of the largest upper
        bound and u' the largest upper bound of the others,

            y <= u' + (u_i - u') (x_i - l_i) / (u_i - l_i)   if l_i < u',   y = x_i   otherwise.

        This line is at least u' everywhere, and equals u_i at x_i = u_i. It is never above the constant max u.
        """
        shapes = tuple(tuple(i.lower.shape[1:]) for i in inputs)
        index = self.candidates(node, shapes, inputs[0].lower.device)  # (outputs, k)
        lower = _windows([i.lower for i in inputs], index)  # (cases, outputs, k)
        upper = _windows([i.upper for i in inputs], index)
        first = upper.argmax(-1, keepdim=True)
        top = upper.gather(-1, first).squeeze(-1)
        start = lower.gather(-1, first).squeeze(-1)
        second = upper.scatter(-1, first, -inf).amax(-1)
        exact = start >= second
        safe = torch.where(exact, start, second)
        slope = torch.where(
            exact, torch.ones_like(top), (top - safe) / torch.where(exact, torch.ones_like(top), top - start)
        )
        bias = torch.where(exact, torch.zeros_like(top), safe - slope * start)
        below = torch.where(exact, first.squeeze(-1), (lower + upper).argmax(-1))

        def position(k: Tensor) -> Tensor:
            return index.expand(len(k), -1, -1).gather(-1, k.unsqueeze(-1)).squeeze(-1)

        return CandidateLines(
            node.shape, shapes, reach(node, shapes), position(below), position(first.squeeze(-1)), slope, bias
        )

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """Candidates that may be the largest, where there are several."""
        shapes = tuple(tuple(i.lower.shape[1:]) for i in inputs)
        index = self.candidates(node, shapes, inputs[0].lower.device)
        lower = _windows([i.lower for i in inputs], index)
        upper = _windows([i.upper for i in inputs], index)
        rivals = upper > lower.amax(-1, keepdim=True)
        rivals &= rivals.sum(-1, keepdim=True) > 1
        cases, total = len(lower), sum(prod(s) for s in shapes)
        marks = torch.zeros(cases, total + 1, dtype=torch.int32, device=lower.device)
        marks.scatter_add_(1, index.flatten().expand(cases, -1), rivals.flatten(1).to(torch.int32))
        parts = (marks[:, :total] > 0).split([prod(s) for s in shapes], dim=1)
        return tuple(p.unflatten(1, s) for p, s in zip(parts, shapes, strict=True))


def _windows(values: list[Tensor], index: Tensor) -> Tensor:
    """Gather the candidates: (cases, outputs, k), -inf for missing ones."""
    flat = torch.cat([v.flatten(1) for v in values], dim=1)
    flat = torch.cat([flat, flat.new_full((len(flat), 1), -inf)], dim=1)
    return flat[:, index]


class Maximum(MaximumRule):
    """y = max(a, b)."""

    def candidates(self, node: Node, shapes: Shapes, device: torch.device) -> Tensor:
        one = torch.arange(prod(shapes[0]), device=device)
        return torch.stack([one, one + len(one)], dim=1)


class MaxPool(MaximumRule):
    """y = the largest entry of a window, with any stride, padding and dilation; padding is no candidate."""

    def candidates(self, node: Node, shapes: Shapes, device: torch.device) -> Tensor:
        channels, *spatial = shapes[0]
        a = node.attributes
        every = torch.zeros(1, 1, dtype=torch.long, device=device)  # (windows so far, candidates so far)
        valid = torch.ones(1, 1, dtype=torch.bool, device=device)
        for k, size in enumerate(spatial):
            starts = torch.arange(node.shape[1 + k], device=device) * a["stride"][k] - a["padding"][k]
            axis = starts[:, None] + torch.arange(a["kernel"][k], device=device) * a["dilation"][k]
            inside = (axis >= 0) & (axis < size)
            every = (
                (every[:, None, :, None] * size + axis.clamp(0, size - 1)[None, :, None, :]).flatten(2).flatten(0, 1)
            )
            valid = (valid[:, None, :, None] & inside[None, :, None, :]).flatten(2).flatten(0, 1)
        plane = prod(spatial)
        offsets = torch.arange(channels, device=device)[:, None, None] * plane
        absent = torch.full_like(every, channels * plane)
        return torch.where(valid, every + offsets, absent).flatten(0, 1)  # (channels · windows, k)
