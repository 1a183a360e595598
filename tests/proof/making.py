"""Certificates made by hand: intervals as the checker derives them, default slopes."""

import hashlib
import io
import json
import zipfile
from itertools import combinations, pairwise
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


def sufficient_members(
    model: Path, x: Array, mask: Array, about: dict[str, Any], ball: dict[str, Any] = BALL, limit: str | None = None
) -> dict[str, bytes]:
    """A certificate of a sufficient set, version 5: groups are freed in their order, and points are found by chance."""
    network = checker.read_network(model, x.shape)
    fields: dict[str, Any] = {"kind": "sufficient", "about": about, "free": [], "necessary": [], "points": None}
    fields["limit"] = limit
    count = int(mask.max()) + 1
    for group in range(count):
        more = {**fields, "free": [*fields["free"], group]}
        statement = _sufficient(network, more)
        question = checker.Question(x, ball, mask, count, statement.about, more["free"])
        derived = checker.Prover(network, question).derive(proof_of(network, question))
        fields = more if statement.holds(derived[0, 0]) else fields
    found = dict[int, Array]()
    statement = _sufficient(network, fields)
    question = statement.ask(x, ball, mask, count)
    for group in sorted({*range(count)} - {*fields["free"]}):
        moves = np.isin(mask, [*fields["free"], group])
        points = _points_of_ball(question, ball, moves, group)
        points = points[question.inside(points, np.tile(moves.reshape(1, -1), (len(points), 1)))]
        reached = statement.held.reached(network, question, points, reals=True)
        if reached.max(initial=-1.0) > float(statement.held.most):
            found[group] = points[reached.argmax()]
    arrays: dict[str, Array] = {}
    if found:
        fields |= {"necessary": [*found], "points": "necessary.npy"}
        arrays["necessary.npy"] = np.stack([*found.values()], -1)
    return reason_members(model, x, mask, fields, arrays, ball)


def reason_members(
    model: Path,
    x: Array,
    mask: Array,
    fields: dict[str, Any],
    arrays: dict[str, Array],
    ball: dict[str, Any] = BALL,
) -> dict[str, bytes]:
    """A certificate of given sets, whose ends are those that follow, whatever they prove."""
    network = checker.read_network(model, x.shape)
    about = _sufficient(network, {**fields, "free": [], "necessary": []}).about
    question = checker.Question(x, ball, mask, int(mask.max()) + 1, about, fields["free"])
    named = {"sha256": _hash(model.read_bytes()), "prepare": None, "exported_from": None}
    stated = {"version": 5, "model": named, "statement": fields}
    members = _packed(network, question, x, mask, ball, stated)
    return {**members, **{name: npy(array) for name, array in arrays.items()}}


def contrastive_members(
    model: Path, x: Array, mask: Array, about: dict[str, Any], ball: dict[str, Any] = BALL, limit: str | None = None
) -> dict[str, bytes]:
    """A certificate of a contrastive set, version 5: sets are tried by size, with points that are found by chance."""
    network = checker.read_network(model, x.shape)
    fields: dict[str, Any] = {"kind": "contrastive", "about": about, "sets": [], "points": None, "limit": limit}
    count, least = int(mask.max()) + 1, 1
    while least <= count:
        statement = _contrastive(network, {**fields, "least": least + 1})
        question = statement.ask(x, ball, mask, count)
        if not statement.holds(checker.Prover(network, question).derive(proof_of(network, question))[0, 0]):
            break
        least += 1
    fields["least"], arrays = least, dict[str, Array]()
    statement = _contrastive(network, fields)
    question = statement.ask(x, ball, mask, count)
    every = [list(some) for size in range(1, count + 1) for some in combinations(range(count), size)]
    for seed, some in enumerate(every):
        moves = np.isin(mask, some)
        points = _points_of_ball(question, ball, moves, seed)
        points = points[question.inside(points, np.tile(moves.reshape(1, -1), (len(points), 1)))]
        shown = statement.broken(network, question, points, reals=True)
        if shown.any():
            fields |= {"sets": [some], "points": "changed.npy"}
            arrays["changed.npy"] = points[shown.argmax()][..., None]
            break
    return changed_members(model, x, mask, fields, arrays, ball)


def changed_members(
    model: Path,
    x: Array,
    mask: Array,
    fields: dict[str, Any],
    arrays: dict[str, Array],
    ball: dict[str, Any] = BALL,
) -> dict[str, bytes]:
    """A certificate of given contrastive sets, whose ends are those that follow, whatever they prove."""
    network = checker.read_network(model, x.shape)
    about = _contrastive(network, {**fields, "sets": []}).about
    question = checker.Question(x, ball, mask, int(mask.max()) + 1, about, few=fields["least"] - 1)
    named = {"sha256": _hash(model.read_bytes()), "prepare": None, "exported_from": None}
    stated = {"version": 5, "model": named, "statement": fields}
    members = _packed(network, question, x, mask, ball, stated)
    return {**members, **{name: npy(array) for name, array in arrays.items()}}


def _contrastive(network: checker.Network, fields: dict[str, Any]) -> checker.ContrastiveSet:
    statement = checker.read_statement({"version": 5, "statement": dict(fields)}, network)
    assert isinstance(statement, checker.ContrastiveSet)
    return statement


def _sufficient(network: checker.Network, fields: dict[str, Any]) -> checker.SufficientSet:
    statement = checker.read_statement({"version": 5, "statement": dict(fields)}, network)
    assert isinstance(statement, checker.SufficientSet)
    return statement


def _points_of_ball(question: checker.Question, ball: dict[str, Any], moves: Array, seed: int) -> Array:
    """Points that move some variables, most of them at the surface of the ball."""
    random = np.random.default_rng(seed)
    down, up = (side.astype(float) * moves.reshape(-1) for side in question.sides)
    if ball["norm"] == "inf":
        step = np.array([[*row] for row in random.integers(0, 2, (300, len(down)))]) * (down + up) - down
    else:
        step = random.normal(size=(300, len(down))) * moves.reshape(-1)
        sizes = np.linalg.norm(step, int(ball["norm"]), axis=1, keepdims=True)
        step = np.clip(step / np.maximum(sizes, 1e-9) * float(question.eps), -down, up)
    points: Array = (question.x + step * (1 - 2.0**-20)).astype(np.float32).reshape(-1, *question.shape)
    return points


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
        "groups": {"count": int(mask.max()) + 1, "mask": "mask.npy"},
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
