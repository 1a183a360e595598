"""Domains of tables, learnt from their rows: ranges, names, whole-number columns and one-hot blocks.

A one-hot block is one category stored as several columns, of which exactly one is 1. Its columns cannot move
independently. In a ball with this domain, a block that may move takes any of its categories, and no values between
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.array_types import Samples, frame_numbers, is_frame

Column = int | str  # the number of a column, or its name


@dataclass(frozen=True, eq=False, repr=False)
class Domain(tuple[Tensor, Tensor]):
    """The allowed values of d columns: low <= value <= high; whole numbers; or, in a one-hot block, one 1 and 0
    elsewhere.

    It is the pair (low, high), for `pm.Ball(eps, domain=domain)`, with the rest of the knowledge about the columns. A
    proof over [low, high] covers every real number between, and so every whole number. A lower bound may be attained by
    a row with a fraction in a column that `integers` says has none.

    >>> rows = torch.tensor([[1.0, 0.2], [5.0, 0.7], [3.0, 0.4]])
    >>> domain = pm.Domain.from_data(rows, names=["age", "share"])
    >>> domain.low.tolist(), len(domain.names)
    ([1.0, 0.2], 2)
    """

    low: Tensor  # (d,) float64
    high: Tensor  # (d,)
    deviation: Tensor  # (d,) the standard deviation of each column
    names: tuple[str, ...]
    integers: tuple[bool, ...]
    one_hot: tuple[tuple[int, ...], ...] = ()  # the columns of each block

    def __new__(cls, low: Tensor, high: Tensor, *_: Any, **__: Any) -> Domain:
        return super().__new__(cls, (low, high))

    def __getnewargs__(self) -> tuple[Tensor, Tensor]:
        return self.low, self.high

    @classmethod
    def from_data(
        cls,
        X: Any,  # noqa: N803
        *,
        names: Sequence[str] | None = None,
        quantiles: tuple[float, float] | None = None,
        integers: Iterable[Column] | None = None,
        one_hot: Iterable[Iterable[Column]] | None = None,
    ) -> Domain:
        """Learn the domain from rows X (N, d): an array, a tensor, or a data frame, whose columns have names.

        quantiles: (0.01, 0.99) ignores rare values of columns outside blocks; by default all rows count.
        integers: columns of whole numbers; by default all columns that hold nothing else.
        one_hot: the columns of each block; by default neighbouring columns of 0 and 1, none of them constant, that sum
            to 1 in every row.
        """
        values, names = _table(X, names)
        if one_hot is None:
            blocks = tuple(_find_blocks(values))
        else:
            blocks = tuple(tuple(_column_number(column, names) for column in block) for block in one_hot)
            _check_blocks(values, blocks, names)
        inside = {column for block in blocks for column in block}
        if integers is None:
            whole = {k for k in range(values.shape[1]) if k not in inside and bool((values[:, k] % 1 == 0).all())}
        else:
            whole = {_column_number(column, names) for column in integers}
            broken = [names[k] for k in sorted(whole) if not bool((values[:, k] % 1 == 0).all())]
            if broken:
                raise InputError(f"Domain got the column {broken[0]!r} as whole numbers, but it contains fractions")
        least, most = _column_ranges(values, quantiles)
        for k in range(values.shape[1]):
            if k in inside:
                least[k], most[k] = 0.0, 1.0
            elif k in whole:
                least[k], most[k] = np.floor(least[k]), np.ceil(most[k])
        low, high, deviation = (torch.as_tensor(each) for each in (least, most, values.std(axis=0)))
        return cls(low, high, deviation, names, tuple(k in whole for k in range(values.shape[1])), blocks)

    @property
    def groups(self) -> Tensor:
        """The mask (d,) in which every block is one group, and every other column is a group of its own."""
        first = {column: min(block) for block in self.one_hot for column in block}
        leaders = [first.get(k, k) for k in range(len(self.names))]
        mask: Tensor = torch.unique(torch.tensor(leaders), return_inverse=True)[1]
        return mask

    def eps(self, share: float, of: Literal["range", "deviation"] = "range", fixed: Iterable[Column] = ()) -> Tensor:
        """Return radii (1, d) for `pm.Ball`: this share of each column's range, or of its standard deviation.

        The radius of a whole-number column is rounded down, which removes no whole number from the ball. A block has
        radius 1, the distance of two categories.

        fixed: columns that may not move (a block is named by any of its columns). Their radius is 0; all radii are 0 if
            the share is 0.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < float("inf"):
            raise InputError(f"Domain.eps got {share!r}, expected a share >= 0, such as 0.05")
        if of not in ("range", "deviation"):
            raise InputError(f"Domain.eps got of={of!r}, expected 'range' or 'deviation'")
        radii = share * (self.high - self.low if of == "range" else self.deviation)
        radii = torch.where(torch.tensor(self.integers), radii.floor(), radii)
        held = {_column_number(column, self.names) for column in fixed}
        for block in self.one_hot:
            radii[list(block)] = float(share > 0)
            held |= set(block) if held.intersection(block) else set()
        radii[sorted(held)] = 0.0
        return radii[None]

    def including(self, X: Any) -> Domain:  # noqa: N803
        """Return the domain widened to include the rows X, since explained rows may lie outside the rows it was learnt
        from.
        """
        values, _ = _table(X, self.names)
        _check_blocks(values, self.one_hot, self.names)
        low, high = (torch.as_tensor(end) for end in _column_ranges(values, None))
        return replace(self, low=torch.minimum(self.low, low), high=torch.maximum(self.high, high))

    def group_names(self) -> tuple[str, ...]:
        """Return a name for each of `groups`: the column's name, or the common beginning of the names of a block's
        columns.
        """
        mask, found = self.groups.tolist(), []
        for group in range(max(mask) + 1):
            own = [name for name, of in zip(self.names, mask, strict=True) if of == group]
            found.append(common_beginning(own))
        return tuple(found)

    def __repr__(self) -> str:
        columns, whole, blocks = len(self.names), sum(self.integers), len(self.one_hot)
        return f"Domain({columns} columns, {whole} of whole numbers, {blocks} one-hot block{'s' * (blocks != 1)})"


