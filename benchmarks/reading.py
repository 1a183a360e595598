"""ONNX files that the certificate checker reads, its reasons to refuse others, and the decisions that are certified.

    python benchmarks/reading.py FOLDER [--most 60] [--points 3] [--certify]

The smallest files in the folder and its subfolders are tried, gzipped or not. For a file that the checker reads, its
float32 intervals must contain the results of onnxruntime at random points (uniform in [0, 1]). A decision needs at
least two outputs.

With `--certify`, Proofmap makes a certificate about the file for the decision at one such point, and the checker
derives it again. The radius is the largest of a few radii (ℓ∞) with a proof.
"""

from __future__ import annotations

import argparse
import gzip
import io
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

import proofmap as pm
from proofmap.proof import check
from proofmap.proof.statement import Array

_CERTIFIED_RADII = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # tried from the largest to the smallest


@dataclass(frozen=True)
class File:
    """An ONNX file, unpacked."""

    path: Path
    content: bytes


@dataclass(frozen=True)
class Row:
    """One file: the number of outputs of its network, or the reason why it was refused."""

    outputs: int = 0
    reason: str = ""
    outside: int = 0  # points at which onnxruntime's result is outside the checker's interval
    radius: float = 0.0  # the radius of the certified ball around a point


def files(folder: Path) -> list[File]:
    """Return all ONNX files of a folder, the smallest first."""
    found = []
    for path in sorted(folder.rglob("*.onnx*")):
        data = path.read_bytes()
        content = gzip.decompress(data) if path.suffix == ".gz" else data
        if is_onnx(content):
            found.append(File(path, content))
    return sorted(found, key=lambda file: (len(file.content), file.path))


def is_onnx(content: bytes) -> bool:
    """Return whether the file is an ONNX file."""
    try:
        return bool(onnx.load_model_from_string(content).graph.node)
    except Exception:
        return False


def row(content: bytes, points: int) -> Row:
    """Read one file and compare it with onnxruntime."""
    graph = onnx.load_model_from_string(content).graph
    constants = {one.name for one in graph.initializer}
    (given,) = (one for one in graph.input if one.name not in constants)
    sides = [dim.dim_value or 1 for dim in given.type.tensor_type.shape.dim]
    try:
        network = check.read_network(content, tuple(sides))
    except check.Rejected as error:
        return Row(reason=str(error).removeprefix("the model: "))
    x = np.random.default_rng(0).random((points, *sides)).astype(np.float32)
    session = onnxruntime.InferenceSession(content, _quiet())
    values = np.stack([session.run(None, {given.name: point})[0].reshape(-1) for point in x])
    low, high = intervals(network, x)
    # before a softmax, the intervals are those of the logits and cannot be compared
    outside = ((values < low) | (values > high)).any(1) & (network.decision_margin == 0)
    return Row(outputs=network.nodes[-1].count, outside=int(outside.sum()))


def certified(content: bytes, seed: int = 0) -> float:
    """Return the largest radius for which the checker accepts a proof of the decision at a random point, or 0."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(content)
        model = pm.load(path)
        x = torch.rand(1, *model.input.shape, generator=torch.Generator().manual_seed(seed))
        for eps in _CERTIFIED_RADII:
            whole = torch.zeros(model.input.shape, dtype=torch.int64)
            found = pm.EVA(model, pm.Ball(eps), groups=whole, progress=False).explain(x)
            if not bool(found.proven):
                continue
            made = found.certificate(progress=False)
            given = io.BytesIO()
            np.save(given, made.x)
            assert made.exported is None, "the certificate is about another file"
            if check.read_claim(made.content, content, given.getvalue()).decided(0):
                return eps
    return 0.0


def _quiet() -> onnxruntime.SessionOptions:
    """Return options without warnings about constants that are inputs too."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return options


def intervals(network: check.Network, x: Array) -> tuple[Array, Array]:
    """Return the checker's float32 intervals at the points."""
    flat = x.reshape(len(x), -1)
    ball = {"norm": "inf", "eps": "0", "domain": None, "relative": False, "half": None}
    prover = check.Prover(network, check.Question(flat[0], ball, None, 0, check.Decision(0, [1])), flat)
    return prover.lower[-1].T, prover.upper[-1].T


def main() -> None:
    """Print a row for each file, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=60, help="how many of the smallest files")
    parser.add_argument("--points", type=int, default=3, help="random inputs of each")
    parser.add_argument(
        "--certify", action="store_true", help="make and check a certificate for each file that is read"
    )
    args = parser.parse_args()
    rows = []
    for file in files(args.folder)[: args.most]:
        found = row(file.content, args.points)
        if args.certify and found.outputs > 1:
            try:
                found = replace(found, radius=certified(file.content))
            except pm.ProofmapError as error:
                print(f"no certificate: {error!s:.200}")
        rows.append(found)
        said = found.reason or f"read, {found.outputs} outputs"
        said += f"; certified for ε = {found.radius:g}" if found.radius else ""
        said += f"; {found.outside} POINTS OUTSIDE" if found.outside else ""
        print(f"{len(file.content):>10}  {str(file.path.relative_to(args.folder))[:70]:70}  {said}", flush=True)
    read, decided = sum(not found.reason for found in rows), sum(found.outputs > 1 for found in rows)
    outside = sum(found.outside for found in rows)
    print(f"{read} of {len(rows)} files are read, {decided} of them with a decision; {outside} points outside")
    if args.certify:
        print(f"{sum(found.radius > 0 for found in rows)} of {len(rows)} files have a certified decision")
    sys.exit(1 if outside else 0)


if __name__ == "__main__":
    main()
