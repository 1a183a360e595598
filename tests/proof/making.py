"""Certificates made by hand: intervals as the checker derives them, default slopes."""

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


def proof_of(network: checker.Network, question: checker.Question) -> dict[str, Array]:
    """The intervals that follow, one relu or curve after the other."""
    prover, stored = checker.Prover(network, question), np.zeros((2, network.units), np.float32)
    for node in network.nodes[1:]:
        if node.op in ("relu", "curve"):
            z = node.inputs[0]
            found = prover.hidden(z, np.tile(np.arange(node.count), 2), np.repeat([-1.0, 1.0], node.count))
            low = np.maximum(prover.lower[z][:, 0], -found[: node.count])
            high = np.minimum(prover.upper[z][:, 0], found[node.count :])
            mine = stored[:, node.first : node.first + node.count]
            mine[:] = outward(low, high)
            prover.lower[z], prover.upper[z] = (end.astype(np.float64)[:, None] for end in mine)
        prover.append()
    return {"intervals": stored}


def known(network: checker.Network, question: checker.Question, proof: dict[str, Array]) -> checker.Prover:
    """All nodes bounded, with the stored intervals once they are proven."""
    prover = checker.Prover(network, question)
    for node in network.nodes[1:]:
        if node.op in ("relu", "curve"):
            prover.settle(node.inputs[0], proof["intervals"][:, node.first : node.first + node.count])
        prover.append()
    return prover


def unit_forms(entries: Array, signs: Array) -> checker.Forms:
    """Forms with the coefficients signs (R, k) at entries (R, k)."""
    at = np.unique(entries)
    a = np.zeros((len(at), len(entries)))
    for r, (row, sign) in enumerate(zip(entries, signs, strict=True)):
        a[np.searchsorted(at, row), r] = sign
    return checker.Forms(at, a)


def question_of(
    x: Array, target: int, classes: int, ball: dict[str, Any] = BALL, mask: Array | None = None
) -> checker.Question:
    """All other classes are rivals."""
    groups = 0 if mask is None else int(mask.max()) + 1
    rivals = [c for c in range(classes) if c != target]
    return checker.Question(x, ball, mask, groups, checker.Decision(target, rivals))


def npy(array: Array) -> bytes:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def members_of(
    model: Path, x: Array, mask: Array, target: int, ball: dict[str, Any] = BALL, *, pairs: bool = True
) -> dict[str, bytes]:
    """A certificate of a model at x, version 3, all of its members. pairs: whether max pools are maxima of two."""
    network = checker.read_network(model, x.shape, None, pairs)
    question = question_of(x, target, network.nodes[-1].count, ball, mask)
    stated = {
        "version": 3,
        "model": {"sha256": _hash(model.read_bytes()), "prepare": None},
        "target": target,
        "rivals": question.statement.rows,
    }
    return _packed(network, question, x, mask, ball, stated)


def output_members(
    model: Path, x: Array, mask: Array, fields: dict[str, Any], ball: dict[str, Any] = BALL
) -> dict[str, bytes]:
    """A certificate about outputs, version 5, all of its members. fields: those of the statement."""
    network = checker.read_network(model, x.shape)
    statement = checker.read_statement({"version": 5, "statement": dict(fields)}, network)
    question = checker.Question(x, ball, mask, int(mask.max()) + 1, statement)
    named = {"sha256": _hash(model.read_bytes()), "prepare": None, "exported_from": None}
    return _packed(network, question, x, mask, ball, {"version": 5, "model": named, "statement": fields})


def _packed(
    network: checker.Network,
    question: checker.Question,
    x: Array,
    mask: Array,
    ball: dict[str, Any],
    stated: dict[str, Any],
) -> dict[str, bytes]:
    proof = proof_of(network, question)
    derived = checker.Prover(network, question).derive(proof)
    points = np.repeat(x[None], 1 + question.groups, 0)
    arrays = {"mask.npy": mask, "points.npy": np.moveaxis(points, 0, -1)}
    for kind, prefix in enumerate(("", "reals-")):
        arrays[f"{prefix}upper.npy"] = derived[kind]
        arrays[f"{prefix}lower.npy"] = checker.Prover(network, question, points, bool(kind)).overlaps()
    claim = {
        "format": "proofmap-certificate",
        "made_with": {},
        "input": {"sha256": _hash(x.tobytes()), "shape": list(x.shape)},
        "ball": ball,
        "groups": {"count": question.groups, "mask": "mask.npy"},
        "claims": {
            "upper": "upper.npy",
            "lower": "lower.npy",
            "points": "points.npy",
            "reals": {"upper": "reals-upper.npy", "lower": "reals-lower.npy"},
        },
        **stated,
    }
    arrays |= {f"{name}.npy": array for name, array in proof.items()}
    return {"claim.json": json.dumps(claim, sort_keys=True).encode(), **{n: npy(a) for n, a in arrays.items()}}


def write(path: Path, members: dict[str, bytes]) -> Path:
    """Zip the members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
