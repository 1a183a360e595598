"""Explanations on disk: what a file gives back, and what is refused."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from proofmap.errors import FileError
from proofmap.explainers import Explanation
from proofmap.explainers.explanation import spread
from tests.explainers.making import content, forge, make, make_signed, refuse, two_sided
from tests.plots.reasons.reasoned import reasoned


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("made", [make, make_signed])
def test_a_file_gives_back_what_was_saved(made: Callable[..., Explanation], dtype: torch.dtype, tmp_path: Path) -> None:
    e = made(dtype=dtype, seed=2**70, target=torch.tensor([1, 2, 0]))
    e.save(tmp_path / "digit.proofmap")
    again = Explanation.load(str(tmp_path / "digit.proofmap"))
    assert content(again) == content(e)
    assert repr(again) == repr(e)
    assert [path.name for path in tmp_path.iterdir()] == ["digit.proofmap"]


@pytest.mark.parametrize(
    "scores",
    [torch.full((3, 5), math.nan), torch.full((3, 5), -0.0), torch.rand(5, 3).T, torch.rand(3, 1).expand(3, 5)],
    ids=["nan", "minus zero", "transposed", "expanded"],
)
def test_unusual_tensors_come_back(scores: Tensor, tmp_path: Path) -> None:
    e = make(scores=scores, x=torch.rand(3, 1, 4, 4, requires_grad=True))
    e.save(tmp_path / "e")
    assert content(Explanation.load(tmp_path / "e")) == content(e)


def test_parts_that_share_memory_come_back(tmp_path: Path) -> None:
    e = make()
    e = replace(e, predicted=e.target, overlap=replace(e.overlap, target=e.target), mask=e.mask.expand(3, 1, 4, 4))
    e.save(tmp_path / "e")
    again = Explanation.load(tmp_path / "e")
    assert content(again) == content(e)
    again.x.add_(1)  # its own memory, not the file's


def test_overlaps_without_frozen_groups_come_back(tmp_path: Path) -> None:
    make(overlap=replace(make().overlap, frozen=torch.zeros(3, 0), frozen_lower=torch.zeros(3, 0))).save(tmp_path / "e")
    assert Explanation.load(tmp_path / "e").overlap.frozen.shape == (3, 0)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "e"
    e = make()
    e.save(path)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FileError, match=r"cannot write .*e: No space left on device"):
        replace(e, method="other").save(path)
    assert Explanation.load(path).method == "EVA"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot write .*: No such file or directory"):
        make().save(tmp_path / "none" / "e")
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot write .*: Not a directory"):
        make().save(tmp_path / "file" / "e")


def test_no_file(tmp_path: Path) -> None:
    refuse(tmp_path / "none", "cannot read .*: No such file")
    refuse(tmp_path, "cannot read .*: Is a directory")


@pytest.mark.parametrize("text", [b"", b"{", b"hello world, this is no explanation", b"\0" * 100], ids=repr)
def test_not_safetensors(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(text)
    refuse(tmp_path / "e", "is not an explanation: it is not a safetensors file")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(1)}, tmp_path / "e")
    refuse(tmp_path / "e", "it is not a safetensors file")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.5, 0.8, 0.9, 0.99, 0.9999])
def test_a_file_cut_short(share: float, saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    kept = int(share * len(whole))
    (tmp_path / "e").write_bytes(whole[:kept])
    refuse(tmp_path / "e", "cut short" if kept > 8 else "it is not a safetensors file")


def test_a_file_with_something_behind_it(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(saved.read_bytes() + b"\0")
    refuse(tmp_path / "e", "is damaged or cut short")


def test_a_header_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes((1000).to_bytes(8, "little") + b"{" * 1000)
    refuse(tmp_path / "e", "is damaged or cut short")


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}], ids=repr)
def test_a_foreign_file(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "e", metadata)
    refuse(tmp_path / "e", "is not an explanation: it is a safetensors file with other content")


def test_what_is_forged_without_a_change_is_read(saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None)
    assert content(Explanation.load(tmp_path / "e")) == content(Explanation.load(saved))


@pytest.mark.parametrize("version", ["4", "0", "new", ""])
def test_another_version_of_the_format(version: str, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None, version=version)
    refuse(tmp_path / "e", f"has version '{version}' of the format, expected one of '1', '2', '3': read it with")


def one_sided(tensors: dict[str, Tensor], words: dict[str, Any]) -> None:
    """As files were before overlaps had two sides."""
    for name in [name for name in tensors if name.endswith("_lower")]:
        del tensors[name]


def test_files_from_before_there_was_an_origin_are_read(saved: Path, tmp_path: Path) -> None:
    def older(tensors: dict[str, Tensor], words: dict[str, Any]) -> None:
        one_sided(tensors, words)
        del words["origin"]

    forge(saved, tmp_path / "e", older, version="1")
    assert content(Explanation.load(tmp_path / "e")) == content(Explanation.load(saved))


def test_files_from_before_overlaps_had_two_sides_are_read(saved: Path, tmp_path: Path) -> None:
    """The input itself reaches the lower sides."""
    forge(saved, tmp_path / "e", one_sided, version="2")
    again = Explanation.load(tmp_path / "e")
    assert content(again) == content(Explanation.load(saved))
    assert torch.equal(again.overlap.full_lower, again.overlap.nominal)
    forge(saved, tmp_path / "e", one_sided)
    refuse(tmp_path / "e", "does not have the tensors of an explanation: .*opposite.full_lower, .* missing")
    forge(saved, tmp_path / "e", lambda tensors, words: None, version="2")
    refuse(tmp_path / "e", "does not have the tensors of an explanation: .*overlap.full_lower unknown")


@pytest.mark.parametrize(("name", "sides"), [("version-2", 1), ("version-2-targeted", 2)])
def test_a_file_that_an_earlier_release_wrote(name: str, sides: int) -> None:
    e = Explanation.load(Path(__file__).parent / "old" / f"{name}.proofmap")
    assert (len(e), e.scores.shape, len(e._sides)) == (2, (2, 4), sides)
    for side in e._sides.values():
        assert torch.equal(side.full_lower, side.nominal)
        torch.testing.assert_close(side.frozen_lower, side.nominal[:, None].expand(2, 4))
        assert side.points is None
    assert not e.proven_scores.any()
    assert bool((e.intervals[:, :, 0] <= e.scores).all() and (e.scores <= e.intervals[:, :, 1]).all())


def test_lower_sides_and_their_points_come_back(tmp_path: Path) -> None:
    e = make((1, 3), 2, dtype=torch.float64)
    over = two_sided((0, 1), [(-2, -1), (-0.5, 0.5)])
    points = torch.rand(1, 3, 3, dtype=torch.float64)
    drops = torch.tensor([[[0, 4], [0, 2]]], dtype=torch.float64)
    for given_ in (over, replace(over, points=points), replace(over, points=points, drops=drops)):
        whole = replace(e, overlap=given_, scores=given_.drop, attributions=spread(given_.drop, e.mask))
        whole.save(tmp_path / "e")
        again = Explanation.load(tmp_path / "e")
        assert content(again) == content(whole)
        assert again.intervals.tolist() == [[[1, 3], [0, 1.5]]]
        assert content(again[0]) == content(whole)


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[" * 5000])
def test_words_that_are_not_json(text: str, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None, explanation=text)
    refuse(tmp_path / "e", "is damaged: its metadata is not JSON")


@pytest.mark.parametrize("text", ["[]", "1", "null", '{"certified": 1}'])
def test_words_that_are_no_table(text: str, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None, explanation=text)
    refuse(tmp_path / "e", "is not an explanation: its JSON is not a table")


def without(name: str) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    def change(tensors: dict[str, Tensor], words: dict[str, Any]) -> None:
        (tensors if name in tensors else words).pop(name)

    return change


def having(**parts: Any) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    def change(tensors: dict[str, Tensor], words: dict[str, Any]) -> None:
        for name, value in parts.items():
            (tensors if isinstance(value, Tensor) else words)[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (without("scores"), "does not have the tensors of an explanation: scores missing"),
        (without("opposite.full"), "does not have the tensors of an explanation: opposite.full missing"),
        (having(more=torch.ones(1)), "does not have the tensors of an explanation: more unknown"),
        (having(certified={"overlap": True}), "opposite.frozen, .*opposite.full, .* unknown"),
        (having(certified={"opposite": True}), r"is not an explanation: it has the overlaps \['opposite'\]"),
        (without("seed"), "does not have the entries of an explanation: seed missing"),
        (having(more=1), "does not have the entries of an explanation: more unknown"),
        (having(x=torch.ones(1, 2, 3)), r"do not fit together: attributions has shape"),
        (having(x=torch.ones(1, 2, 2, dtype=torch.int64)), r"do not fit together: x has type torch.int64"),
        (having(scores=torch.tensor(1.0)), "do not fit together"),
        (having(scores=torch.ones(0, 2)), "do not fit together"),
        (having(mask=torch.tensor(0)), "do not fit together"),
        (having(mask=torch.ones(1, 2, 2)), "do not fit together"),
        (having(mask=torch.full((1, 2, 2), 2)), "do not fit together"),
        (having(**{"overlap.full_lower": torch.tensor([9.0])}), "fit together: an input reaches an overlap of 9 where"),
        (having(**{"overlap.frozen_lower": torch.zeros(1, 3)}), "fit together: got frozen_lower of shape"),
        (having(**{"overlap.points": torch.zeros(1, 4, 2, 2)}), r"points has shape .*, expected \(1, 3, 2, 2\)"),
        (having(target=torch.tensor([1, 2])), r"do not fit together: target has shape \(2,\), expected \(1,\)"),
        (having(guarantee="proven"), "do not fit together: got guarantee='proven'"),
        (having(guarantee=["certified"]), "do not fit together: got guarantee="),
        (having(certified={"overlap": True, "opposite": False}), "guarantee='certified' with an overlap that is not"),
        (having(certified={"overlap": 1, "opposite": True}), "guarantee='certified' with an overlap that is not"),
        (having(signed=False), "two half balls with signed=False"),
        (having(seconds="long"), "got seconds='long'"),
        (having(seconds=math.nan), "got seconds=nan"),
        (having(seconds=10**400), "do not fit together"),
        (having(settings=None), "got settings=None, expected a mapping"),
        (having(versions={"torch": 2}), "expected text"),
    ],
)
def test_parts_that_are_no_explanation(
    change: Callable[[dict[str, Tensor], dict[str, Any]], None], match: str, saved: Path, tmp_path: Path
) -> None:
    forge(saved, tmp_path / "e", change)
    refuse(tmp_path / "e", match)


def test_a_changed_number_is_seen(saved: Path, tmp_path: Path) -> None:
    whole = bytearray(saved.read_bytes())
    whole[-1] ^= 1
    (tmp_path / "e").write_bytes(whole)
    refuse(tmp_path / "e", "is damaged: its content does not have the digest")


@settings(max_examples=400)
@given(st.data())
def test_flipped_bytes_are_seen(saved: Path, data: st.DataObject) -> None:
    whole = bytearray(saved.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path = saved.with_name("flipped")
    path.write_bytes(whole)
    try:
        again = Explanation.load(path)
    except FileError:
        return
    assert content(again) == content(Explanation.load(saved))


def test_a_file_holds_sufficient_sets(tmp_path: Path) -> None:
    e = reasoned()
    e.save(tmp_path / "sets.proofmap")
    assert content(Explanation.load(tmp_path / "sets.proofmap")) == content(e)


def test_a_file_with_a_false_set_is_refused(tmp_path: Path) -> None:
    """A bound that is not below its limit proves nothing, and a necessary group needs its point."""
    reasoned().save(tmp_path / "sets.proofmap")

    def raised(tensors: dict[str, Tensor], words: dict[str, Any]) -> None:
        tensors["reason.bound"] = tensors["reason.limit"].clone()

    def unshown(tensors: dict[str, Tensor], words: dict[str, Any]) -> None:
        tensors["reason.necessary"] = ~tensors["reason.free"]

    for change, match in ((raised, "a bound that is not below its limit"), (unshown, "groups without a point")):
        forge(tmp_path / "sets.proofmap", tmp_path / "false.proofmap", change)
        refuse(tmp_path / "false.proofmap", match)
