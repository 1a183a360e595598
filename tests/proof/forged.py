"""A model, an input, and changed certificates about them, for the tests of forged certificates."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.proof.making import mlp_file, npy, write

X = np.array([0.3, 0.9, 0.0, 0.5], np.float32)


def folder_with(sizes: tuple[int, ...], seed: int) -> Any:
    """Return a fixture: a folder with a network of these sizes and the input X."""

    @pytest.fixture(scope="module")
    def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
        place = tmp_path_factory.mktemp("forged")
        mlp_file(place / "net.onnx", sizes, seed)
        (place / "x.npy").write_bytes(npy(X))
        return place

    return folder


def answer(folder: Path, members: dict[str, bytes]) -> checker.Claim:
    return checker.read_claim(write(folder / "a.proof", members), folder / "net.onnx", folder / "x.npy")


def rejected(folder: Path, members: dict[str, bytes]) -> str:
    with pytest.raises(checker.Rejected) as caught:
        checker.check(write(folder / "a.proof", members), folder / "net.onnx", folder / "x.npy")
    return str(caught.value)


def changed(members: dict[str, bytes], **fields: Any) -> dict[str, bytes]:
    """Return a certificate with other fields of its statement, None of which is left out."""
    claim = json.loads(members["claim.json"])
    claim["statement"] |= fields
    return {**members, "claim.json": json.dumps(claim).encode()}
