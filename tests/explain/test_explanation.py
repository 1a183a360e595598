"""Explanations: what fits together, what a file gives back, and what is refused."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import proofmap as pm
from proofmap.digest import digest, hash_graph, hash_tensor, versions
from proofmap.errors import FileError, InputError
from proofmap.explain import Explanation, File, Origin, Source, storage
from proofmap.explain.explanation import Guarantee, rounded, spread
from proofmap.overlaps import Overlap


def bounds(scores: Tensor, full: Tensor | None = None, certified: bool = True) -> Overlap:
    """Overlaps whose drops are the scores."""
    full = torch.linspace(-3, 2, len(scores), dtype=scores.dtype) if full is None else full
    target = torch.arange(len(scores))
    return Overlap(full, full[:, None] - scores, full - 1, target, certified)


def make(shape: tuple[int, ...] = (3, 1, 4, 4), groups: int = 5, **changes: Any) -> Explanation:
    """A small explanation of random numbers, with some parts changed."""
    random = torch.Generator().manual_seed(0)
    dtype = changes.pop("dtype", torch.float32)
    x = torch.rand(shape, generator=random, dtype=dtype)
    mask = torch.arange(x[0].numel()).reshape(1, *shape[1:]) % groups
    scores = changes.pop("scores", torch.rand(shape[0], groups, generator=random, dtype=dtype))
    parts: dict[str, Any] = {
        "x": x,
        "scores": scores,
        "attributions": spread(scores, changes.get("mask", mask)),
        "mask": mask,
        "overlap": bounds(scores),
        "target": torch.arange(shape[0]),
        "predicted": torch.arange(shape[0]),
        "guarantee": "certified",
        "method": "EVA",
        "settings": {"eps": 0.01, "norm": "inf", "domain": [0.0, 1.0], "name": "δ ≤ ε"},
        "versions": versions(),
        "model_hash": "0" * 64,
        "input_hash": hash_tensor(x),
        "seconds": 0.1,
    }
    return Explanation(**{**parts, **changes})


def make_signed(shape: tuple[int, ...] = (3, 1, 4, 4), groups: int = 5, **changes: Any) -> Explanation:
    """One with two half balls."""
    random = torch.Generator().manual_seed(1)
    added, removed = torch.rand(2, shape[0], groups, generator=random)
    sides = {"overlap": bounds(added), "opposite": bounds(removed)}
    aim = torch.full((shape[0],), shape[0])
    return make(shape, groups, **{**sides, "scores": added - removed, "signed": True, "target": aim, **changes})


TENSORS = ("x", "scores", "attributions", "mask", "target", "predicted")
WORDS = (
    *("signed", "guarantee", "method", "settings", "seed", "versions", "model_hash", "input_hash", "seconds"),
    "origin",
)
SIDES = ("full", "frozen", "nominal", "target")


def content(e: Explanation) -> dict[str, Any]:
    """Everything in it, tensors by their bytes."""
    found: dict[str, Any] = {name: hash_tensor(getattr(e, name)) for name in TENSORS}
    found |= {name: getattr(e, name) for name in WORDS}
    for side, over in (("overlap", e.overlap), ("opposite", e.opposite)):
        parts = None if over is None else [hash_tensor(getattr(over, name)) for name in SIDES]
        found[side] = parts and [*parts, over and over.certified]
    return found


def test_content_leaves_nothing_out() -> None:
    assert content(make()).keys() == set(Explanation.__dataclass_fields__)


# What fits together


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"guarantee": "proven"}, r"got guarantee='proven', expected one of 'certified', 'sampled', 'none'"),
        ({"method": None}, r"got method=None, expected text"),
        ({"seed": 0.5}, r"got seed=0.5, expected a whole number, or None"),
        ({"seconds": -1.0}, r"got seconds=-1.0, expected a finite number >= 0"),
        ({"seconds": math.nan}, r"got seconds=nan"),
        ({"signed": 1}, r"got signed=1, expected True or False"),
        ({"settings": {"ball": {"norm": math.inf}}}, r"settings\['ball'\]\['norm'\] is inf, .* write it as text"),
        ({"settings": {"eps": [torch.ones(1)]}}, r"settings\['eps'\]\[0\] is a Tensor, expected a JSON value"),
        ({"settings": {1: 2}}, r"settings has the key 1, expected text"),
        ({"settings": ["eps"]}, r"got settings=\['eps'\], expected a mapping"),
        ({"versions": {"torch": 2}}, r"got versions=.*, expected text"),
        ({"x": torch.rand(3)}, r"x has shape \(3,\), expected \(N, \*shape\)"),
        ({"x": torch.rand(0, 4)}, r"x has shape \(0, 4\), .* at least one sample"),
        ({"x": torch.rand(2, 1, 4, 4)}, r"scores has shape \(3, 5\), expected \(2, 5\) for x of \(2, 1, 4, 4\)"),
        ({"attributions": torch.rand(3, 4, 4)}, r"attributions has shape \(3, 4, 4\), expected \(3, 1, 4, 4\)"),
        ({"attributions": torch.rand(3, 1, 4, 4)}, r"make them with spread\(scores, mask\)"),
        ({"attributions": torch.rand(3, 1, 4, 4).double()}, r"make them with spread\(scores, mask\)"),
        ({"target": torch.tensor([1])}, r"target has shape \(1,\), expected \(3,\)"),
        ({"predicted": torch.rand(3)}, r"predicted has type torch.float32, expected torch.int64"),
        ({"x": torch.ones(3, 1, 4, 4, dtype=torch.int64)}, r"x has type torch.int64, expected a floating-point type"),
        ({"overlap": bounds(torch.rand(3, 4))}, r"overlap.frozen has shape \(3, 4\), expected \(3, 5\) or \(3, 0\)"),
        ({"overlap": bounds(torch.rand(3, 5), certified=False)}, r"guarantee='certified' with an overlap that is not"),
        ({"opposite": bounds(torch.rand(3, 5))}, r"two half balls with signed=False"),
        ({"opposite": bounds(torch.rand(2, 5)), "signed": True}, r"opposite.full has shape \(2,\), expected \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        make(**changes)


@pytest.mark.parametrize("wrong", [5, -1])
def test_a_variable_in_no_group_is_refused(wrong: int) -> None:
    good = make()
    mask = good.mask.clone()
    mask[0, 0, 0, 0] = wrong
    with pytest.raises(InputError, match=r"mask has ids from -?\d to \d, expected 0 to 4"):
        replace(good, mask=mask)


def test_a_mask_needs_the_sample_dimension() -> None:
    good = make()
    with pytest.raises(InputError, match=r"mask has shape \(1, 4, 4\), expected \(3, 1, 4, 4\) or \(1, 1, 4, 4\)"):
        replace(good, mask=good.mask[0])


def test_an_explanation_does_not_change() -> None:
    e = make()
    with pytest.raises(FrozenInstanceError):
        e.method = "other"  # type: ignore[misc]


def test_settings_are_copied_as_json_keeps_them() -> None:
    given_: dict[str, Any] = {"domain": (0.0, 1.0), "inner": {"steps": 3}}
    e = make(settings=given_)
    given_["inner"]["steps"] = 4
    assert e.settings == {"domain": [0.0, 1.0], "inner": {"steps": 3}}


def test_scores_without_a_meaning_are_kept() -> None:
    assert make(scores=torch.full((3, 5), math.nan)).attributions.isnan().all()


@given(st.integers(1, 3), st.integers(1, 6), st.booleans(), st.integers(0, 99))
def test_spread_gives_each_variable_its_groups_score(count: int, groups: int, own: bool, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    mask = torch.randint(groups, (count if own else 1, 2, 3), generator=random)
    scores = torch.rand(count, groups, generator=random)
    found = spread(scores, mask)
    assert found.shape == (count, 2, 3)
    for n in range(count):
        for i in range(2):
            for j in range(3):
                assert found[n, i, j] == scores[n, mask[n if own else 0, i, j]]


# Samples


@pytest.mark.parametrize("made", [make, make_signed])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("which", [0, 2, -1, -3, slice(1, 3), slice(None, None, 2), slice(-1, None)])
def test_a_part_is_the_explanation_of_its_samples(
    made: Callable[..., Explanation], own: bool, which: int | slice
) -> None:
    e = made()
    if own:
        e = replace(e, mask=e.mask.repeat(3, 1, 1, 1))
    part = e[which]
    index = torch.arange(3)[which].reshape(-1)
    assert len(part) == len(index)
    for name in TENSORS:
        shared = name == "mask" and not own
        assert torch.equal(getattr(part, name), e.mask if shared else getattr(e, name)[index])
    for whole, some in ((e.overlap, part.overlap), (e.opposite, part.opposite)):
        assert (whole is None) == (some is None)
        if whole is not None and some is not None:
            assert all(torch.equal(getattr(some, name), getattr(whole, name)[index]) for name in SIDES)
    assert part.input_hash == hash_tensor(e.x[index])
    assert part.settings == e.settings


def test_samples_one_by_one() -> None:
    e = make()
    assert [float(part.overlap.full) for part in e] == e.overlap.full.tolist()


@pytest.mark.parametrize("k", [3, -4])
def test_a_sample_that_is_not_there(k: int) -> None:
    with pytest.raises(IndexError, match=f"got sample {k}, expected one of 3"):
        make()[k]


def test_no_samples_are_no_explanation() -> None:
    with pytest.raises(InputError, match="at least one sample"):
        make()[3:]


def test_repr() -> None:
    assert repr(make()) == (
        "Explanation(3 samples of (1, 4, 4), 5 groups, method='EVA', AO <= -3.00 to 2.00, guarantee='certified')"
    )
    assert "1 sample of (1, 4, 4)" in repr(make()[0])
    assert "AO <= -3.00, " in repr(make()[0])
    assert "AO >= " in repr(make(guarantee="sampled"))
    assert "AO about " in repr(make(guarantee="none"))


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_rounded_bound_stays_true(value: float) -> None:
    assert Decimal(rounded(value, "certified")) >= Decimal(value) >= Decimal(rounded(value, "sampled"))
    assert float(rounded(value, "none")) == pytest.approx(value, rel=5e-2, abs=1e-12)


@pytest.mark.parametrize(
    ("value", "guarantee", "text"),
    [
        (-3.2099, "certified", "-3.20"),
        (-3.2099, "sampled", "-3.21"),
        (2.101, "certified", "2.11"),
        (0.0, "certified", "0.00"),
        (1e-9, "certified", "1.01E-9"),
        (-0.012345, "certified", "-0.0123"),
        (math.inf, "certified", "∞"),
        (math.nan, "none", "nan"),
    ],
)
def test_rounded(value: float, guarantee: Guarantee, text: str) -> None:
    assert rounded(value, guarantee) == text


# Hashes


class Net(nn.Module):
    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3, stride, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.last = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.last(self.layers(x).flatten(1))
        return value


def graph_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> pm.Graph:
    return pm.trace(model.to(dtype).eval(), torch.zeros(1, 1, 6, 6, dtype=dtype))


def test_a_model_has_one_hash() -> None:
    graph = graph_of(Net())
    name = hash_graph(graph)
    assert len(name) == 64
    assert name == hash_graph(graph_of(Net())) == hash_graph(copy.deepcopy(graph))
    assert name == hash_graph(graph.to(torch.device("cpu"), torch.float32))


@pytest.mark.parametrize("name", ["layers.0.weight", "layers.0.bias", "last.weight", "last.bias"])
def test_every_weight_counts(name: str) -> None:
    model = Net()
    before = hash_graph(graph_of(model))
    with torch.no_grad():
        entry = model.get_parameter(name).view(-1)[-1:]
        entry.copy_(torch.nextafter(entry, entry + 1))
    assert hash_graph(graph_of(model)) != before


def test_structure_and_precision_count() -> None:
    graph = graph_of(Net())
    last = graph.nodes[-1]
    others = [
        graph_of(Net(stride=2)),
        graph_of(Net(), torch.float64),
        pm.Graph((*graph.nodes[:-1], replace(last, attributes={**last.attributes, "new": 1})), graph.output),
        pm.Graph((*graph.nodes[:-1], replace(last, name="renamed")), "renamed"),
        pm.Graph(graph.nodes, graph.nodes[-2].name),
        pm.Graph((*graph.nodes[:-1], replace(last, weight=last.bias, bias=last.weight)), graph.output),
    ]
    names = {hash_graph(other) for other in (graph, *others)}
    assert len(names) == 1 + len(others)


@pytest.mark.parametrize("wrapped", [False, True])
def test_every_entry_of_an_attribute_counts(wrapped: bool) -> None:
    graph = graph_of(Net())
    index = torch.arange(5000)

    def hash_with(value: Tensor) -> str:
        node = replace(graph.nodes[-1], attributes={"index": (value, 1) if wrapped else value})
        return hash_graph(pm.Graph((*graph.nodes[:-1], node), graph.output))

    assert hash_with(index) == hash_with(index.clone())
    assert hash_with(index) != hash_with(index.index_fill(0, torch.tensor([2500]), 0))


def test_an_input_has_one_hash() -> None:
    x = torch.rand(2, 3, 4)
    name = hash_tensor(x)
    assert name == hash_tensor(x.clone()) == hash_tensor(x.transpose(1, 2).contiguous().transpose(1, 2))
    assert name == hash_tensor(x.clone().requires_grad_())
    moved = x.clone()
    moved[1, 2, 3] = torch.nextafter(moved[1, 2, 3], torch.tensor(2.0))
    others = [moved, x.reshape(2, 4, 3), x.double(), x[:1], x[:0], x.to(torch.bfloat16), torch.tensor(1.0)]
    assert len({name, *(hash_tensor(other) for other in others)}) == 1 + len(others)
    assert hash_tensor(torch.zeros(2)) != hash_tensor(torch.zeros(2, dtype=torch.int32))


def test_parts_do_not_run_together() -> None:
    empty = torch.zeros(0)
    lists: list[list[str | Tensor]] = [[], [""], ["", ""], ["ab", "c"], ["a", "bc"], ["abc"], [empty], [empty, empty]]
    assert len({digest(parts) for parts in lists}) == len(lists)
    assert digest(iter(["a", "b"])) == digest(["a", "b"])


def test_versions() -> None:
    found = versions()
    assert found.keys() == {"proofmap", "torch", "python"}
    assert found["proofmap"] == pm.__version__
    assert found["torch"] == torch.__version__


# Files


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
    over = replace(make().overlap, frozen=torch.zeros(3, 0))
    e = make(overlap=over)
    e.save(tmp_path / "e")
    assert Explanation.load(tmp_path / "e").overlap.frozen.shape == (3, 0)


def test_explanations_travel_between_processes() -> None:
    e = make_signed()
    assert content(pickle.loads(pickle.dumps(e))) == content(e)  # noqa: S301


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


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "e"
    make_signed((1, 2, 2), 2).save(path)
    return path


def refuse(path: Path, match: str) -> None:
    with pytest.raises(FileError, match=match) as caught:
        Explanation.load(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text


def test_no_file(tmp_path: Path) -> None:
    refuse(tmp_path / "none", "cannot read .*: No such file")
    refuse(tmp_path, "cannot read .*: Is a directory")


@pytest.mark.parametrize("text", [b"", b"{", b"hello world, this is no explanation", b"\0" * 100], ids=repr)
def test_not_safetensors(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(text)
    refuse(tmp_path / "e", "is not an explanation: it is no safetensors file")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(1)}, tmp_path / "e")
    refuse(tmp_path / "e", "it is no safetensors file")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.5, 0.8, 0.9, 0.99, 0.9999])
def test_a_file_cut_short(share: float, saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    kept = int(share * len(whole))
    (tmp_path / "e").write_bytes(whole[:kept])
    refuse(tmp_path / "e", "cut short" if kept > 8 else "it is no safetensors file")


def test_a_file_with_something_behind_it(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(saved.read_bytes() + b"\0")
    refuse(tmp_path / "e", "is damaged or cut short")


def test_a_header_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes((1000).to_bytes(8, "little") + b"{" * 1000)
    refuse(tmp_path / "e", "is damaged or cut short")


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}], ids=repr)
def test_a_foreign_file(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "e", metadata)
    refuse(tmp_path / "e", "is not an explanation: it is a safetensors file with something else in it")


def forge(
    saved: Path, path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None], **metadata: str
) -> None:
    """Write the saved file again with a change to its tensors or its words, and a digest that agrees."""
    tensors = load_file(saved)
    whole = saved.read_bytes()
    written = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
    words = json.loads(written["explanation"])
    change(tensors, words)
    written |= {"explanation": json.dumps(words), **metadata}
    written["digest"] = storage._seal(written["explanation"], tensors)
    save_file(tensors, path, written)


def test_what_is_forged_without_a_change_is_read(saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None)
    assert content(Explanation.load(tmp_path / "e")) == content(Explanation.load(saved))


@pytest.mark.parametrize("version", ["3", "0", "new", ""])
def test_another_version_of_the_format(version: str, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None, version=version)
    refuse(tmp_path / "e", f"has version '{version}' of the format, expected '1' or '2': read it with")


def test_files_from_before_there_was_an_origin_are_read(saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: words.pop("origin"), version="1")
    assert content(Explanation.load(tmp_path / "e")) == content(Explanation.load(saved))


ORIGIN = Origin(
    Source("net.py:make", (File("net.py", "a" * 64), File("w.pt", "b" * 64))),
    tuple(Source(f"rows.csv#{k}", (File("rows.csv", "c" * 64),)) for k in range(3)),
    (2, None, 1),
    ("low", "middle", "high"),
    ("age", "weight"),
    "2026-03-01T10:00:00+01:00",
)


def test_an_origin_is_kept_and_goes_with_its_samples(tmp_path: Path) -> None:
    e = make((3, 2), 2, origin=ORIGIN)
    e.save(tmp_path / "e")
    again = Explanation.load(tmp_path / "e")
    assert again.origin == ORIGIN
    assert [again.label(k) for k in range(3)] == [2, None, 1]
    part = again[1:]
    assert part.origin is not None
    assert (part.origin.samples, part.origin.labels) == (ORIGIN.samples[1:], (None, 1))
    assert part.origin.model == ORIGIN.model
    assert make().label(0) is None


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: make((2, 2), 2, origin=ORIGIN), "got the origin of 3 samples, expected that of all 2"),
        (lambda: make((3, 3), 2, origin=ORIGIN), "got names for 2 columns, expected one for each of 3 variables"),
        (lambda: File("x", "12"), "got the file 'x' with SHA-256 '12', expected 64 digits in hex"),
        (lambda: replace(ORIGIN, labels=(1,)), "got 1 label.*, expected one for each of 3 samples"),
    ],
)
def test_an_origin_of_something_else_is_refused(made: Callable[[], object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        made()


@pytest.mark.parametrize(
    "origin", [5, [], {}, {**ORIGIN.json(), "labels": [-1, 0, 0]}, {**ORIGIN.json(), "model": {"name": 5, "files": []}}]
)
def test_an_origin_that_is_none_is_refused(origin: Any, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: words.update(origin=origin))
    refuse(tmp_path / "e", "holds parts that do not fit together")


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[" * 5000])
def test_words_that_are_not_json(text: str, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None, explanation=text)
    refuse(tmp_path / "e", "is damaged: its metadata is not JSON")


@pytest.mark.parametrize("text", ["[]", "1", "null", '{"certified": 1}'])
def test_words_that_are_no_table(text: str, saved: Path, tmp_path: Path) -> None:
    forge(saved, tmp_path / "e", lambda tensors, words: None, explanation=text)
    refuse(tmp_path / "e", "is no explanation: its JSON is not a table")


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
        (having(certified={"overlap": True}), "opposite.frozen, opposite.full, .* unknown"),
        (having(certified={"opposite": True}), r"is no explanation: it has the overlaps \['opposite'\]"),
        (without("seed"), "does not have the entries of an explanation: seed missing"),
        (having(more=1), "does not have the entries of an explanation: more unknown"),
        (having(x=torch.ones(1, 2, 3)), r"do not fit together: attributions has shape"),
        (having(x=torch.ones(1, 2, 2, dtype=torch.int64)), r"do not fit together: x has type torch.int64"),
        (having(scores=torch.tensor(1.0)), "do not fit together"),
        (having(scores=torch.ones(0, 2)), "do not fit together"),
        (having(mask=torch.tensor(0)), "do not fit together"),
        (having(mask=torch.ones(1, 2, 2)), "do not fit together"),
        (having(mask=torch.full((1, 2, 2), 2)), "do not fit together"),
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
