"""Hybrid EVA of large networks: every member through the whole network, compared with incremental recomputation.

python benchmarks/hybrid.py [--networks vgg16 efficientnet-lite0] [--images 1] [--samples 8] [--groups 12]
    [--device cpu|cuda] [--precision float32|float16|bfloat16] [--pictures FOLDER] [--weights FILE] [--json FILE]

Both use the same samples in one run. EfficientNet-Lite0 is trained and needs `proofmap[imagenet]`. VGG16 has the
weights of FILE, torchvision's vgg16-*.pth; without it, random weights are enough to measure time. The images are the
first of FOLDER, in the order of their names, or noise.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ProofmapError
from proofmap.execution.family_sampler import Sampler, channels_last, channels_last_graph
from proofmap.explainers.methods.enclosure import enclose, overlap_of_boxes
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.inputs.family import Family
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.sources import Preparation, open_samples, read_model
from proofmap.verify.overlap import OverlapSettings

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder


Boxes = tuple[Tensor, Tensor]
NETWORKS = ("vgg16", "efficientnet-lite0")
IMAGE_SHAPE = (224, 224)
_PLAIN_BATCH = 8  # samples in one batch of the plain computation


def vgg16(weights: Path | None) -> tuple[nn.Module, str]:
    """Return the network, and the layer of 4096 neurons at which the paper splits it.

    Random weights keep the scale of the values (He et al. 2015). With torch's own, noise would vanish in rounding
    errors.
    """
    if weights is not None:
        return trained("vgg16", weights), "network.classifier.4"
    model = pm.zoo.vgg16()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return model, "classifier.4"


def trained(name: str, weights: Path | None = None) -> nn.Module:
    """Return a packaged model with its normalisation in front, for pixels in [0, 1]."""
    network = read_model(f"zoo:{name}", weights=weights).network
    assert isinstance(network, nn.Module)
    return network


def pixels(args: argparse.Namespace) -> Tensor:
    """Return pictures of the folder, (N, 3, 224, 224) in [0, 1], or noise."""
    if args.pictures is None:
        return torch.rand(args.images, 3, *IMAGE_SHAPE)
    found = open_samples([args.pictures], Preparation(size=IMAGE_SHAPE, channels=3))
    if len(found) < args.images:
        raise InputError(f"{args.pictures} holds {len(found)} pictures, expected --images {args.images} of them")
    return torch.stack([found.read(k) for k in range(args.images)])


def plain(graph: pm.Graph, precision: torch.dtype, family: Family, delta: Tensor) -> Boxes:
    """Compute the box of every member by running the whole head for it, in one precision and the same layout."""
    assert family.mask is not None
    ends: list[Boxes] = []
    with full_precision(delta.device):
        head = channels_last_graph(graph, delta.device, precision)
        start = head(channels_last(family.x.to(precision))).to(delta.dtype)
        for member in range(family.members):
            moved = delta.masked_fill(family.mask == member - 1, 0.0)
            lower = upper = start
            for part in moved.split(_PLAIN_BATCH):
                points = channels_last((family.x + part).flatten(0, 1).to(head.dtype))
                value = head(points).to(start.dtype).unflatten(0, part.shape[:2])
                lower, upper = torch.minimum(value.amin(0), lower), torch.maximum(value.amax(0), upper)
            ends.append((lower, upper))
    lower, upper = (torch.stack(side, dim=1) for side in zip(*ends, strict=True))
    return lower, upper


def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure both computations on one network."""
    device = torch.device(args.device)
    torch.manual_seed(0)
    model, split = vgg16(args.weights) if name == "vgg16" else (trained("efficientnet_lite0"), None)
    x = pixels(args)
    graph = pm.trace(model, x[:1]).to(device, torch.float32)
    x = x.to(device)
    head, tail = cut(graph, split or graph[graph.output].inputs[0])
    mask = pm.groups.grid(args.groups)((3, *IMAGE_SHAPE))[None].to(device)
    family = pm.Ball(0.02, domain=(0.0, 1.0)).at(x, mask.expand_as(x))
    delta = family.sample(args.samples, torch.Generator(device).manual_seed(0))
    target = graph(x).argmax(1).detach()
    available = budget(None, device)
    low = None if args.precision == "float32" else getattr(torch, args.precision)

    def incremental(precision: torch.dtype | None, noise: Tensor) -> Boxes:
        return enclose(Sampler(head, precision, available), x, mask, noise, family.groups)

    def scores(boxes: Boxes) -> Tensor:
        value = overlap_of_boxes(tail, *boxes, target, OverlapSettings(pm.bounds.Backward(), available))
        return value[:, :1] - value[:, 1:]

    few, own = delta[:1], low or torch.float32
    incremental(low, few)  # warm up
    found, seconds = measuring.clocked(lambda: incremental(low, delta), device)
    truth, plain_seconds = measuring.clocked(lambda: plain(head, own, family, delta), device)
    _, tail_seconds = measuring.clocked(lambda: scores(found), device)
    spent = measuring.operations(lambda: incremental(low, few))
    whole = measuring.operations(lambda: plain(head, own, family, few))
    row = {
        "network": name,
        "weights": "random" if name == "vgg16" and args.weights is None else "trained",
        "images": "noise" if args.pictures is None else "pictures",
        "samples": args.samples,
        "groups": family.groups,
        "precision": args.precision,
        "plain s/image": plain_seconds / len(x),
        "incremental s/image": seconds / len(x),
        "last layer s/image": tail_seconds / len(x),
        "times as fast": plain_seconds / seconds,
        "times fewer operations": whole / spent,
        "largest relative difference": measuring.largest_difference(found, truth),
        "rank correlation with plain": measuring.rank_correlation(scores(found), scores(truth)),
    }
    if low is not None:
        exact = incremental(None, delta)
        row["rank correlation with float32"] = measuring.rank_correlation(scores(found), scores(exact))
    return row


def main() -> None:
    """Compare on each network and print a line for each number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--groups", type=int, default=12, help="cells of the grid on each side")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--pictures", type=Path, help="a folder of pictures in place of noise")
    parser.add_argument("--weights", type=Path, help="a file with those of VGG16")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"{measuring.machine(args.device)}, {args.images} images")
    try:
        rows = [compare(name, args) for name in args.networks]
    except ProofmapError as error:
        parser.error(str(error))
    for row in rows:
        for key, value in row.items():
            print(f"{key:>30}: {value:.4g}" if isinstance(value, float) else f"{key:>30}: {value}")
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
