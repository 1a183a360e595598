"""Torch operators that are linear because their positions, masks or factors are constants, against torch."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph import bounded, trace
from proofmap.graph.ops import LINEAR as LINEAR_OPS
from proofmap.graph.torch.operators.linear import LINEAR_CONVERTERS
from tests.graph.torch.side_by_side import SideBySide
from tests.models import Apply

Function = Callable[[Tensor], Tensor]

MASK = torch.tensor([[True, False, True, False], [False, False, True, True], [True, True, False, False]])
GRID = torch.tensor([[0, 1, 2, 3], [3, 0, 1, 2], [1, 3, 2, 0]])


C = {n: torch.rand(n, generator=torch.Generator().manual_seed(n)) - 0.5 for n in (3, 4)} | {
    shape: torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) - 0.5
    for shape in ((2, 3), (3, 4), (4, 2), (3, 2), (5, 4), (2, 4, 3))
}  # constants, by their shapes


def assigned(change: Callable[[Tensor, Tensor], object]) -> Function:
    """Return a copy of x that `change` modifies in place; the second argument of `change` is 2 x."""

    def function(x: Tensor) -> Tensor:
        y = x.clone()
        change(y, 2 * x)
        return y

    return function


def resized(mode: str, align: bool | None, **how: Any) -> Function:
    return lambda x: F.interpolate(x, mode=mode, align_corners=align, **how)


FUNCTIONS: dict[str, tuple[tuple[int, ...], Function]] = {
    "where first": ((3, 4), lambda x: torch.where(MASK, x, C[3, 4].to(x))),
    "where last": ((3, 4), lambda x: torch.where(MASK, 0.25, x)),
    "where of branches": ((3, 4), lambda x: torch.where(MASK, x, -2 * x)),
    "where of a smaller branch": ((3, 1), lambda x: torch.where(MASK, x, C[4].to(x))),
    "where of smaller branches": ((3, 1), lambda x: torch.where(MASK, x, x.sum(1, keepdim=True))),
    "where of everything": ((3, 4), lambda x: torch.where(MASK | ~MASK, x, float("inf"))),
    "where of all samples": ((3, 4), lambda x: torch.where(MASK.expand(x.shape[0], 3, 4), x, 0.5)),
    "where with infinite constants": (
        (3, 4),
        lambda x: torch.where(MASK, x, torch.where(MASK, torch.tensor(float("-inf")), torch.tensor(1.5)).to(x)),
    ),
    "masked_fill": ((3, 4), lambda x: x.masked_fill(MASK, 2.0)),
    "masked_fill by a tensor": ((3, 4), lambda x: x.masked_fill(MASK, torch.tensor(2.0, dtype=x.dtype))),
    "masked_fill in place": ((3, 4), assigned(lambda y, z: y.masked_fill_(MASK, 0.0))),
    "tril": ((3, 4), lambda x: x.tril(1)),
    "triu": ((2, 3, 4), lambda x: x.triu(-1)),
    "lerp": ((3, 4), lambda x: torch.lerp(x, 2 * x.flip(1), 0.3)),
    "lerp by a tensor": ((3, 4), lambda x: torch.lerp(x, x.flip(2), C[4].to(x))),
    "lerp to a constant": ((3, 4), lambda x: torch.lerp(x, C[3, 4].to(x), 0.8)),
    "lerp of constants": ((3, 4), lambda x: torch.lerp(C[3, 4].to(x), C[4].to(x).expand(3, 4), x)),
    "assign a number": ((3, 4), assigned(lambda y, z: y[:, 1:].fill_(0.5))),
    "assign a slice": ((3, 4), assigned(lambda y, z: y[:, 1:, ::2].copy_(z[:, 1:, 1::2]))),
    "assign a constant": ((3, 4), assigned(lambda y, z: y.__setitem__((slice(None), 2), C[4].to(y)))),
    "assign a row": ((3, 4), assigned(lambda y, z: y.__setitem__((slice(None), 0), z[:, 2]))),
    "assign an entry": ((3, 4), assigned(lambda y, z: y.__setitem__((slice(None), 1, 3), z[:, 2, 0]))),
    "assign at positions": ((3, 4), assigned(lambda y, z: y.__setitem__((slice(None), [0, 2]), z[:, 1:]))),
    "assign by a mask": ((3, 4), assigned(lambda y, z: y.__setitem__((slice(None), MASK), 0.0))),
    "assign to the diagonal": ((3, 4), lambda x: torch.diagonal_scatter(x, x[:, :, 0], 0, 1, 2)),
    "assign into zeros": ((3, 4), lambda x: torch.zeros_like(x).slice_scatter(x[:, :, 1:3], 2, 2, 4)),
    "assign everything": ((3, 4), assigned(lambda y, z: y[:].copy_(z))),
    "add in place": ((3, 4), assigned(lambda y, z: y[:, :, 1:].add_(z[:, :, :-1]))),
    "scale in place": ((3, 4), assigned(lambda y, z: y[:, 0].mul_(-0.5))),
    "index_fill": ((3, 4), lambda x: x.index_fill(2, torch.tensor([0, 3]), 1.5)),
    "index_copy": ((3, 4), lambda x: x.index_copy(1, torch.tensor([2, 0]), x[:, 1:])),
    "index_add": ((3, 4), lambda x: x.index_add(1, torch.tensor([2, 0]), x[:, 1:])),
    "scatter": ((3, 4), lambda x: x.scatter(2, GRID[None, :, :2].expand(x.shape[0], 3, 2), 3 * x[:, :, 2:])),
    "scatter a number": ((3, 4), lambda x: x.scatter(2, GRID[None, :, :2].expand(x.shape[0], 3, 2), 0.75)),
    "einsum": ((3, 4), lambda x: torch.einsum("nij,jk->nik", x, C[4, 2].to(x))),
    "einsum of several": ((3, 4), lambda x: torch.einsum("ai,nij,jk->nka", C[2, 3].to(x), x, C[4, 2].to(x))),
    "einsum by entries": ((3, 4), lambda x: torch.einsum("nij,ij->nij", x, C[3, 4].to(x))),
    "einsum over dots": ((2, 3, 4), lambda x: torch.einsum("...ij,kj->...ik", x, C[5, 4].to(x))),
    "einsum by heads": ((2, 3, 4), lambda x: torch.einsum("nhij,hjk->nihk", x, C[2, 4, 3].to(x))),
    "einsum of a diagonal": ((3, 3), lambda x: torch.einsum("nii,ik->nk", x, C[3, 2].to(x))),
    "einsum broadcast": ((1, 4), lambda x: torch.einsum("nij,ij->nij", x, C[3, 4].to(x))),
    "einsum without an arrow": ((3, 4), lambda x: torch.einsum("aib,id", x, C[3, 2].to(x))),
    "cumsum": ((3, 4), lambda x: x.cumsum(1)),
    "cumsum of the last": ((2, 3, 4), lambda x: x.cumsum(-1)),
    "cumsum of one": ((1, 4), lambda x: x.cumsum(1)),
    "fold": ((8, 9), lambda x: F.fold(x, (4, 4), 2)),
    "fold with gaps": ((4, 6), lambda x: F.fold(x, (5, 6), (2, 2), stride=(2, 2), padding=0)),
    "fold padded": ((6, 6), lambda x: F.fold(x, (5, 4), (2, 3), dilation=(2, 1), padding=(1, 1), stride=(2, 2))),
    "unfold": ((2, 4, 5), lambda x: F.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=2)),
    "unfold and fold": ((2, 4, 5), lambda x: F.fold(F.unfold(x, 3, padding=1), (4, 5), 3, padding=1)),
}  # fmt: skip
WAYS: list[tuple[str, tuple[int, ...], list[dict[str, Any]]]] = [
    ("linear", (2, 5), [{"size": 8}, {"size": 3}, {"scale_factor": 1.7}, {"size": 1}]),
    ("bilinear", (2, 3, 4), [{"size": (5, 4)}, {"scale_factor": 2}, {"scale_factor": (1.7, 0.6)}, {"size": 1}]),
    ("bicubic", (2, 3, 4), [{"size": (5, 4)}, {"scale_factor": 2}, {"scale_factor": (1.7, 0.6)}]),
    ("trilinear", (1, 2, 3, 2), [{"size": (3, 2, 5)}, {"scale_factor": (2, 0.7, 1.5)}]),
]
RESIZED: dict[str, tuple[tuple[int, ...], Function]] = {
    f"{mode} {align} {how}": (shape, resized(mode, align, **how))
    for mode, shape, ways in WAYS
    for align in (True, False)
    for how in ways
}
SMOOTHED: dict[str, tuple[tuple[int, ...], Function]] = {
    f"{mode} antialias {size}": ((2, 5, 6), resized(mode, False, size=size, antialias=True))
    for mode in ("bilinear", "bicubic")
    for size in ((3, 2), (7, 6))
}
TABLE = FUNCTIONS | RESIZED | SMOOTHED
SIZE = max(prod(shape) for shape, _ in TABLE.values())


def applied(shape: tuple[int, ...], function: Function, x: Tensor) -> Tensor:
    """Apply a function to the first entries of x."""
    return function(x[:, : prod(shape)].reshape(-1, *shape))


TOGETHER = SideBySide({name: partial(applied, *pair) for name, pair in TABLE.items()}, SIZE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", TABLE)
def test_function_equals_torch(name: str, dtype: torch.dtype, tolerance: float) -> None:
    TOGETHER.check(name, tolerance, dtype)


def test_functions_are_linear_operations() -> None:
    assert {node.op for node in TOGETHER.graph.nodes} <= {"input", *LINEAR_OPS}


MIXED: dict[str, Function] = {
    "where": lambda x: torch.where(torch.arange(x.shape[0])[:, None] > 3, x, 0.0),
    "assign": assigned(lambda y, z: y[1:].fill_(0.0)),
    "assign another sample": assigned(lambda y, z: y[1:].copy_(z[:-1])),
    "assign in another order": lambda x: x.index_put((torch.arange(x.shape[0]).flip(0),), 2 * x),
    "assign zeros to others": lambda x: x.index_put((torch.arange(1, x.shape[0]),), torch.zeros(())),
    "scatter": lambda x: x.scatter(0, torch.zeros(1, 4, dtype=torch.long), 1.0),
    "cumsum": lambda x: x.cumsum(0),
    "einsum": lambda x: torch.einsum("ni,nj->ij", x, torch.ones(x.shape[0], 2)),
    "tril": lambda x: x.tril(),
}


@pytest.mark.parametrize("function", MIXED.values(), ids=MIXED)
def test_mixed_samples_are_refused(function: Function) -> None:
    with pytest.raises(ModelError, match="mixes the samples of a batch"):
        trace(Apply(function), torch.rand(1, 4))


UNKNOWN: dict[str, tuple[Function, str]] = {
    "where": (lambda x: torch.where(x > 0, x, 2 * x), "aten.where.self with computed mask"),
    "lerp": (lambda x: torch.lerp(x, 2 * x, x), "aten.lerp.Tensor with a computed weight"),
    "einsum": (lambda x: torch.einsum("ni,ni,ni->ni", x, x, x), "aten.einsum of several computed values"),
    "scatter": (lambda x: x.scatter(1, torch.zeros(x.shape[0], 2, dtype=torch.long), x[:, :2]), "places that repeat"),
    "index_add": (lambda x: x.index_add(1, torch.tensor([1, 1]), x[:, :2]), "places that repeat"),
}


@pytest.mark.parametrize(("function", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_forms_without_a_rule_are_named(function: Function, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        bounded(trace(Apply(function), torch.rand(1, 4)))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("rows", [3, 8])
def test_the_error_blames_torch_for_its_wrong_smoothing_of_one_column(mode: str, rows: int) -> None:
    x = torch.rand(1, 2, 5, 3, dtype=torch.float64)
    at_once = resized(mode, False, antialias=True, size=(rows, 1))

    def one_by_one(x: Tensor) -> Tensor:
        return at_once(resized(mode, False, antialias=True, size=(rows, 3))(x))

    trace(Apply(lambda x: one_by_one(x).flatten(1)), x)  # the advice of the error
    model = Apply(lambda x: at_once(x).flatten(1))
    if torch.allclose(at_once(x), one_by_one(x)):  # this version of torch is correct
        trace(model, x)
        return
    with pytest.raises(ModelError, match=r"one axis after the other, as the bounds assume: resize each axis") as e:
        trace(model, x)
    assert "wrongly" not in str(e.value)


UNREAD: dict[str, Function] = {
    "where": lambda x: torch.where(MASK, x.log(), 0.25),
    "where of branches": lambda x: torch.where(MASK, x.log(), (0.25 - x).log()),
    "masked_fill": lambda x: x.log().masked_fill(~MASK, 0.0),
    "assignment": lambda x: assigned(lambda y, z: y.__setitem__((slice(None), ~MASK), 0.5))(x.log()),
    "assignment of a branch": lambda x: assigned(lambda y, z: y.__setitem__((slice(None), ~MASK), z[:, MASK]))(x.log()),
    "multiplied": lambda x: 3 * x.log().masked_fill(~MASK, 2.0) + 1,
    "of a layer": lambda x: F.linear(x.log().masked_fill(~MASK[:1], 0.0)[:, 0], C[3, 4].to(x)),
}


@pytest.mark.parametrize("function", UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("outside", [-0.5, 0.0], ids=["undefined", "infinite"])
def test_overwritten_entries_are_not_read(function: Function, outside: float) -> None:
    """The overwritten entries may be NaN."""
    model = Apply(lambda x: function(x).flatten(1))
    x = torch.where(MASK, 0.5 + 0.25 * torch.rand(2, 3, 4, dtype=torch.float64), outside)
    graph = trace(model, x[:1])
    y = model(x)
    assert bool(y.isfinite().all())
    torch.testing.assert_close(graph(x), y)


def test_every_operator_of_the_table_is_known_to_torch() -> None:
    for name in LINEAR_CONVERTERS:
        _, op, overload = name.split(".")
        assert hasattr(getattr(torch.ops.aten, op), overload)