def _table(X: Any, names: Sequence[str] | None) -> tuple[NDArray[np.float64], tuple[str, ...]]:  # noqa: N803
    """Convert the rows to numbers, and return them with a name for each column."""
    if is_frame(X):
        names = [str(name) for name in X.columns] if names is None else names
        values = frame_numbers(X)
    else:
        values = _to_array(X)
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"Domain got rows of shape {values.shape}, expected a table (N, d)")
    names = [f"column {k}" for k in range(values.shape[1])] if names is None else names
    if len(names) != values.shape[1] or len(set(names)) != len(names):
        raise InputError(
            f"Domain got {len(names)} names, {len(set(names))} of them different, for {values.shape[1]} columns"
        )
    gaps = ~np.isfinite(values).all(axis=0)
    if gaps.any():
        raise InputError(
            f"Domain got gaps in the column {names[int(gaps.argmax())]!r}, expected numbers: fill them first"
        )
    return values, tuple(map(str, names))


def _to_array(X: Samples) -> NDArray[np.float64]:  # noqa: N803
    try:
        return np.array(X.detach().cpu().numpy() if isinstance(X, Tensor) else X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"Domain got {type(X).__name__}, expected rows of numbers (N, d)") from None


def _column_ranges(
    values: NDArray[np.float64], quantiles: tuple[float, float] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    if quantiles is None:
        return values.min(axis=0), values.max(axis=0)
    pair = tuple(quantiles) if isinstance(quantiles, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(q, int | float) for q in pair) or not 0 <= pair[0] < pair[1] <= 1:
        raise InputError(f"Domain got quantiles={quantiles!r}, expected two shares such as (0.01, 0.99)")
    low, high = np.quantile(values, pair, axis=0)
    return low, high


def _find_blocks(values: NDArray[np.float64]) -> Iterable[tuple[int, ...]]:
    """Yield runs of columns of 0 and 1, none of them constant, that sum to 1 in every row."""
    count = values.shape[1]
    open_ = ((values == 0) | (values == 1)).all(axis=0) & (values.min(axis=0) < values.max(axis=0))
    start = 0
    while start < count:
        total, stop = np.zeros(len(values)), start
        while stop < count and open_[stop] and total.min() < 1 and (total + values[:, stop]).max() <= 1:
            total = total + values[:, stop]
            stop += 1
        if stop - start > 1 and total.min() == 1:
            yield tuple(range(start, stop))
            start = stop
        else:
            start += 1


def _check_blocks(values: NDArray[np.float64], blocks: Sequence[Sequence[int]], names: Sequence[str]) -> None:
    used: set[int] = set()
    for block in blocks:
        said = ", ".join(names[k] for k in block[:3])
        if len(set(block)) < max(2, len(block)) or used.intersection(block):
            raise InputError(f"Domain got the one-hot block ({said}), expected at least two columns, each in one block")
        used |= set(block)
        part = values[:, list(block)]
        wrong = ~(((part == 0) | (part == 1)).all(axis=1) & (part.sum(axis=1) == 1))
        if wrong.any():
            raise InputError(
                f"Domain got the one-hot block ({said}) with {part[int(wrong.argmax())].tolist()} in row "
                f"{int(wrong.argmax())}, expected a single 1 and else 0"
            )


def _column_number(column: Column, names: Sequence[str]) -> int:
    """Return the number of a column that is given by its name or number."""
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    if not isinstance(column, str | bool) and isinstance(column, int | np.integer) and 0 <= column < len(names):
        return int(column)
    raise InputError(f"Domain got the column {column!r}, expected one of {len(names)} names or 0 to {len(names) - 1}")


def common_beginning(names: Sequence[str]) -> str:
    """Return the common beginning of the names, without trailing separators; if there is none, the first name and an
    ellipsis.
    """
    if len(names) == 1:
        return names[0]
    same = 0
    while same < min(map(len, names)) and len({name[same] for name in names}) == 1:
        same += 1
    return names[0][:same].rstrip("_=-. :/(") or f"{names[0]}, …"
