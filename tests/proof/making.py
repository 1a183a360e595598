"""Certificates made by hand: intervals as the checker derives them, default slopes."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from proofmap.proof import check as checker

Array = np.ndarray[Any, Any]
BALL: dict[str, Any] = {"norm": "inf", "eps": "0.05", "domain": ["0", "1"], "relative": False, "half": None}


def onnx_file(path: Path, shape: list[int], nodes: list[Any], tensors: dict[str, Array], output: str = "y") -> Path:
    """Write a graph with input x."""
    constants = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, of) for name, of in (("x", shape), (output, None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def mlp_file(path: Path, widths: tuple[int, ...], seed: int) -> Path:
    """Dense layers with relus between them, as Gemm."""
    random, nodes, tensors, at = np.random.default_rng(seed), [], {}, "x"
    for i, (n, m) in enumerate(pairwise(widths)):
        tensors[f"w{i}"] = random.normal(size=(m, n), scale=n**-0.5).astype(np.float32)
        tensors[f"b{i}"] = random.normal(size=m, scale=0.1).astype(np.float32)
        last = i == len(widths) - 2
        nodes.append(helper.make_node("Gemm", [at, f"w{i}", f"b{i}"], ["y" if last else f"z{i}"], transB=1))
        if not last:
            nodes.append(helper.make_node("Relu", [f"z{i}"], [f"h{i}"]))
            at = f"h{i}"
    return onnx_file(path, [1, widths[0]], nodes, tensors)


def outward(low: Array, high: Array) -> tuple[Array, Array]:
    """float32 ends outside the float64 ones."""
    a, b = low.astype(np.float32), high.astype(np.float32)
    a = np.where(a > low, np.nextafter(a, np.float32(-np.inf)), a)
    return a, np.where(b < high, np.nextafter(b, np.float32(np.inf)), b)


def proof_of(network: checker.Network, question: checker.Question) -> checker.Proof:
    """The intervals that follow, one relu after the other."""
    proof, known = checker.Proof(), checker.known_until(network, question, checker.Proof(), 1)
    for at, node in enumerate(network.nodes[1:], 1):
        if node.op == "relu":
            k, z = network.relus.index(at), node.inputs[0]
            entry, low, high = np.arange(network.count(z)), known.lower[z], known.upper[z]
            below, beyond = (
                checker.hidden(network, question, known, k, entry, np.full(len(entry), sign), proof)
                for sign in (-1.0, 1.0)
            )
            low, high = outward(np.maximum(low, -below), np.minimum(high, beyond))
            proof.lower.append(low)
            proof.upper.append(high)
            known.lower[z], known.upper[z] = low.astype(np.float64), high.astype(np.float64)
            known.units.append(known.units[-1] + len(low))
            known.opens.append(known.opens[-1] + int(((low < 0) & (high > 0)).sum()))
        found = checker.image(node, [(known.lower[i][None], known.upper[i][None]) for i in node.inputs])
        for kept, end in zip((known.lower, known.upper, known.radius), found, strict=True):
            kept.append(end[0])
    return proof


def question_of(
    x: Array, target: int, classes: int, ball: dict[str, Any] = BALL, mask: Array | None = None
) -> checker.Question:
    """All other classes are rivals."""
    groups = 0 if mask is None else int(mask.max()) + 1
    return checker.Question(x, ball, mask, groups, target, [c for c in range(classes) if c != target])


def npy(array: Array) -> bytes:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def members_of(model: Path, x: Array, mask: Array, target: int, ball: dict[str, Any] = BALL) -> dict[str, bytes]:
    """A certificate of a model at x, all of its members."""
    network = checker.read_network(model, x.shape)
    question = question_of(x, target, network.count(len(network.nodes) - 1), ball, mask)
    proof = proof_of(network, question)
    derived = checker.derive(network, question, proof)
    points = np.repeat(x[None], 1 + question.groups, 0)
    least = checker.overlaps(network, question, points)
    claim = {
        "format": "proofmap-certificate",
        "version": 1,
        "made_with": {},
        "model": {"kind": "onnx", "sha256": _hash(model.read_bytes()), "input": list(x.shape), "prepare": None},
        "input": {"sha256": _hash(x.tobytes()), "shape": list(x.shape)},
        "ball": ball,
        "groups": {"count": question.groups, "mask": "mask.npy"},
        "target": target,
        "rivals": question.rivals,
        "claims": {
            "full": derived.full.hex(),
            "frozen": "frozen.npy",
            "lower": {"full": float(least[0]).hex(), "frozen": "lower.npy", "points": "points.npy"},
            "order": None,
            "top": None,
        },
    }
    arrays = {"mask.npy": mask, "frozen.npy": derived.frozen, "lower.npy": least[1:], "points.npy": points}
    for k, (low, high) in enumerate(zip(proof.lower, proof.upper, strict=True)):
        arrays |= {f"lower-{k}.npy": low, f"upper-{k}.npy": high}
    return {"claim.json": json.dumps(claim, sort_keys=True).encode(), **{n: npy(a) for n, a in arrays.items()}}


def write(path: Path, members: dict[str, bytes]) -> Path:
    """Zip the members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
