"""Certificates of properties: every unsafe case of a VNN-LIB file is excluded on parts of its box, or met at a point.

Boxes with few inputs are halved. A box with many inputs is divided by the signs of units, with one tree for each case.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import BoundError, InputError
from proofmap.graph import Graph
from proofmap.graph.ir import ModelFile
from proofmap.graph.rewrite.output_heads import forms_of_outputs
from proofmap.inputs.ball import Ball
from proofmap.proof import check
from proofmap.proof.certificate import packed_members
from proofmap.proof.certified_file import Certified, exported, refusing
from proofmap.proof.halving_tree import BoxPart, PartProver, ProofLimits, grow_halves
from proofmap.proof.make_certificate import splits, stored_kinks
from proofmap.proof.pairwise_pools import in_maxima
from proofmap.proof.proof_tree import Growth, grow
from proofmap.proof.statement import Array
from proofmap.proof.stored_intervals import intervals_of
from proofmap.runtime.precision import full_precision
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.unstable_units import build_units
from proofmap.storage.hashing import versions
from proofmap.storage.records import write_atomic
from proofmap.text.wording import plural

_MAX_HALVED_INPUTS = 24  # moving inputs up to which boxes are halved; with more, the signs of units divide them
_DECIMAL_ROUNDING = 2.0**-48  # a point may be outside of a box by this share, because the box was read in float64
_ROUNDING_SHARE = 1.25  # as for decisions: trees grow until this share of the rounding errors is left below 0
_TREE_MARGIN = 2.0**-20  # share of a case's largest term by which the tree's bound must be below 0


@dataclass(frozen=True, eq=False)
class PropertyCertificate:
    """Proven: a property holds for a network, or a point violates it."""

    claim: Mapping[str, Any]  # claim.json
    arrays: Mapping[str, Array]  # file name -> array
    network: bytes | None  # the exported network; None: the model is the user's file
    proven: check.PropertyClaim
    property_file: Path
    model: Path | None = None  # the user's file

    @property
    def content(self) -> bytes:
        """The bytes of the file. Equal claims give equal bytes."""
        return packed_members(self.claim, self.arrays)

    @property
    def exported(self) -> str | None:
        """A sentence with the original of an exported network and both hashes; None without an export."""
        return exported(self.claim["model"])

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
        """Write p.proof, and the exported network p.onnx if there is no file of it.

        Return the files for the checker: certificate, model and property.
        """
        path = Path(path)
        if path.suffix != ".proof":
            raise InputError(f"got the name {path.name}, expected one that ends in .proof")
        model = path.with_suffix(".onnx") if self.model is None else self.model
        if self.network is not None:
            write_atomic(model, self.network)
        write_atomic(path, self.content)
        return path, model, self.property_file

    def summary(self) -> str:
        """Return one line: the checker's verdict, the number of parts, and the origin of an exported network."""
        parts = f" {plural(self.proven.parts, 'part')}." if self.proven.holds else ""
        return f"{self.proven.verdict()}{parts}{'' if self.exported is None else f' {self.exported}'}"


def certify_property(
    graph: Graph,
    path: Path,
    *,
    point: Array | None = None,
    limits: ProofLimits | None = None,
    file: ModelFile | None = None,
) -> PropertyCertificate:
    """Prove that the property of a VNN-LIB file holds for a network, in steps that the checker can repeat.

    Args:
        point: A violation (inputs,) in the order of the file; None: prove that the property holds.
        limits: The number of parts and the time.
        file: The user's file. A graph that was simplified for the boxes has none, and must not be exported.

    Raises:
        BoundError: The proof exceeds the limits, or the checker cannot read the network or the property.
    """
    model = _file_of(graph, file)
    claim: dict[str, Any] = {
        "format": "proofmap-certificate",
        "version": 6,
        "made_with": versions(),
        "model": model.stated,
        "verdict": "holds" if point is None else "violated",
        "case": None,
    }
    with refusing():
        statement = check.PropertyFile.read(path)
        claim["property"] = {"sha256": statement.sha256}
        read = check.PropertyClaim.read({}, claim, model.data, path)
        if point is not None:
            case, exact = _case_of(read, np.ascontiguousarray(point, dtype=np.float64).reshape(-1))
            return _checked({**claim, "case": case}, {"point.npy": exact}, model, path)
        limits = limits or ProofLimits()
        arrays = _proof(graph, read.network, statement, limits)
    try:
        return _checked(claim, arrays, model, path)
    except check.Rejected as error:
        raise BoundError(
            f"{error} by at most {limits.parts} parts within {limits.seconds:g} s, so there is no certificate of it: "
            "allow more time"
        ) from error


