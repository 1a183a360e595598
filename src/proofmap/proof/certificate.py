"""Certificates: what is proven of one input and all members of its ball, in a file that others can check.

Every number in one is what the checker derives, never what an engine of bounds found: an explanation says where to
look, the certificate what holds, over the reals and as float32 runs the network.
"""

from __future__ import annotations

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
from proofmap.proof.certified_file import exported
from proofmap.proof.never_weaker import Explained
from proofmap.proof.statement import Array
from proofmap.runtime.outward_numbers import between, rounded
from proofmap.storage.records import write

__all__ = ["Certificate"]

_ENDING = ".proof"


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """Proven: AO(B) <= full and AO(B_u) <= frozen[u], for every u; where points were met, how much they reach."""

    claim: Mapping[str, Any]  # claim.json
    arrays: Mapping[str, Array]  # by the names of their files
    x: Array  # the input, float32
    network: bytes | None  # the exported network; None: the model is a file of the user's
    model: Path | None = None  # that file
    explained: Explained | None = None  # what the explanation proved, where there is one

    @property
    def full(self) -> float:
        """What AO(B) is at most."""
        return float(self.sides()[1][0])

    @property
    def frozen(self) -> Array:
        """(G,) what every AO(B_u) is at most."""
        return self.sides()[1][1:]

    @property
    def lower(self) -> Array | None:
        """(1 + G,) what AO(B) and every AO(B_u) are at least; None where no points were met."""
        return self.sides()[0]

    def sides(self, *, reals: bool = False) -> tuple[Array | None, Array]:
        """(1 + G,) what AO(B) and every AO(B_u) are at least, None where no points were met, and at most.

        reals: of the network over the reals alone, where ends are closer; else as float32 runs it too.
        """
        claims = self.claim["claims"]["reals"] if reals else self.claim["claims"]
        return self.arrays.get(claims["lower"]), self.arrays[claims["upper"]]

    def order(self, *, reals: bool = True) -> Array:
        """(n, 2) pairs of groups of which the first is proven to score more; by default over the reals."""
        lower, upper = self.sides(reals=reals)
        if lower is None:
            return np.zeros((0, 2), int)
        return np.argwhere(upper[1:, None] < lower[None, 1:])

    @property
    def leaves(self) -> int:
        """Parts that the ball was split into, for all rivals; 0 where it was not."""
        tree = self.arrays.get("tree.npy")
        return 0 if tree is None else int((tree < 0).sum())

    @property
    def proven(self) -> bool:
        """Whether no rival gets ahead on the ball: where all other classes are, no input is classified otherwise."""
        return self.full < 0

    @property
    def content(self) -> bytes:
        """The bytes of its file: the same claims give the same bytes."""
        members = {"claim.json": json.dumps(self.claim, sort_keys=True, indent=1).encode()}
        members |= {name: packed(array) for name, array in sorted(self.arrays.items())}
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            for name, data in members.items():
                entry = zipfile.ZipInfo(name)  # of 1980: nothing depends on when it was written
                entry.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(entry, data, compresslevel=9)
        return stream.getvalue()

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
        """Write digit.proof and beside it digit.npy, the input, and digit.onnx, the network where it is no file
        yet; return what a checker is given: certificate, model and input.
        """
        path = Path(path)
        if path.suffix != _ENDING:
            raise InputError(f"got the name {path.name}, expected one that ends in {_ENDING}")
        model, given = path.with_suffix(".onnx") if self.model is None else self.model, path.with_suffix(".npy")
        if self.shortfall is not None:
            warnings.warn(self.shortfall, ProofmapWarning, stacklevel=2)
        if self.network is not None:
            write(model, self.network)
        write(given, packed(self.x))
        write(path, self.content)
        return path, model, given

    def summary(self) -> str:
        """What is proven, in one line; and of an exported network, what it was exported from."""
        least, groups = self.lower, len(self.frozen)
        side = f"<= {rounded(self.full, 'certified')}" if least is None else f"in {between(least[0], self.full)}"
        parts = f", {self.leaves} parts" if self.leaves else ""
        ordered = len(self.order())
        pairs = f", over the reals the order of {ordered} pairs of groups" if ordered else ""
        rivals, half = self.claim["rivals"], self.claim["ball"]["half"]
        where = "the ball" if half is None else f"the half δ {'>=' if half == '+' else '<='} 0"
        held = f"classified as {rivals[0]}" if len(rivals) == 1 else "classified otherwise"
        says = f"no input of {where} is {held}" if self.proven else "nothing is decided"
        members = f" and AO(B_u) of {groups} groups" if groups else ""
        line = f"AO(B) {side}{members}{parts}{pairs}; {says}, over the reals and in float32"
        return line if self.exported is None else f"{line}. {self.exported}"

    @property
    def shortfall(self) -> str | None:
        """One sentence with both numbers where the explanation proved more of AO(B); None: it did not."""
        if self.explained is None:
            return None
        return self.explained.shortfall(self.full, float(self.sides(reals=True)[1][0]))

    @property
    def exported(self) -> str | None:
        """One sentence that says from which original the network was exported, with both hashes; None: it was not."""
        return exported(self.claim["model"])

    def __repr__(self) -> str:
        return f"Certificate({self.summary()})"


def packed(array: Array) -> bytes:
    """An array as the bytes of a .npy file, version 1.0."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()
