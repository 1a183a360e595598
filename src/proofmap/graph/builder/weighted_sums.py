"""Weighted sums of entries: matrices along an axis, cumulative sums, folding of windows, and einsum."""

from collections.abc import Sequence
from math import prod
from string import ascii_letters

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import weighted_layers
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value
from proofmap.graph.builder.scatter import rearrange
from proofmap.graph.sliding_windows import SlidingWindow


def apply_matrix(b: Builder, name: str, x: str, axis: int, matrix: Tensor) -> str:
    """Add y[..., i, ...] = Σ_j M[i, j] x[..., j, ...] along an axis of one sample, M (out, in)."""
    b.check_size(name, "a matrix", matrix.shape)
    rank = len(b.shape(x))
    if axis == rank - 1:
        return weighted_layers.linear(b, name, x, matrix, None)
    if axis == rank - 2:
        return b.add_node(name, "matmul", [x], weight=matrix, side="left")
    last = _swap_with_last(b, f"{name}.last", x, axis)
    return _swap_with_last(b, name, weighted_layers.linear(b, f"{name}.linear", last, matrix, None), axis)


def cumulative_sum(b: Builder, name: str, x: str, axis: int, *, exclusive: bool = False, reverse: bool = False) -> str:
    """Add y_i = Σ_{j <= i} x_j along an axis of one sample; `exclusive` omits x_i, `reverse` sums from the end.

    This is a convolution with as many ones as the axis has entries, so no matrix is stored.
    """
    last = _swap_with_last(b, f"{name}.last", x, axis)
    shape = b.shape(last)
    n = shape[-1]
    rows = b.reshape(f"{name}.rows", last, (1, prod(shape[:-1]), n))
    pads = (n, -1) if exclusive else (n - 1, 0)
    ones = torch.ones(1, 1, 1, n, dtype=torch.float64)
    slide = SlidingWindow.of((1, n), padding=[(0, 0), pads[::-1] if reverse else pads])
    y = weighted_layers.conv(b, f"{name}.sums", rows, ones, None, slide)
    return _swap_with_last(b, name, b.reshape(f"{name}.shape", y, shape), axis)


def _swap_with_last(b: Builder, name: str, x: str, axis: int) -> str:
    """Exchange an axis of one sample and the last axis."""
    axes = list(range(len(b.shape(x)) + 1))
    axes[axis + 1], axes[-1] = axes[-1], axes[axis + 1]
    return b.permute(name, "permute", x, axes)


