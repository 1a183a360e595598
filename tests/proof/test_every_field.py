"""Every field and every bit of a certificate: a change is rejected, or changes no claim, or makes a weaker one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofmap.proof import check as checker
from tests.proof.making import members_of, mlp_file, npy, write

X = np.array([0.3, 0.97], np.float32)
SEED = 16  # both inputs count, and the domain cuts the ball
GARBAGE: list[Any] = [
    None,
    True,
    -1,
    0,
    7,
    3.5,
    "",
    "x",
    "7",
    "0x1.8p+1",
    "nan",
    [],
    [0],
    {},
    {"a": 1},
    10**30,
    "9" * 99,
]
NOTES = {("made_with",)}  # nothing depends on these
LOOSER = [(("ball", "relative"), True)]  # a smaller ball
WEAKER = {("claims", "reals")}  # none of it is claimed where it is not there


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """net.onnx, x.npy and whole.proof, about two inputs and three units."""
    place = tmp_path_factory.mktemp("fields")
    mlp_file(place / "net.onnx", (2, 3, 2), SEED)
    (place / "x.npy").write_bytes(npy(X))
    write(place / "whole.proof", members_of(place / "net.onnx", X, np.array([0, 1]), 0))
    return place


def checked(folder: Path, proof: Path) -> str | None:
    """Return the checker's answer; None if it rejects the certificate."""
    try:
        return checker.check(proof, folder / "net.onnx", folder / "x.npy")
    except checker.Rejected:
        return None


def paths(claim: Any, so_far: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every field of it, and every field of these."""
    for name, value in claim.items():
        yield (*so_far, name)
        if isinstance(value, dict):
            yield from paths(value, (*so_far, name))


def test_no_field_takes_another_value(folder: Path) -> None:
    members = checker.read_members(folder / "whole.proof")
    seen = 0
    for path in paths(json.loads(members["claim.json"])):
        for value in GARBAGE:
            claim = json.loads(members["claim.json"])
            *before, last = path
            part = claim
            for name in before:
                part = part[name]
            if type(part[last]) is type(value) and part[last] == value:
                continue
            part[last] = value
            proof = write(folder / "changed.proof", {**members, "claim.json": json.dumps(claim).encode()})
            weaker = (path in WEAKER and not value) or (path, value) in LOOSER
            if path not in NOTES and not weaker:
                assert checked(folder, proof) is None, (path, value)
                seen += 1
    assert seen > 400


def test_no_field_is_left_out_or_added(folder: Path) -> None:
    members = checker.read_members(folder / "whole.proof")
    for path in paths(json.loads(members["claim.json"])):
        for added in (True, False):
            claim = json.loads(members["claim.json"])
            part = claim
            for name in path[:-1]:
                part = part[name]
            if added:
                part["more"] = 1
            else:
                del part[path[-1]]
            if path[0] != "made_with" or len(path) == 1:
                proof = write(folder / "changed.proof", {**members, "claim.json": json.dumps(claim).encode()})
                assert checked(folder, proof) is None, (path, added)


@pytest.mark.parametrize(
    "name", ["intervals.npy", "upper.npy", "reals-upper.npy", "lower.npy", "reals-lower.npy", "points.npy", "mask.npy"]
)
def test_no_array_is_cut_turned_or_of_another_kind(name: str, folder: Path) -> None:
    members = checker.read_members(folder / "whole.proof")
    array = checker.read_array(members[name])
    others = [array[:-1], array[..., :-1], np.concatenate([array, array]), array.astype(complex), array.astype(str)]
    others += [array.astype("S4"), np.zeros(0), *([array[None], array.T.copy()] if array.ndim > 1 else [])]
    for other in others:
        assert checked(folder, write(folder / "changed.proof", {**members, name: npy(other)})) is None, other
    del members[name]
    assert checked(folder, write(folder / "changed.proof", members)) is None


# all bits, or a share in which every place of a byte comes
SHARES = [pytest.param(1, marks=pytest.mark.whole), pytest.param(13, marks=pytest.mark.slow)]


@pytest.mark.parametrize("step", SHARES)
def test_every_single_bit(step: int, folder: Path) -> None:
    """One after the other."""
    whole, said = (folder / "whole.proof").read_bytes(), checked(folder, folder / "whole.proof")
    assert said is not None
    path = folder / "flipped.proof"
    unchanged = 0
    for at in range(0, 8 * len(whole), step):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        found = checked(folder, path)
        assert found in (None, said), at
        unchanged += found == said
    assert unchanged * step < 2 * len(whole)  # a quarter: dates, attributes and other notes of the zip's directory


@pytest.mark.parametrize("step", SHARES)
def test_every_single_bit_of_what_is_packed_proves_nothing_false(step: int, folder: Path) -> None:
    """With checksums mended: what still passes claims no more than what is derived from it."""
    members = checker.read_members(folder / "whole.proof")
    network = checker.read_network(folder / "net.onnx", (2,))
    for name in ("intervals.npy", "upper.npy", "reals-upper.npy", "lower.npy", "points.npy"):
        for at in range(0, 8 * len(members[name]), step):
            damaged = bytearray(members[name])
            damaged[at // 8] ^= 1 << (at % 8)
            changed = {**members, name: bytes(damaged)}
            if checked(folder, write(folder / "changed.proof", changed)) is not None:
                claim = json.loads(changed["claim.json"])
                mask, *upper = (checker.read_array(changed[f"{part}.npy"]) for part in ("mask", "upper", "reals-upper"))
                question = checker.Question(X, claim["ball"], mask, 2, checker.Decision(0, [1]))
                intervals = checker.read_array(members["intervals.npy"])
                honest = checker.Prover(network, question).derive({"intervals": intervals})
                assert (honest <= np.stack(upper)).all() or name == "intervals.npy", at
