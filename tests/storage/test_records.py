"""Settings as JSON, and files that are written atomically."""

import json
import os
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.errors import FileError
from proofmap.metrics import RobustnessSr, Stability, Tightness
from proofmap.storage.hashing import hash_tensor
from proofmap.storage.records import atomic_path, to_json, write_atomic

SMALL, LARGE = torch.tensor([[0.5, 2.0]]), torch.zeros(1001)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.1, 0.1),
        ("inf", "inf"),
        (inf, "inf"),
        (-inf, "-inf"),
        ((0.0, inf), [0.0, "inf"]),
        ([1, (2, None)], [1, [2, None]]),
        (pm.bounds.IBP() & pm.bounds.Forward(), repr(pm.bounds.IBP() & pm.bounds.Forward())),
        (pm.groups.grid(3), "Grid(rows=3, columns=3)"),
        (torch.float16, "torch.float16"),
        (SMALL, f"tensor (1, 2) sha256 {hash_tensor(SMALL)}"),
        ((SMALL, 1.0), [f"tensor (1, 2) sha256 {hash_tensor(SMALL)}", 1.0]),
    ],
)
def test_settings_as_json(value: Any, expected: Any) -> None:
    assert to_json(value) == expected
    assert json.loads(json.dumps(to_json(value))) == expected


def test_small_tensors_may_be_written_out() -> None:
    assert to_json(SMALL, 1000) == [[0.5, 2.0]]
    assert to_json(torch.tensor([inf, 1.0]), 2) == ["inf", 1.0]
    assert to_json((SMALL, 1.0), 1000) == [[[0.5, 2.0]], 1.0]
    assert to_json(LARGE, 1000) == f"tensor (1001,) sha256 {hash_tensor(LARGE)}"


def test_records_of_metrics_equal_those_of_old_files() -> None:
    """Values are measured again if their stored record differs."""
    assert RobustnessSr(norm=2.0, domain=(SMALL, inf), groups=pm.groups.grid(2)).settings() == {
        "preset": "paper",
        "norm": 2.0,
        "domain": [f"tensor (1, 2) sha256 {hash_tensor(SMALL)}", "inf"],
        "largest": 1.0,
        "steps": 10,
        "rounds": 5,
        "attack_steps": 10,
        "bounds": "Backward()",
        "halvings": 8,
        "groups": "Grid(rows=2, columns=2)",
        "seed": 0,
    }
    assert Stability(0.2, 3, "quantus").settings() == {
        "preset": "quantus",
        "norm": "inf",
        "half": None,
        "relative": True,
        "over": "max",
        "radius": 0.2,
        "samples": 3,
        "domain": None,
        "seed": 0,
    }
    assert Tightness(pm.Ball(0.1, domain=(0.0, 1.0)), "gap").settings() == {
        "preset": "gap",
        "above": "attack",
        "eps": 0.1,
        "norm": "inf",
        "domain": [0.0, 1.0],
        "half": None,
        "relative": False,
        "attack_steps": 20,
    }


@pytest.mark.parametrize("ours", [False, True])
def test_a_file_is_written_whole_or_not_at_all(ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"old", ours=ours)
    for name in ("fsync", "replace"):
        with monkeypatch.context() as broken:
            broken.setattr(os, name, full)
            with pytest.raises(FileError, match=r"cannot write .*a: No space left on device"):
                write_atomic(path, b"new", ours=ours)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a": b"old"}
    write_atomic(path, b"new", ours=ours)
    assert path.read_bytes() == b"new"


def full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_missing_folders_are_created(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file or directory"):
        write_atomic(tmp_path / "none" / "a", b"")
    write_atomic(tmp_path / "none" / "a", b"", ours=True)
    assert (tmp_path / "none" / "a").exists()


def test_the_temporary_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".a.part").write_bytes(b"half of")
    write_atomic(tmp_path / "a", b"whole", ours=True)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_a_folder_is_replaced_atomically(tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    with atomic_path(out) as beside:
        assert beside.suffix == ""  # no reader of a folder takes the temporary file of a killed process
        beside.mkdir()
        (beside / "a").write_bytes(b"a")
        assert not out.exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["out.zarr", "a"]

    def fail() -> None:
        with atomic_path(tmp_path / "b") as beside:
            beside.mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]