def fold_windows(b: Builder, name: str, x: str, size: Sequence[int], slide: SlidingWindow) -> str:
    """Add the sum of overlapping windows (channels · kernel, windows) in a map of this size (`torch.nn.Fold`).

    This is a transposed convolution in which each entry of a window is a channel with one weight of 1.
    """
    taps = prod(slide.kernel)
    reach = [d * (k - 1) + 1 for d, k in zip(slide.dilation, slide.kernel, strict=True)]
    inner = [n + sum(pad) - r for n, pad, r in zip(size, slide.padding, reach, strict=True)]
    counts = [n // s + 1 for n, s in zip(inner, slide.stride, strict=True)]
    shape = b.shape(x)
    if len(shape) != 2 or shape[0] % taps or prod(counts) != shape[1] or min(inner) < 0:
        raise ModelError(
            f"fold (node {name!r}) gets {shape}, expected (a multiple of {taps}, {prod(counts)}): windows of "
            f"{slide.kernel} in a map of {tuple(size)}"
        )
    channels = shape[0] // taps
    maps = b.reshape(f"{name}.maps", x, (shape[0], *counts))
    ones = torch.eye(taps, dtype=torch.float64).reshape(taps, 1, *slide.kernel)
    ones = ones.repeat(channels, *(1,) * (len(size) + 1))
    rest = [n % s for n, s in zip(inner, slide.stride, strict=True)]
    return weighted_layers.conv_transpose(b, name, maps, ones, None, slide, channels, rest)


# --- Einstein's notation ---


def einsum(b: Builder, name: str, equation: str, operands: Sequence[Value]) -> str:
    """Add an einsum of one computed value with constants, or of two computed values."""
    computed = [k for k, value in enumerate(operands) if isinstance(value, str)]
    ranks = [len(b.shape(value)) + 1 if isinstance(value, str) else value.ndim for value in operands]
    terms, result = _parse_equation(name, equation, ranks)
    if len(computed) == len(operands) == 2:
        return _einsum_of_two(b, name, operands, terms, result)
    if len(computed) != 1:
        raise NoRule("of several computed values")
    x = operands[computed[0]]
    assert isinstance(x, str)
    sample, axes = terms[computed[0]][0], terms[computed[0]]
    if axes.count(sample) > 1 or not result.startswith(sample):
        raise MixedSamplesError(name, "einsum")
    if len(set(axes)) < len(axes):  # a letter twice: the diagonal
        kept = "".join(dict.fromkeys(axes))
        read = f"{axes[1 - b.batch_axes :]}->{kept[1 - b.batch_axes :]}"
        x = rearrange(b, f"{name}.diagonal", "einsum", x, lambda positions: torch.einsum(read, positions))
        axes = kept
    axes = axes[1:]
    constants = [(term, value) for term, value in zip(terms, operands, strict=True) if isinstance(value, Tensor)]
    for k, (term, value) in enumerate(constants):
        wanted = {*result, *(letter for other, _ in constants[k + 1 :] for letter in other)}
        value, term = _without_repeated_letters(b, name, value.double(), term, sample)
        x, axes = _product(b, f"{name}.{k}", x, axes, value, term, wanted)
    gone = [axis for axis, letter in enumerate(axes) if letter not in result]
    if gone:
        x = b.reduce(f"{name}.rest", x, gone, keepdim=False, mean=False)
        axes = "".join(letter for letter in axes if letter in result)
    return b.permute(name, "einsum", x, (0, *(axes.index(letter) + 1 for letter in result[1:])))


def _einsum_of_two(b: Builder, name: str, operands: Sequence[Value], terms: Sequence[str], result: str) -> str:
    """Add one matrix product for each entry of the axes that both operands and the result have."""
    sample = result[:1]
    if any(term[:1] != sample or len({*term}) < len(term) for term in terms):
        raise MixedSamplesError(name, "einsum")
    rows, sizes = [], dict[str, int]()
    for k, (x, term) in enumerate(zip(operands, terms, strict=True)):
        assert isinstance(x, str)
        alone = [axis for axis, c in enumerate(term[1:]) if c not in terms[1 - k] + result]
        rows.append(b.reduce(f"{name}.alone{k}", x, alone, keepdim=False, mean=False) if alone else x)
    left, right = ([c for c in term[1:] if c in terms[1 - k] + result] for k, term in enumerate(terms))
    for letters, x in zip((left, right), rows, strict=True):
        for c, n in zip(letters, b.shape(x), strict=True):
            sizes[c] = max(n, sizes.get(c, 1))
    both = [c for c in left if c in right and c in result]
    summed = [c for c in left if c in right and c not in result]
    mine, other = ([c for c in one if c not in rest] for one, rest in ((left, right), (right, left)))
    factors = []
    for k, (x, letters, order) in enumerate(
        zip(rows, (left, right), ((both, mine, summed), (both, summed, other)), strict=True)
    ):
        x = b.expand(f"{name}.expand{k}", x, [sizes[c] for c in letters])
        x = b.permute(f"{name}.in{k}", "einsum", x, (0, *(letters.index(c) + 1 for group in order for c in group)))
        factors.append(b.reshape(f"{name}.rows{k}", x, [prod(sizes[c] for c in group) for group in order]))
    y = weighted_layers.matmul(b, f"{name}.product", factors[0], factors[1])
    after = [*both, *mine, *other]
    y = b.reshape(f"{name}.shape", y, [sizes[c] for c in after])
    return b.permute(name, "einsum", y, (0, *(after.index(c) + 1 for c in result[1:])))


def _parse_equation(name: str, equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result; unused letters replace an ellipsis."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"einsum (node {name!r}) has {len(ranks)} operands for {equation!r}")
    free = [letter for letter in ascii_letters if letter not in equation]
    dots = [rank - len(term) + 3 if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)]
    more = "".join(free[: max(dots)])  # aligned at the end, as in broadcasting
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        result = ("..." if "..." in left else "") + "".join(sorted(c for c in {*letters} if letters.count(c) == 1))
    named = [term.replace("...", more[len(more) - n :]) for term, n in zip(terms, dots, strict=True)]
    result = result.replace("...", more)
    fits = all(len(term) == rank and term.isalpha() for term, rank in zip(named, ranks, strict=True) if rank)
    if not fits or len({*result}) < len(result) or not {*result} <= {*"".join(named)}:
        raise ModelError(f"einsum (node {name!r}) has the equation {equation!r}, which does not fit its operands")
    return named, result


def _without_repeated_letters(b: Builder, name: str, value: Tensor, term: str, sample: str) -> tuple[Tensor, str]:
    """Return a constant without repeated letters and without the samples' letter, along which it must be equal."""
    kept = "".join(dict.fromkeys(term))
    value = torch.einsum(f"{term}->{kept}", value)
    if sample in kept:
        value = b.sample_constant(name, "einsum", value.movedim(kept.index(sample), 0), value.ndim)
        kept = kept.replace(sample, "")
    return value, kept


def _product(b: Builder, name: str, x: str, axes: str, value: Tensor, term: str, wanted: set[str]) -> tuple[str, str]:
    """Add x (letters `axes`) times a constant (letters `term`), summed over letters that are not needed later."""
    alone = [letter for letter in term if letter not in axes and letter not in wanted]
    value = value.sum([term.index(letter) for letter in alone]) if alone else value
    term = "".join(letter for letter in term if letter not in alone)
    size = dict(zip(axes, b.shape(x), strict=True))
    for letter, n in zip(term, value.shape, strict=True):
        size[letter] = n if size.get(letter, 1) == 1 else size[letter]
    x = b.expand(f"{name}.expand", x, [size[c] for c in axes])
    value = value.expand([size[c] for c in term])
    both = [letter for letter in axes if letter in term and letter in wanted]
    summed = [letter for letter in axes if letter in term and letter not in wanted]
    rest, new = [c for c in axes if c not in term], [c for c in term if c not in axes]
    x = b.permute(f"{name}.in", "einsum", x, (0, *(axes.index(c) + 1 for c in (*both, *rest, *summed))))
    value = value.permute([term.index(c) for c in (*both, *summed, *new)])
    counts = [prod(size[c] for c in group) for group in (both, rest, summed, new)]
    x = b.reshape(f"{name}.rows", x, (counts[0], counts[1], counts[2]))
    value = value.reshape(counts[0], counts[2], counts[3])
    y = weighted_layers.matmul(b, f"{name}.product", x, value if counts[0] > 1 else value[0])
    after = "".join((*both, *rest, *new))
    return b.reshape(f"{name}.shape", y, [size[c] for c in after]), after
