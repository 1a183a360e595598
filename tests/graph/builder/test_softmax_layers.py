"""Masked softmax: exactly zero where the mask hides, and no infinite number in the graph."""

from collections.abc import Callable
from math import inf

import pytest
import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder.graph_builder import Builder, NoRule, scalar
from proofmap.graph.builder.scatter import select
from proofmap.graph.builder.softmax_layers import masked_softmax
from tests.graph.built import DOUBLE, assert_is, built, drawn, ops

CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()
ONE = torch.eye(3, dtype=torch.bool)


def mask(kept: Tensor, finite: Tensor | None = None) -> Tensor:
    values = torch.zeros(kept.shape, dtype=DOUBLE) if finite is None else finite
    return values.masked_fill(~kept, -inf)


def softmax(b: Builder, x: str, axis: int = 1) -> str:
    return masked_softmax(b, "y", x, [axis], "softmax")


CASES: dict[str, tuple[tuple[int, ...], Callable[[Builder], str], Callable[[Tensor], Tensor]]] = {
    "causal": (
        (3, 3),
        lambda b: softmax(b, b.affine("m", "input", None, mask(CAUSAL))),
        lambda x: (x + mask(CAUSAL)).softmax(2),
    ),
    "for all heads": (
        (2, 3, 3),
        lambda b: softmax(b, b.affine("m", "input", None, mask(CAUSAL)), 2),
        lambda x: (x + mask(CAUSAL)).softmax(3),
    ),
    "another axis": (
        (3, 3),
        lambda b: softmax(b, b.affine("m", "input", None, mask(CAUSAL)), 0),
        lambda x: (x + mask(CAUSAL)).softmax(1),
    ),
    "with finite numbers": (
        (3, 3),
        lambda b: softmax(b, b.affine("m", "input", scalar(2.0), mask(CAUSAL, drawn(3, 3)))),
        lambda x: (2 * x + mask(CAUSAL, drawn(3, 3))).softmax(2),
    ),
    "one column": (
        (2, 3),
        lambda b: softmax(b, b.affine("m", "input", None, mask(torch.tensor([True, False, True])))),
        lambda x: (x + mask(torch.tensor([True, False, True]))).softmax(2),
    ),
    "one entry a row": (
        (3, 3),
        lambda b: softmax(b, b.affine("m", "input", None, mask(ONE))),
        lambda x: ONE.double().expand(len(x), 3, 3),
    ),
    "filled": (
        (3, 3),
        lambda b: softmax(b, filled(b, "m", CAUSAL, "input", -inf)),
        lambda x: x.masked_fill(~CAUSAL, -inf).softmax(2),
    ),
    "two masks": (
        (3, 3),
        lambda b: softmax(
            b, b.affine("n", b.affine("m", "input", None, mask(CAUSAL)), None, mask(~ONE | CAUSAL.roll(1)))
        ),
        lambda x: (x + mask(CAUSAL) + mask(~ONE | CAUSAL.roll(1))).softmax(2),
    ),
    "filled twice, and back": (
        (3, 3),
        lambda b: softmax(b, filled(b, "n", ~ONE.roll(2, 0), filled(b, "m", CAUSAL, "input", -inf), 0.5)),
        lambda x: x.masked_fill(~CAUSAL, -inf).masked_fill(ONE.roll(2, 0), 0.5).softmax(2),
    ),
    "in another shape": (
        (3, 3),
        lambda b: softmax(b, b.reshape("r", turned(b, b.affine("m", "input", None, mask(CAUSAL))), (1, 3, 3)), 1),
        lambda x: (x + mask(CAUSAL)).transpose(1, 2).softmax(1),
    ),
    "scaled behind": (
        (3, 3),
        lambda b: softmax(b, b.scale("s", filled(b, "m", CAUSAL, "input", -inf), 0.25)),
        lambda x: (x + mask(CAUSAL)).mul(0.25).softmax(2),
    ),
}


def filled(b: Builder, name: str, kept: Tensor, x: str, value: float) -> str:
    y = select(b, name, kept, x, scalar(value))
    assert isinstance(y, str)
    return y


def turned(b: Builder, x: str) -> str:
    return b.permute("t", "permute", x, (0, 2, 1))


@pytest.mark.parametrize("name", CASES)
def test_unmasked_entries_are_a_softmax_and_masked_ones_are_zero(name: str) -> None:
    shape, build, function = CASES[name]
    graph = built(shape, build)
    assert_is(graph, function)
    x = drawn(3, *shape, seed=9)
    assert torch.equal(graph(x) == 0, function(x).flatten(1) == 0)
    for node in graph.nodes:
        assert all(bool(t.isfinite().all()) for t in (node.weight, node.bias) if t is not None)


def test_rows_that_keep_the_same_entries_share_a_node() -> None:
    kept = torch.tensor([True, True, False])
    assert ops(built((4, 3), lambda b: softmax(b, b.affine("m", "input", None, mask(kept))))).count("softmax") == 1
    causal = built((2, 3, 3), lambda b: softmax(b, b.affine("m", "input", None, mask(CAUSAL)), 2))
    assert ops(causal).count("softmax") == 3


def test_a_fully_masked_row_is_an_error_or_zeros() -> None:
    kept = CAUSAL.clone()
    kept[1] = False
    with pytest.raises(ModelError, match=r"softmax \(node 'y'\) has a row with minus infinity only"):
        built((3, 3), lambda b: softmax(b, b.affine("m", "input", None, mask(kept))))

    def safe(b: Builder) -> str:
        return masked_softmax(b, "y", b.affine("m", "input", None, mask(kept)), [1], "softmax", empty=True)

    assert_is(built((3, 3), safe), lambda x: (x + mask(kept)).softmax(2).nan_to_num(0.0))


def test_other_uses_of_minus_infinity_have_no_rule() -> None:
    b = Builder((3, 3), 5)
    with pytest.raises(NoRule, match="of entries that are minus infinity"):
        masked_softmax(b, "y", b.affine("m", "input", None, mask(CAUSAL)), [1], "log-softmax")
    with pytest.raises(NoRule, match="minus infinity times a number that is not positive"):
        softmax(b, b.scale("s", filled(b, "f", CAUSAL, "input", -inf), -1.0))
    with pytest.raises(ModelError, match="has NaN or infinite entries"):
        built((3, 3), lambda b: b.affine("m", "input", None, mask(CAUSAL)))
