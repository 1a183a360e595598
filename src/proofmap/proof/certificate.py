"""Certificate: the file with proven bounds of AO(B) and AO(B_u) for one input, which others can check.

All numbers are derived by the checker, not by the bounding engine. They hold for the network over the real numbers and
in float32.
"""

import io
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proofmap.errors import InputError, ProofmapWarning
from proofmap.proof import check
from proofmap.proof.certified_file import exported
from proofmap.proof.never_weaker import Explained
from proofmap.proof.statement import Array
from proofmap.runtime.outward_numbers import format_interval, format_overlap
from proofmap.storage.records import write_atomic

_ENDING = ".proof"


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """Proven: AO(B) <= full and AO(B_u) <= frozen[u] for every group u, and lower bounds if points are known.

    For a sufficient set, B is the part of the ball in which the free groups alone move. For contrastive sets, it is the
    part in which fewer groups move than are needed. Both have no other members.
    """

    claim: Mapping[str, Any]  # claim.json
    arrays: Mapping[str, Array]  # file name -> array
    x: Array  # the input, float32
    network: bytes | None  # the exported network; None: the model is the user's file
    statement: check.Statement  # the forms that are bounded, and their words
    model: Path | None = None  # the user's file
    explained: Explained | None = None  # the bound of the explanation, if there is one

    @property
    def full(self) -> float:
        """The proven upper bound of AO(B)."""
        return float(self.sides()[1][0])

    @property
    def frozen(self) -> Array:
        """(G,) the proven upper bounds of AO(B_u)."""
        return self.sides()[1][1:]

    @property
    def lower(self) -> Array | None:
        """(1 + G,) lower bounds of AO(B) and all AO(B_u); None without known points."""
        return self.sides()[0]

    def sides(self, *, reals: bool = False) -> tuple[Array | None, Array]:
        """Return lower (None without known points) and upper bounds of AO(B) and all AO(B_u), each (1 + G,).

        reals: tighter bounds for the network over the reals alone; else bounds that also hold in float32.
        """
        claims = self.claim["claims"]["reals"] if reals else self.claim["claims"]
        return self.arrays.get(claims["lower"]), self.arrays[claims["upper"]]

    def order(self, *, reals: bool = True) -> Array:
        """Return pairs of groups (n, 2): the first of a pair is proven to score more, by default over the reals."""
        lower, upper = self.sides(reals=reals)
        if lower is None:
            return np.zeros((0, 2), int)
        return np.argwhere(upper[1:, None] < lower[None, 1:])

    @property
    def leaves(self) -> int:
        """The number of parts of the ball over all rivals; 0 if the ball was not split."""
        tree = self.arrays.get("tree.npy")
        return 0 if tree is None else int((tree < 0).sum())

    @property
    def proven(self) -> bool:
        """True if the statement is proven.

        No rival gets ahead on the ball: if all other classes are rivals, this proves the class. An output stays inside
        its limits. A label is the same in the whole ball.
        """
        return self.statement.holds(self.full)

    @property
    def content(self) -> bytes:
        """The bytes of the file. Equal claims give equal bytes."""
        return packed_members(self.claim, self.arrays)

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
        """Write digit.proof, the input digit.npy, and the exported network digit.onnx if there is no file of it.

        Return the files for the checker: certificate, model and input.
        """
        path = Path(path)
        if path.suffix != _ENDING:
            raise InputError(f"got the name {path.name}, expected one that ends in {_ENDING}")
        model, given = path.with_suffix(".onnx") if self.model is None else self.model, path.with_suffix(".npy")
        if self.shortfall is not None:
            warnings.warn(self.shortfall, ProofmapWarning, stacklevel=2)
        if self.network is not None:
            write_atomic(model, self.network)
        write_atomic(given, packed(self.x))
        write_atomic(path, self.content)
        return path, model, given

    def summary(self) -> str:
        """Return one line with the proven bounds, and the origin of an exported network."""
        least, groups, half = self.lower, len(self.frozen), self.claim["ball"]["half"]
        side = (
            f"<= {format_overlap(self.full, 'certified')}"
            if least is None
            else f"in {format_interval(least[0], self.full)}"
        )
        parts = f", {self.leaves} parts" if self.leaves else ""
        ordered = len(self.order())
        pairs = f", over the reals the order of {ordered} pairs of groups" if ordered else ""
        if isinstance(self.statement, check.GroupSets):
            line = f"{self._sets(self.statement, side)}{parts}"
            return line if self.exported is None else f"{line}. {self.exported}"
        says = self._says("the ball" if half is None else f"the half δ {'>=' if half == '+' else '<='} 0")
        members = f" and AO(B_u) of {groups} groups" if groups else ""
        line = f"AO(B) {side}{members}{parts}{pairs}; {says}, over the reals and in float32"
        return line if self.exported is None else f"{line}. {self.exported}"

    def _sets(self, stated: check.GroupSets, side: str) -> str:
        """Return the counts of the groups in words. side: the bound of AO."""
        groups = self.claim["groups"]["count"]
        arithmetic = "over the reals and in float32" if self.proven else "over the reals only"
        if isinstance(stated, check.ContrastiveSet):
            if stated.least > groups:
                return f"no set of {groups} groups changes the decision, {arithmetic}; AO(B) {side}"
            shown = " and ".join(str(len(some)) for some in stated.sets) or "no"
            needed = f"at least {stated.least} are needed, {arithmetic}; AO if fewer change {side}"
            return f"sets of {shown} of {groups} groups are shown to change the decision; {needed}"
        necessary, kept = len(stated.necessary), groups - len(stated.free)
        held = f"{len(stated.free)} of {groups} groups are proven to be free, {arithmetic}"
        return (
            f"{held}; {necessary} kept groups are necessary, {kept - necessary} undecided; AO of the free groups {side}"
        )

    def _says(self, where: str) -> str:
        """Return the statement on the ball in words."""
        stated = self.statement
        if not self.proven:
            return "nothing is decided"
        if isinstance(stated, check.Decision):
            held = f"classified as {stated.rivals[0]}" if len(stated.rivals) == 1 else "classified otherwise"
            return f"no input of {where} is {held}"
        assert isinstance(stated, check.OutputLimit)
        return f"{stated.name} is {stated.limits(self.full)} on {where}"

    @property
    def shortfall(self) -> str | None:
        """A sentence with both bounds if the explanation has the tighter bound of AO(B); else None."""
        if self.explained is None:
            return None
        return self.explained.shortfall(self.full, float(self.sides(reals=True)[1][0]))

    @property
    def exported(self) -> str | None:
        """A sentence with the original of an exported network and both hashes; None without an export."""
        return exported(self.claim["model"])

    def __repr__(self) -> str:
        return f"Certificate({self.summary()})"


def packed_members(claim: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Return the bytes of a certificate: the claim, and arrays by their file names."""
    members = {"claim.json": json.dumps(claim, sort_keys=True, indent=1).encode()}
    members |= {name: packed(array) for name, array in sorted(arrays.items())}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name)  # has the date 1980, so that bytes do not depend on the time
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, data, compresslevel=9)
    return stream.getvalue()


def packed(array: Array) -> bytes:
    """Return the bytes of a .npy file, version 1.0."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()
