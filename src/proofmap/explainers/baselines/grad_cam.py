"""Grad-CAM (Selvaraju et al. 2017) and Grad-CAM++ (Chattopadhyay et al. 2018): weighted maps of the last convolution.

With A^k the maps of a layer and g = ∂f_c / ∂A:

    map = max(0, Σ_k w_k A^k),    enlarged linearly along each side.

The layer is a node of the traced graph, so that a module and its graph give the same map. In an opaque part of the
model (`graph.opaque`) the layer is a module. Captum's LayerGradCam needs the module; the tests compare with it.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.graph import Node
from proofmap.graph.joined_inputs import JoinedInputs
from proofmap.graph.opaque import opaque_node
from proofmap.graph.ops import OPERATIONS, compute
from proofmap.graph.torch import HookedModule
from proofmap.graph.walk import push

_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}  # by the number of sides


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClassActivation(Baseline):
    """max(0, Σ_k w_k A^k) with weights w_k of a subclass.

    layer: the name of a module or node. By default the last convolution with the activation after it: A are the
    rectified maps, as in the paper.
    """

    layer: str | None = None

    @abstractmethod
    def _weights(self, maps: Tensor, slope: Tensor) -> Tensor:
        """Return w (n, K) from A and g, both (n, K, positions)."""

    def for_joined(self, joined: JoinedInputs) -> Baseline:
        if joined.is_one:
            return super().for_joined(joined)
        raise InputError(
            f"{type(self).__name__} got {len(joined.parts)} inputs, expected one: maps of a convolution do not tell "
            "which input they belong to; choose another method, such as saliency"
        )

    def _maps(self, task: BaselineBatch) -> Tensor:
        at = _last_convolution(task) if self.layer is None else _node_of_layer(task, self.layer)
        maps, slope = _maps_and_gradient(task, at)
        if maps.ndim != task.x.ndim or task.x.ndim - 2 not in _MODES:
            raise InputError(
                f"{type(self).__name__} got the layer {at!r} with values {tuple(maps.shape[1:])} for samples "
                f"{tuple(task.x.shape[1:])}, expected maps over the sides of the samples: choose another layer"
            )
        weights = self._weights(maps.flatten(2), slope.flatten(2))
        heat = torch.einsum("nk,nk...->n...", weights, maps).relu()[:, None]  # (n, 1, *sides)
        return F.interpolate(heat, size=task.x.shape[2:], mode=_MODES[task.x.ndim - 2], align_corners=False)


@dataclass(frozen=True, eq=False, repr=False)
class GradCAM(ClassActivation):
    """w_k = mean over positions of g^k (Selvaraju et al. 2017)."""

    def _weights(self, maps: Tensor, slope: Tensor) -> Tensor:
        return slope.mean(2)


@dataclass(frozen=True, eq=False, repr=False)
class GradCAMPlusPlus(ClassActivation):
    """w_k = Σ_ij α_ij max(0, g_ij), α_ij = g_ij² / (2 g_ij² + g_ij³ Σ_ab A_ab) (Chattopadhyay et al. 2018).

    These are the derivatives of exp(f_c) for f_c piecewise linear in A, without their common factor exp(f_c), which
    scales the whole map and can overflow. For g > 0, α g = g / (2 + g Σ A); other entries do not count.
    """

    def _weights(self, maps: Tensor, slope: Tensor) -> Tensor:
        rising = slope.clamp(min=0)
        return (rising / (2 + rising * maps.sum(2, keepdim=True))).sum(2)


def _last_convolution(task: BaselineBatch) -> str:
    """Return the last convolution, or the activation that is its only reader."""
    graph = task.graph
    convolved = [node.name for node in graph.nodes if node.op == "conv"]
    if not convolved:
        inside = list(_modules_of_opaque_part(task).items())
        convolutions = [k for k, (_, module) in enumerate(inside) if isinstance(module, _ConvNd)]
        if convolutions:
            behind = inside[convolutions[-1] + 1 :][:1]
            named = [name for name, module in behind if type(module).__module__ == nn.ReLU.__module__]
            return named[0] if named else inside[convolutions[-1]][0]
        raise InputError(
            "Grad-CAM got a network without a convolution, expected maps to weigh: choose another method, such as "
            "saliency or first-order, or name a layer with layer=..."
        )
    readers = [node for node in graph.nodes if convolved[-1] in node.inputs]
    return readers[0].name if len(readers) == 1 and OPERATIONS[readers[0].op].activation else convolved[-1]


def _modules_of_opaque_part(task: BaselineBatch) -> dict[str, nn.Module]:
    """Return the modules of an opaque part, in the order of their calls."""
    foreign = opaque_node(task.graph)
    return foreign[1].layers(task.x[:1]) if foreign is not None and isinstance(foreign[1], HookedModule) else {}


def _node_of_layer(task: BaselineBatch, layer: str) -> str:
    """Return the node of that name, or the last node of the module of that name."""
    graph, parts = task.graph, _modules_of_opaque_part(task)
    inside = [n.name for n in graph.nodes if n.name == layer or n.name.startswith((f"{layer}.", f"{layer}#"))]
    if layer in parts:
        return layer
    if not inside:
        names = ", ".join(map(repr, [*parts, *(node.name for node in graph.nodes)]))
        raise InputError(f"got layer={layer!r}, which the network does not have, expected one of {names}")
    return layer if layer in inside else inside[-1]


def _maps_and_gradient(task: BaselineBatch, at: str) -> tuple[Tensor, Tensor]:
    """Return (A, ∂f_c / ∂A) at the node. Paths that bypass the node stay constant."""
    graph, part, names = task.graph, opaque_node(task.graph), {node.name for node in task.graph.nodes}
    start = task.x if part is None else task.x.detach().requires_grad_()
    maps = start

    def step(node: Node, *inputs: Tensor) -> Tensor:
        nonlocal maps
        if part is not None and node is part[0] and isinstance(part[1], HookedModule) and at not in names:
            maps, value = part[1].inside(inputs[0], at)
            return value
        value = compute(node, *inputs)
        if node.name == at:
            maps = value = value.detach().requires_grad_()
        return value

    with torch.enable_grad():
        score = push(graph, start, step).flatten(1).gather(1, task.target[:, None])
        (slope,) = torch.autograd.grad(score.sum(), maps)
    return maps.detach(), slope