def _file_of(graph: Graph, file: ModelFile | None) -> Certified:
    """Return the user's file, whose inputs the property is about, or an export of the network."""
    own = graph.file or file
    prepare = {} if own is None or own.prepare is None else dict(own.prepare)
    if prepare.get("mean") is not None or prepare.get("std") is not None:
        raise InputError("got a mean or std with a certificate of a property, expected none: it is about file inputs")
    with refusing():
        model = Certified.of(graph if own is None else replace(graph, file=own))
    if model.exported_from is not None and (prepare.get("layout") == "NHWC" or graph.file is not own):
        raise BoundError(
            f"a certificate of a property is about the inputs of the model's own file, because this network cannot be "
            f"exported for all inputs in their order: {model.exported_from['because']}"
        )
    return Certified(model.data, None, model.path, model.exported_from)


def _checked(claim: dict[str, Any], arrays: dict[str, Array], model: Certified, path: Path) -> PropertyCertificate:
    """Return the certificate once the checker has accepted its bytes."""
    proven = check.read_certificate(packed_members(claim, arrays), model.data, path)
    assert isinstance(proven, check.PropertyClaim)
    network = model.data if model.path is None else None
    return PropertyCertificate(claim, arrays, network, proven, path, model.path)


def _case_of(claim: check.PropertyClaim, point: Array) -> tuple[list[int], Array]:
    """Return the first case, and its box, that the checker accepts the point for; and the point exactly in the box."""
    why = "the point is in no box"
    for b, box in enumerate(claim.statement.boxes):
        exact = np.array([_between(*ends) for ends in zip(point.tolist(), box.lower, box.upper, strict=True)])
        if (np.abs(exact - point) > _DECIMAL_ROUNDING * (1 + np.abs(point))).any():
            continue
        for c in range(len(box.cases)):
            refused = _refused(claim, [b, c], exact)
            if refused is None:
                return [b, c], exact
            why = refused
    raise BoundError(
        f"the counterexample has no certificate: {why}; its outputs may be within rounding errors of the unsafe case"
    )


def _between(value: float, lower: Fraction, upper: Fraction) -> float:
    """Return the nearest float64 number between two decimals; if they are equal, the number nearest to both."""
    if lower == upper:
        return float(lower)
    if Fraction(value) < lower:
        near = float(lower)
        return near if Fraction(near) >= lower else math.nextafter(near, math.inf)
    if Fraction(value) > upper:
        near = float(upper)
        return near if Fraction(near) <= upper else math.nextafter(near, -math.inf)
    return value


def _refused(claim: check.PropertyClaim, case: list[int], point: Array) -> str | None:
    """Return why the checker refuses the point for a case; None if it accepts it."""
    claim.case, claim.arrays = case, {"point": point}
    try:
        claim.prove_violated()
    except check.Rejected as error:
        return str(error)
    return None


def _proof(
    graph: Graph, network: check.Network, statement: check.PropertyFile, limits: ProofLimits
) -> dict[str, Array]:
    """Grow the proof, and return its arrays by file names."""
    start = time.monotonic()
    prover, roots = PartProver(network, statement), [BoxPart(k, *box.ends) for k, box in enumerate(statement.boxes)]
    size, open_ = max(1, min(256, check.Boxes.forms_at_once(network))), list[BoxPart]()
    for k in range(0, len(roots), size):
        limits.check(len(roots), start)
        open_ += prover.prove(roots[k : k + size])
    by_signs = splits(graph)
    few = [part for part in open_ if not by_signs or int((part.lower < part.upper).sum()) <= _MAX_HALVED_INPUTS]
    count = grow_halves(prover, [half for part in few for half in part.halve()], limits, start, len(roots) + len(few))
    for part in open_:
        if part not in few:
            part.axis = -1
            count += _divide(part, graph, prover, limits, start, count)
    return _arrays(roots, max(len(case) for box in statement.boxes for case in box.cases))


