"""proofmap claim: what was proven, as questions to other verifiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proofmap.cli import names, texts
from proofmap.cli import options as o
from proofmap.cli.names import among
from proofmap.cli.saved import saved
from proofmap.cli.subject import ModelName, Source

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import Tensor

    from proofmap.graph import Graph
    from proofmap.sources import Model

__all__ = ["claim"]

_TIMEOUT = 300  # seconds that instances.csv gives a tool for each question


def claim(
    *,
    model: ModelName,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="Files that proofmap explain wrote (.proofmap), or folders of them.",
            show_default=False,
        ),
    ],
    groups: Annotated[
        str,
        typer.Option(
            help="Of which AO(B_u) claims go beside AO(B)'s: --groups all, top (the ten that score most) or none.",
            autocompletion=among(names.WHICH),
        ),
        texts.one_of(names.WHICH, "--groups"),
    ] = "top",
    out: Annotated[Path, typer.Option(help="The folder for the questions: --out claims")] = Path("claims"),
    source: Source,
) -> None:
    """Write every proven bound of explanations as a question that other verifiers answer: ONNX and VNN-LIB.

    unsat, for a file in OUT/vnnlib with its network in OUT/onnx, confirms the claim. OUT/instances.csv lists them as
    VNN-COMP does.

    For instance: proofmap claim zoo:mnist_mlp maps --groups all
    """
    from proofmap.claims.claim import claims_of, input_hash, text_of
    from proofmap.explain import Explanation
    from proofmap.graph.onnx import with_rows
    from proofmap.records import write
    from proofmap.show.sides import checked

    subject = source.model(model)
    explanations = [(file.stem, Explanation.load(file)) for path in inputs for file in saved(path)]
    _check_names([name for name, _ in explanations])
    files = [f"model file {file.path}, sha256 {file.sha256}" for file in subject.files]
    written: dict[str, bytes] = {}
    rows = []
    for name, e in explanations:
        graph = checked(subject.network, e.x, name, e.model_hash)
        network = _network(subject, graph)
        for k, one in claims_of(e, name, graph.classes, groups):  # type: ignore[arg-type]  # checked as a text
            net, property_ = f"onnx/{one.form.name}.onnx", f"vnnlib/{one.name}.vnnlib"
            if net not in written:
                written[net] = with_rows(network, one.form.rows).SerializeToString()
            about = [
                *files,
                f"network as it was explained, proofmap's digest {e.model_hash}",
                f"input {name}, sample {k}, sha256 of its values as {_plain(e.x)} {input_hash(e.x[k])}",
            ]
            written[property_] = text_of(one, net, about).encode()
            rows.append(f"{net},{property_},{_TIMEOUT}\n")
    written["instances.csv"] = "".join(rows).encode()
    o.make_folder(out)
    for place, content in written.items():
        write(out / place, content, ours=True)
    typer.echo(f"wrote {len(rows)} claim{'s' * (len(rows) != 1)} to {out}")


def _check_names(found: Sequence[str]) -> None:
    """Two files of one name would be written over each other."""
    from proofmap.errors import InputError

    twice = next((name for k, name in enumerate(found) if name in found[:k]), None)
    if twice is not None:
        raise InputError(f"got two explanations named {twice}, expected different names: write them to two folders")


def _plain(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _network(model: Model, graph: Graph) -> ModelProto:
    """The user's own file where it takes the explained values and gives logits; else the network as it was traced."""
    from proofmap.graph.onnx import as_onnx, parse

    preparation = model.preparation
    bare = preparation.mean is None and preparation.std is None and preparation.layout == "NCHW"
    if Path(model.name).suffix == ".onnx" and bare and graph.taken_off is None:
        file = parse(Path(model.name))
        ends = file.graph.output
        if len(ends) == 1 and len(ends[0].type.tensor_type.shape.dim) == 2:
            return file
    return as_onnx(graph)
