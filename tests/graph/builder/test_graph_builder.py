"""The graph builder: names, placeholders, errors, and broadcasting."""

import pytest

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph.builder import pooling, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.sliding_windows import SlidingWindow
from tests.graph.built import CPU, DOUBLE, drawn


def test_names_are_free() -> None:
    b = Builder((3,), 5)
    assert [b.add_node("act", "relu", ["input"]) for _ in range(3)] == ["act", "act#2", "act#3"]
    assert b.add_node("input", "relu", ["input"]) == "input#2"


def test_the_last_node_of_a_word_takes_its_name() -> None:
    b = Builder((2, 4), 5)
    pooled = pooling.reduce_max(b, "largest", "input", [1], keepdim=False)
    assert (b.name_result("largest", pooled, 1), b.shape("largest")) == ("largest", (2,))
    again = pooling.reduce_max(b, "largest", "input", [1], keepdim=False)
    assert b.name_result("largest", again, 3) == again
    inner = b.add_node("block.act", "relu", [again])
    assert b.name_result("block", inner, len(b.nodes)) == inner  # an earlier call made this node


def test_nodes_that_do_not_fit_are_named() -> None:
    b = Builder((3,), 5)
    with pytest.raises(ModelError, match=r"linear \(node 'bad'\) does not fit its input"):
        weighted_layers.linear(b, "bad", "input", drawn(2, 4), None)
    with pytest.raises(ModelError, match=r"conv \(node 'bad'\) gets 3 channels, but its weights are for 2"):
        weighted_layers.conv(
            Builder((3, 3, 3), 5), "bad", "input", drawn(4, 1, 2, 2), None, SlidingWindow.of((2, 2)), 2
        )
    with pytest.raises(ModelError, match="node 'bad' joins shapes"):
        b.affine("bad", "input", drawn(2), None)
    with pytest.raises(ModelError, match=r"node 'bad' joins shapes \(3,\) and \(2,\)"):
        b.add("bad", "input", slicing.slice(b, "part", "input", 0, 0, 2))
    with pytest.raises(ModelError, match=r"pad \(node 'bad'\) has shape .* expected 1 to"):
        slicing.pad(b, "bad", "input", (0, 2**40))
    with pytest.raises(ModelError, match=r"slice \(node 'bad'\) has shape \(0,\), expected 1 to"):
        slicing.slice(b, "bad", "input", 0, 2, 2)
    with pytest.raises(ModelError, match=r"reshape \(node 'bad'\) does not fit its input: 15 scalars into \(5, 4\)"):
        b.batched_reshape("bad", "reshape", "input", (5, 4))


def test_constants_combine_with_samples() -> None:
    b = Builder((2, 3), 5)
    assert b.sample_constant("n", "add", drawn(3), 3).shape == (3,)
    assert b.sample_constant("n", "add", drawn(1, 2, 3), 3).shape == (2, 3)
    assert b.sample_constant("n", "add", drawn(1, 2, 3).expand(5, 2, 3), 3).shape == (2, 3)
    for value in (drawn(5, 2, 3), drawn(1, 1, 2, 3), drawn(1, 2, 3).expand(4, 2, 3)):
        with pytest.raises(ModelError, match=r"add \(node 'n'\) mixes the samples"):
            b.sample_constant("n", "add", value, 3)


def test_all_needed_operations_without_a_rule_are_listed() -> None:
    b = Builder((3,), 5)
    two = b.add_unsupported("two", "Cosh", [b.add_unsupported("one", "Sinh", ["input"], (3,))], (3,))
    b.add_unsupported("three", "Tan", [two], (3,))
    with pytest.raises(UnsupportedError, match=r"no rule for Sinh \(node 'one'\), Cosh \(node 'two'\)") as caught:
        b.finish(two, CPU, DOUBLE)
    assert caught.value.nodes == (("one", "Sinh"), ("two", "Cosh"))
    assert b.finish("input", CPU, DOUBLE).output == "input"
