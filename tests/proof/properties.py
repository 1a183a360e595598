"""Properties of tiny networks: their text, certificates made without Proofmap's grower, and the exact answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from proofmap.proof import check as checker
from tests.bounds.exact import exact_depth
from tests.proof.making import Array, npy, outward

Case = list[tuple[dict[int, str], str, str]]  # coefficients of outputs, a sign, a number: all texts as in a file


@dataclass(frozen=True)
class Region:
    """A box with its cases, as texts of numbers."""

    lower: list[str]
    upper: list[str]
    cases: list[Case]


def text_of(regions: list[Region], outputs: int) -> str:
    """The VNN-LIB text: one `or` of all cases, each with the ends of its box."""
    inputs = len(regions[0].lower)
    lines = [f"(declare-const X_{k} Real)" for k in range(inputs)]
    lines += [f"(declare-const Y_{k} Real)" for k in range(outputs)]
    cases = []
    for region in regions:
        ends = [f"(<= {end} X_{k})" for k, end in enumerate(region.lower)]
        ends += [f"(<= X_{k} {end})" for k, end in enumerate(region.upper)]
        for case in region.cases:
            rows = [f"({sign} (+ 0 {_sum(form)}) {limit})" for form, sign, limit in case]
            cases.append(f"(and {' '.join(ends + rows)})")
    return "\n".join([*lines, f"(assert (or {' '.join(cases)}))", ""])


def _sum(form: dict[int, str]) -> str:
    return " ".join(f"(* {value} Y_{k})" for k, value in form.items())


def drawn_property(random: np.random.Generator, layers: list[tuple[Array, Array]], shift: float = -0.5) -> list[Region]:
    """One or two boxes, each with one to three cases of one to three rows. shift: more rows are met if it is larger."""
    regions = []
    inputs, outputs = layers[0][0].shape[1], layers[-1][0].shape[0]
    for _ in range(random.integers(1, 3)):
        middle, radius = random.uniform(-1, 1, inputs), random.choice([0.05, 0.2, 0.5, 1.0])
        radius = np.where(random.random(inputs) < 0.15, 0.0, radius)
        texts = [[f"{v:.4f}" for v in end] for end in (middle - radius, middle + radius)]
        cases = []
        for _ in range(random.integers(1, 4)):
            case: Case = []
            for _ in range(random.integers(1, 4)):
                some = random.choice(outputs, random.integers(1, outputs + 1), replace=False)
                form = {int(k): str(random.choice(["1", "-1", "0.1", "-2.5", "1.25"])) for k in some}
                value = sum(float(v) * value_at(layers, middle)[k] for k, v in form.items())
                case.append((form, str(random.choice(["<=", "<"])), f"{value + random.normal() * 0.4 + shift:.5f}"))
            cases.append(case)
        regions.append(Region(texts[0], texts[1], cases))
    return regions


def value_at(layers: list[tuple[Array, Array]], x: Array) -> Array:
    """The outputs in float64."""
    for k, (weight, bias) in enumerate(layers):
        x = weight @ (np.maximum(x, 0) if k else x) + bias
    return x


def exactly_at(layers: list[tuple[Array, Array]], point: list[Fraction]) -> list[Fraction]:
    """The outputs in fractions."""
    for k, (weight, bias) in enumerate(layers):
        value = [max(v, Fraction(0)) for v in point] if k else point
        pairs = zip(weight.tolist(), bias.tolist(), strict=True)
        point = [sum((Fraction(a) * v for a, v in zip(row, value, strict=True)), Fraction(b)) for row, b in pairs]
    return point


def depth_of(layers: list[tuple[Array, Array]], region: Region, case: Case) -> float:
    """The depth of the deepest point of a box in a case, by linear programs; below 0 if there is none."""
    outputs = layers[-1][0].shape[0]
    rows, bias = np.zeros((len(case), outputs)), np.zeros(len(case))
    for r, (form, sign, limit) in enumerate(case):
        side = 1 if sign in ("<=", "<") else -1
        for k, value in form.items():
            rows[r, k] = side * float(value)
        bias[r] = -side * float(limit)
    ends = (np.array([*map(float, end)]) for end in (region.lower, region.upper))
    return exact_depth(layers, rows, bias, *ends)


def meets(layers: list[tuple[Array, Array]], region: Region, case: Case, point: list[Fraction]) -> bool:
    """Return whether a point lies in a box, and its outputs in a case, in fractions."""
    inside = all(Fraction(a) <= v <= Fraction(b) for a, v, b in zip(region.lower, point, region.upper, strict=True))
    outputs = exactly_at(layers, point)
    for form, sign, limit in case:
        value = sum((Fraction(v) * outputs[k] for k, v in form.items()), Fraction(0)) - Fraction(limit)
        holds = {"<=": value <= 0, "<": value < 0, ">=": value >= 0, ">": value > 0}[sign]
        inside = inside and holds
    return inside


def property_members(
    model: Path, text: str, random: np.random.Generator, depth: int = 2, *, split: bool = False
) -> dict[str, bytes]:
    """A certificate that the property holds, which may be wrong: random halves, and the best weights of a few.

    split: the first part is divided by the signs of units.
    """
    statement = checker.PropertyFile.read(text.encode())
    network = checker.read_network(model, (statement.inputs,))
    halvings, parts = list[int](), list[tuple[list[Any], Array, Array]]()
    for box in statement.boxes:
        low, high = box.ends
        _halve(box.cases, low, high, depth, random, halvings, parts)
    weights, members = list[list[int]](), dict[str, bytes]()
    width = max(len(case) for box in statement.boxes for case in box.cases)
    for number, (cases, low, high) in enumerate(parts):
        if split and number == 0:
            held = _by_signs(network, statement, cases, low, high, width, random)
            members |= {f"0-{name}.npy": npy(array) for name, array in held.items()}
            continue
        prover = checker.Boxes(network, low[:, None], high[:, None]).bound()
        weights += [_best(prover, statement, case, width, random, None) for case in cases]
    members["halvings.npy"] = npy(np.array(halvings, np.int32))
    members["weights.npy"] = npy(np.array(weights, np.uint8).reshape(len(weights), width))
    return claimed(model, text, "holds", None) | members


def point_members(model: Path, text: str, case: list[int], point: Array) -> dict[str, bytes]:
    """A certificate that a point violates the property, which may be wrong."""
    return claimed(model, text, "violated", case) | {"point.npy": npy(point.astype(np.float64))}


def claimed(model: Path, text: str, verdict: str, case: list[int] | None) -> dict[str, bytes]:
    """The claim alone."""
    stated = {
        "format": "proofmap-certificate",
        "version": 6,
        "made_with": {},
        "model": {"sha256": _hash(model.read_bytes()), "prepare": None, "exported_from": None},
        "property": {"sha256": _hash(text.encode())},
        "verdict": verdict,
        "case": case,
    }
    return {"claim.json": json.dumps(stated).encode()}


def _halve(
    cases: list[Any],
    low: Array,
    high: Array,
    depth: int,
    random: np.random.Generator,
    halvings: list[int],
    parts: list[tuple[list[Any], Array, Array]],
) -> None:
    if not depth or random.random() < 0.2:
        halvings.append(-1)
        parts.append((cases, low, high))
        return
    axis = int((high - low).argmax())
    halvings.append(axis)
    for side in (0, 1):
        ends = [low.copy(), high.copy()]
        ends[1 - side][axis] = (low[axis] + high[axis]) / 2
        _halve(cases, ends[0], ends[1], depth - 1, random, halvings, parts)


def _best(
    prover: checker.Boxes,
    statement: checker.PropertyFile,
    case: list[checker.UnsafeRow],
    width: int,
    random: np.random.Generator,
    leaf: checker.Leaf | None,
) -> list[int]:
    tried = [*np.eye(len(case), dtype=int).tolist(), *random.integers(1, 9, (6 * (len(case) > 1), len(case))).tolist()]
    rows = [checker.CombinedRows.of(case, [-w for w in line], statement.outputs) for line in tried]
    ends = [float(prover.upper_ends(np.zeros(1, int), [row], leaf)[0, 0]) / (abs(row.a).sum() + 1e-9) for row in rows]
    best: list[int] = tried[int(np.argmin(ends))]
    return best + [0] * (width - len(case))


def _by_signs(
    network: checker.Network,
    statement: checker.PropertyFile,
    cases: list[Any],
    low: Array,
    high: Array,
    width: int,
    random: np.random.Generator,
) -> dict[str, Array]:
    """The arrays of a part that is divided by the sign of its first open unit, with random multipliers."""
    plain = checker.Boxes(network, low[:, None], high[:, None]).bound()
    stored = np.zeros((2, network.units), np.float32)
    for node in network.nodes:
        if node.op == "relu":
            ends = outward(plain.lower[node.inputs[0]][:, 0], plain.upper[node.inputs[0]][:, 0])
            stored[:, node.first : node.first + node.count] = ends
    count = int(((stored[0] < 0) & (stored[1] > 0)).sum())
    tree = [0, -1, -1] * len(cases) if count else [-1] * len(cases)
    trees, sides = checker.read_trees(np.array(tree), count, len(cases))
    slopes = random.choice(np.array([0, 128, 255], np.uint8), (len(trees), count))
    multipliers = (random.normal(size=(len(trees), count)) * (sides != 0) * 0.3).astype(np.float16)
    units = np.flatnonzero((stored[0] < 0) & (stored[1] > 0))
    prover = checker.Boxes(network, low[:, None], high[:, None]).bound(stored)
    weights = [
        _best(
            prover,
            statement,
            cases[tree_],
            width,
            random,
            checker.Leaf(units, *(a[[k]] for a in (slopes, multipliers, sides))),
        )
        for k, tree_ in enumerate(trees)
    ]
    arrays = {"intervals": stored, "tree": np.array(tree, np.int32), "slopes": slopes, "multipliers": multipliers}
    return {**arrays, "weights": np.array(weights, np.uint8)}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