def _divide(part: BoxPart, graph: Graph, prover: PartProver, limits: ProofLimits, start: float, count: int) -> int:
    """Divide a part by the signs of units: one tree for each case, with one set of weights. Return its leaves."""
    lower, upper = part.lower[:, None], part.upper[:, None]
    stored = intervals_of(prover.network, check.Boxes(prover.network, lower, upper))
    cases, weights = prover.statement.boxes[part.box].cases, part.weights
    some = [*zip(cases, weights, strict=True)]
    bounds = prover.bounds(prover.boxes(lower, upper), np.zeros(len(cases), int), some)
    rows = [prover.combined(case, line) for case, line in some]
    scale = np.array([max(np.abs(row.a).max(), 2.0**-60) for row in rows])
    weight, bias = np.stack([row.a for row in rows]) / scale[:, None], np.array([row.constant for row in rows]) / scale
    rounding = float(((bounds.both[0] - bounds.both[1]) / scale).max())
    seconds = limits.seconds - (time.monotonic() - start)
    limits.check(count, start)
    growth = Growth(max(1, limits.parts - count), max(seconds, 0.1), enough=-_ROUNDING_SHARE * rounding - _TREE_MARGIN)
    arrays = _trees(graph, part, stored, torch.from_numpy(weight), torch.from_numpy(bias), growth)
    leaves = arrays["tree"] < 0
    trees, _ = check.read_trees(arrays["tree"], int(arrays["slopes"].shape[1]), len(cases))
    width = max(len(line) for line in weights)
    lines = np.array([[*line, *[0] * (width - len(line))] for line in weights], np.uint8)
    part.members = {"intervals": stored, **{name: arrays[name] for name in ("tree", "slopes", "multipliers")}}
    part.members["weights"] = lines[trees]
    return int(leaves.sum())


def _trees(
    graph: Graph, part: BoxPart, stored: Array, weight: Tensor, bias: Tensor, growth: Growth
) -> dict[str, Array]:
    """Grow trees of the forms weight · y + bias on a box; raise BoundError if a bound stays above the limit."""
    lower, upper = (torch.from_numpy(end.copy()).view(1, *graph.input.shape) for end in (part.lower, part.upper))
    centre = (lower + upper) / 2
    radius = torch.maximum(upper - centre, centre - lower)
    family = Ball(radius).at(centre)
    plain = in_maxima(graph.to(torch.device("cpu"), torch.float64), centre)
    found = stored_kinks(plain, stored)
    if found is None:
        raise BoundError("an affine network excludes no more cases by parts, so there is no certificate")
    known, opened = found
    headed = forms_of_outputs(plain, range(graph.classes), weight, bias)
    rows = torch.eye(len(weight)).double()
    with full_precision(centre.device), torch.no_grad():
        units = build_units(headed, known, family, rows)
        assert units is not None
        reached = headed(centre).max().view(1).double()
        if float(reached) > 0:
            raise BoundError("the middle of a box meets an unsafe case, or nearly, so there is no certificate")
        return grow(units, SampleBalls(family), reached, range(len(weight)), opened, growth)


def _arrays(roots: Sequence[BoxPart], width: int) -> dict[str, Array]:
    """Return the arrays of a certificate: halvings in preorder, weights of rows, and the trees of single parts."""
    arrays, halvings, weights, number = dict[str, Array](), list[int](), list[list[int]](), 0
    for part in (part for root in roots for part in root.walk()):
        halvings.append(part.axis if part.halves else -1)
        if part.halves:
            continue
        if part.members:
            arrays |= {f"{number}-{name}.npy": array for name, array in part.members.items()}
        else:
            weights += part.weights
        number += 1
    lines = [[*line, *[0] * (width - len(line))] for line in weights]
    arrays["halvings.npy"] = np.array(halvings, np.int32)
    arrays["weights.npy"] = np.array(lines, np.uint8).reshape(len(lines), width)
    return arrays
