"""Statements of certificates about outputs: the fields of a claim, and the forms that split trees bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.graph.rewrite.output_heads import as_model_outputs, forms_of_outputs
from proofmap.proof import check
from proofmap.verify.objectives import Label, Output


@dataclass(frozen=True, eq=False)
class OutputStatement:
    """The fields of a claim's "statement": one output, a region of outputs, or one label."""

    fields: Mapping[str, Any]

    @classmethod
    def of_output(cls, objective: Output, graph: Graph, value: float) -> OutputStatement:
        """State the limits of an output; `value` is the centre that its change is measured from.

        Raises:
            InputError: The largest of a region has to stay high. No single form proves this.
        """
        entries = objective.entries(graph)
        reduce = objective.reduce if len(entries) > 1 else None
        if reduce == "maximum" and objective.direction != "up":
            raise InputError(
                f"got the maximum of a region with the direction {objective.direction!r}, expected 'up': a certificate "
                "states that no output of the region is above a limit; take reduce='mean', or one output, for the "
                "other directions"
            )
        fields = {"kind": "output", "entries": entries, "reduce": reduce, "direction": objective.direction}
        return cls({**fields, "centre": repr(float(value))})

    @classmethod
    def of_label(cls, objective: Label, graph: Graph, label: int) -> OutputStatement:
        """State that a label is on (1) or off (0)."""
        return cls({"kind": "label", "entry": Output(objective.at).entries(graph)[0], "on": bool(label)})


def model_graph(graph: Graph) -> Graph:
    """Return the network with the outputs that the model itself returns, and its file.

    Raises:
        InputError: The model ends in a softmax, whose outputs the checker does not bound.
    """
    if graph.taken_off in ("softmax", "log-softmax"):
        raise InputError(
            f"got an output of a network that ends in a {graph.taken_off}, expected one without it: certificates bound "
            "no probabilities of classes; explain an output of the network without its last layer, or the decision"
        )
    return replace(as_model_outputs(graph), file=graph.file)


def ends_in_sigmoid(graph: Graph) -> bool:
    """Return whether each output is a probability of its own, as in the checker's statement of a label."""
    last = graph[graph.output]
    while last.op in ("reshape", "index", "permute", "slice") and last.inputs:
        last = graph[last.inputs[0]]
    return last.op == "sigmoid"


def without_last_sigmoid(graph: Graph) -> Graph:
    """Return the network of the inputs of its last sigmoid; any other network is returned unchanged."""
    last = graph[graph.output]
    if last.op != "sigmoid":
        return graph
    nodes = tuple(node for node in graph.nodes if node.name != last.name)
    return replace(graph, nodes=nodes, output=last.inputs[0])


def with_rows(graph: Graph, statement: check.OutputLimit) -> tuple[Graph, Tensor, int]:
    """Return a network whose outputs are the statement's rows times a scale, their unit forms, and the scale.

    The scale is the number of entries of a mean, so that forms have the coefficients 1 and -1 as in the checker.
    """
    scale = len(statement.entries) if statement.reduce == "mean" else 1
    numbers = statement.rows
    if statement.reduce == "maximum":
        weight, signs = torch.eye(len(numbers)).double(), torch.ones(len(numbers)).double()
    else:
        signs = torch.tensor(statement.signs).double()
        weight = signs[:, None].expand(-1, len(statement.entries)).clone()
    bias = -signs * float(statement.middle) * scale
    headed = forms_of_outputs(graph, statement.entries, weight, bias)
    return headed, torch.eye(len(numbers)).double(), scale
