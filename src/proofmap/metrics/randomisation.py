"""Randomisation: a map that does not change when the network's weights are random is no explanation of the network.

Adebayo et al. 2018, "Sanity checks for saliency maps".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph, Network
from proofmap.graph.ir import Node
from proofmap.graph.opaque import opaque_node
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.groups import pixels
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, Subject, table
from proofmap.metrics.mu_fidelity import spearman
from proofmap.metrics.seeded_noise import seeded
from proofmap.metrics.validation import check_attributions
from proofmap.metrics.variables import Variables
from proofmap.settings import check_choice, check_count, count

__all__ = ["Randomisation", "Remade", "shuffled"]

Remade: TypeAlias = Callable[[Graph, Tensor, Tensor], Samples]
Order: TypeAlias = Literal["whole", "cascade"]

_MIXING = frozenset({"linear", "matmul", "conv", "conv_transpose"})  # whose weights say what goes into what


@dataclass(frozen=True, eq=False)
class Randomisation(Metric[Remade]):
    """|ρ| of the pixels' ranks in φ(f, x, c) and φ(f', x, c), where f' is f with weights in random order.

    ρ is Spearman's correlation. Less is better: 1 where the map stays as it is or turns round, near 0 where none of it
    is left. It is a check that a map should pass, and a low value is no merit: a random map passes it.

    In f' the weights of each layer that mixes entries (dense, convolutional) are shuffled, and so are its biases: the
    architecture stays, and the scale of every layer. The class c is the one that x is given, of f where that is None.
    order: "whole", all layers at once; "cascade", the last layer, the last two, and so on, and the mean over these.
    networks: how many f' are drawn, of which the mean is taken.

        paper    whole, one network: the end of its cascade, without the similarity of pictures (SSIM) it reports too
        cascade  cascade, one network: as many explanations as there are layers

    Called as Randomisation()(model, x, target, method) with method(network, x, target) -> attributions like x, where
    the network is a pm.Graph: lambda net, x, c: dataclasses.replace(eva, model=net).attribute(x, c), for one.
    batch: samples that are explained together; by default some 16 MB of them.

    >>> def saliency(network, x, target):
    ...     return pm.explainers.as_attributor("saliency", network).attribute(x, target)
    >>> pm.metrics.Randomisation()(model, x, None, saliency).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "randomisation"
    label: ClassVar[str] = "Randomisation"
    higher_is_better: ClassVar[bool] = False
    subject: ClassVar[Subject] = "method"
    presets: ClassVar[Presets] = table("order", "networks", paper=("whole", 1), cascade=("cascade", 1))

    preset: str = "paper"
    _: KW_ONLY
    order: ByPreset[Order] = ByPreset(partial(check_choice, words=Order))
    networks: ByPreset[int] = ByPreset(check_count)
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    def _values(self, case: Case) -> Tensor:
        return self._correlations(case).abs().mean((1, 2))

    def correlations(self, model: Network, x: Samples, target: Target, method: Remade) -> Tensor:
        """ρ itself: (N, networks, stages), from the last layer alone to all of them, or all of them alone."""
        return self._correlations(self._case(model, x, target, method))

    def _correlations(self, case: Case) -> Tensor:
        layers = _layers(case.graph)
        stages = range(1, len(layers) + 1) if self.order == "cascade" else [len(layers)]
        trained = self._ranked(case, case.graph)
        found = [
            spearman(trained, self._ranked(case, shuffled(case.graph, layers[-stage:], self.seed, network)))
            for network in range(self.networks)
            for stage in stages
        ]
        return torch.stack(found, dim=1).view(len(case.x), self.networks, -1).to(case.x.dtype)

    def _ranked(self, case: Case, graph: Graph) -> Tensor:
        """What pixels are ranked by, as the method explains that network: (N, G)."""
        variables, maps = Variables.of(case.x, pixels()), []
        for x, target in zip(case.x.split(case.rows), case.target.split(case.rows), strict=True):
            maps.append(variables.sums(check_attributions(type(self).__name__, case.subject(graph, x, target), x)))
        return torch.cat(maps)


def shuffled(graph: Graph, layers: list[str], seed: int, network: int = 0) -> Graph:
    """The graph with the weights and the biases of these layers each in a random order."""

    def mixed(tensor: Tensor | None, of: str, node: Node) -> Tensor | None:
        if tensor is None:
            return None
        order = torch.randperm(tensor.numel(), generator=seeded(seed, of, network, node.name)).to(tensor.device)
        return tensor.flatten()[order].view(tensor.shape)

    nodes = [
        replace(node, weight=mixed(node.weight, "weight", node), bias=mixed(node.bias, "bias", node))
        if node.name in layers
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes), file=None)


def _layers(graph: Graph) -> list[str]:
    """The layers whose weights are shuffled, in the order of the graph."""
    part = opaque_node(graph)
    if part is not None:
        raise InputError(
            f"Randomisation got a model with {part[1].named()}, whose weights it cannot shuffle: expected one that can "
            "be read whole"
        )
    layers = [node.name for node in graph.nodes if node.op in _MIXING and node.weight is not None]
    if not layers:
        raise InputError("Randomisation got a model without weights, expected a network with layers to shuffle")
    return layers
