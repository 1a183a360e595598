"""Resumable folders: records that differ, damaged pieces, pieces that stay inside, one process at a time."""

import json
import sys
from pathlib import Path

import pytest

from proofmap.errors import FileError
from proofmap.storage.resumable_folder import (
    check_same_work,
    locked,
    path_inside,
    read_piece,
    record_differences,
    write_piece,
)


def test_records_differ_by_name_and_both_values() -> None:
    old = {"job": {"eps": 0.01, "target": None}, "gone": 1}
    new = {"job": {"eps": 0.02, "norm": "inf"}}
    assert record_differences(old, new) == {"job.eps": (0.01, 0.02), "job.norm": (None, "inf"), "gone": (1, None)}
    assert record_differences(old, old) == {}


def test_only_the_same_work_continues_in_a_folder(tmp_path: Path) -> None:
    check_same_work(tmp_path, {"eps": [0.1, 0.2]}, {"eps": (0.1, 0.2)}, "results of another run")  # equal as JSON
    other = r"holds results of another run \(job.eps was 0.01 and is 0.02\): choose another folder, or use the same"
    was, now = {"job": {"eps": 0.01}}, {"job": {"eps": 0.02}}
    with pytest.raises(FileError, match=other) as caught:
        check_same_work(tmp_path, was, now, "results of another run", arguments=("out",))
    assert caught.value.arguments == ("out",)


def test_a_damaged_piece_is_named_with_what_to_delete(tmp_path: Path) -> None:
    assert read_piece(tmp_path, "about.json", json.loads) is None
    write_piece(tmp_path, "about.json", {"eps": 0.01})
    assert read_piece(tmp_path, "about.json", json.loads) == {"eps": 0.01}
    write_piece(tmp_path, "about.json", b'{"eps": 0.')
    with pytest.raises(FileError, match=r"about\.json is damaged: delete it, and run again"):
        read_piece(tmp_path, "about.json", json.loads)
    with pytest.raises(FileError, match="expected one inside it"):
        read_piece(tmp_path, "../about.json", json.loads)


def test_a_piece_is_bytes_or_a_record(tmp_path: Path) -> None:
    write_piece(tmp_path / "new", "deep/piece", b"bytes")
    write_piece(tmp_path / "new", "about.json", {"eps": 0.01})
    assert (tmp_path / "new" / "deep" / "piece").read_bytes() == b"bytes"
    assert json.loads((tmp_path / "new" / "about.json").read_text()) == {"eps": 0.01}
    assert (tmp_path / "new" / "about.json").read_text().endswith("}\n")


@pytest.mark.parametrize("name", ["", "..", "../a", "/a", "a/../../b", "C:a", "a\\b", "out"])
def test_nothing_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    with pytest.raises(FileError, match="expected one inside it"):
        path_inside(tmp_path / "in", name)
    with pytest.raises(FileError, match="expected one inside it"):
        write_piece(tmp_path / "in", name, b"")


def test_one_works_in_a_folder_at_a_time_and_leaves_a_log(tmp_path: Path) -> None:
    with locked(tmp_path / "out") as log:
        log.add("start", by="me")
        with pytest.raises(FileError, match="another run is at work in"), locked(tmp_path / "out"):
            pass
    with locked(tmp_path / "out"):
        pass
    (line,) = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
    assert {**json.loads(line), "time": None} == {"time": None, "event": "start", "by": "me"}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock there")
def test_a_log_that_is_deleted_takes_no_lock_away(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / "log.jsonl").unlink()
        with pytest.raises(FileError, match="another run is at work in"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass
