"""Model randomisation: the rank correlation of maps before and after the weights of the network are shuffled.

Adebayo et al. 2018, "Sanity checks for saliency maps".
"""

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

Remade: TypeAlias = Callable[[Graph, Tensor, Tensor], Samples]
Order: TypeAlias = Literal["whole", "cascade"]

_WEIGHTED_OPS = frozenset({"linear", "matmul", "conv", "conv_transpose"})  # layers whose weights are shuffled


@dataclass(frozen=True, eq=False)
class Randomisation(Metric[Remade]):
    """|ρ| of the pixels' ranks in φ(f, x, c) and φ(f', x, c), where f' is f with weights in random order.

    ρ is Spearman's correlation. Lower is better: the value is 1 if the map does not change or only changes its sign,
    and near 0 if the maps are unrelated. A map should pass this sanity check, but a low value alone is no merit:
    random maps have one too.

    In f', the weights and the biases of all dense and convolutional layers are shuffled. The architecture and the scale
    of each layer stay. The class c is the target, or the class that f predicts.
    order: "whole": all layers at once; "cascade": the last layer, the last two, and so on; the value is their mean.
    networks: the number of random f'; the value is their mean.

        paper    whole, one network: the end of the paper's cascade; the paper also reports the similarity SSIM
        cascade  cascade, one network: one explanation per layer

    Called as Randomisation()(model, x, target, method) with method(network, x, target) -> attributions like x, where
    the network is a pm.Graph; for example lambda net, x, c: dataclasses.replace(eva, model=net).attribute(x, c).
    batch: samples that are explained together; by default about 16 MB.

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
        """Return ρ (N, networks, stages). Stages go from the last layer to all layers, or are only all layers."""
        return self._correlations(self._case(model, x, target, method))

    def _correlations(self, case: Case) -> Tensor:
        layers = _layers(case.graph)
        stages = range(1, len(layers) + 1) if self.order == "cascade" else [len(layers)]
        trained = self._pixel_attributions(case, case.graph)
        found = [
            spearman(trained, self._pixel_attributions(case, shuffled(case.graph, layers[-stage:], self.seed, network)))
            for network in range(self.networks)
            for stage in stages
        ]
        return torch.stack(found, dim=1).view(len(case.x), self.networks, -1).to(case.x.dtype)

    def _pixel_attributions(self, case: Case, graph: Graph) -> Tensor:
        """Return the attributions of pixels (N, G) from the method's explanation of a network."""
        variables, maps = Variables.of(case.x, pixels()), []
        for x, target in zip(case.x.split(case.rows), case.target.split(case.rows), strict=True):
            maps.append(variables.sums(check_attributions(type(self).__name__, case.subject(graph, x, target), x)))
        return torch.cat(maps)


def shuffled(graph: Graph, layers: list[str], seed: int, network: int = 0) -> Graph:
    """Return the graph with the weights and the biases of these layers in random order."""

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
    """Return the layers whose weights can be shuffled, in the order of the graph."""
    part = opaque_node(graph)
    if part is not None:
        raise InputError(
            f"Randomisation got a model with {part[1].missing_in_words()}, whose weights it cannot shuffle: expected "
            "one that can be read whole"
        )
    layers = [node.name for node in graph.nodes if node.op in _WEIGHTED_OPS and node.weight is not None]
    if not layers:
        raise InputError("Randomisation got a model without weights, expected a network with layers to shuffle")
    return layers
