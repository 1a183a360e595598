"""Benchmarks from TOML files: their settings, their results, and resumed runs."""

import json
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from proofmap.bench import Spec, names, read, run
from proofmap.errors import FileError, InputError, ProofmapError
from proofmap.explainers import BASELINES, EVA
from proofmap.explainers.baselines import Saliency
from proofmap.explainers.methods.greedy import Greedy
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import grid
from proofmap.metrics import Deletion, Insertion
from proofmap.registry import EXPLAINER_ENTRIES
from proofmap.report.comparison_files import read_table
from proofmap.storage.resumable_folder import locked
from tests.bench.clock import Clock
from tests.cli.invoke import called

SMALL = """
title = "Two methods"
data = "mnist"
count = 500
model = "mnist_mlp"
metrics = ["deletion", "insertion"]

[[method]]
label = "Saliency"
name = "saliency"
paper = { deletion = 0.193 }

[[method]]
label = "EVA"
name = "eva"
eps = 0.01
groups = "grid:7"
count = 4
settings = { objective = "mean" }
"""


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return read(file)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spec, Path]:
    """A benchmark and its results, which tests copy."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.toml").write_text(SMALL.split('[[method]]\nlabel = "EVA"', maxsplit=1)[0])
    found = read(folder / "small.toml")
    run(found, folder / "out", quick=True, progress=False)
    return found, folder / "out"


@pytest.mark.parametrize("name", names())
def test_every_benchmark_of_the_package_reads(name: str) -> None:
    found = read(name)
    assert found.name == name
    assert any(EXPLAINER_ENTRIES[entry.name].kind.__name__.endswith("EVA") for entry in found.entries)
    chooses = name.startswith("choice")
    if found.data == "imagenet":  # ImageNet has no training pictures here: settings are chosen on the first pictures
        assert (found.start, found.count) == ((0, 40) if chooses else (40, 60))
    else:
        assert (found.split == "validation") == chooses
    assert all(set(entry.paper) <= set(found.metrics) for entry in found.entries)


def test_a_run_leaves_a_table_and_every_value(spec: Spec, tmp_path: Path) -> None:
    table = run(spec, tmp_path / "out", quick=True, progress=False)
    assert list(table.rows) == ["Saliency", "EVA"]
    assert table.rows["Saliency"]["deletion"].count == 16
    assert table.rows["Saliency"]["deletion"].paper == 0.193
    assert table.rows["EVA"]["deletion"].count == 4
    kept = np.load(tmp_path / "out" / "saliency" / "deletion.npy")
    assert kept.shape == (16,)
    np.testing.assert_array_equal(kept, table.values["Saliency"]["deletion"])
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.startswith(table.markdown())
    assert "EVA (4 samples)" in text
    assert "Made with proofmap" in text
    assert (tmp_path / "out" / "table.csv").read_text() == table.csv()
    assert (tmp_path / "out" / "table.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_goes_on_where_it_stopped(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interruption in the second method, the first is kept, and the values are those of one run."""
    whole = run(spec, tmp_path / "whole", quick=True, progress=False)

    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EVA, "_measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(spec, tmp_path / "cut", quick=True, progress=False)
    assert not (tmp_path / "cut" / "table.md").exists()
    monkeypatch.setattr(Saliency, "_maps", interrupted)
    resumed = run(spec, tmp_path / "cut", quick=True, progress=False)
    for method, metrics in whole.values.items():
        for metric, values in metrics.items():
            np.testing.assert_array_equal(resumed.values[method][metric], values)


def test_a_folder_of_another_run_is_left_alone(spec: Spec, tmp_path: Path) -> None:
    run(spec, tmp_path / "out", quick=True, progress=False)
    other = tmp_path / "other.toml"
    other.write_text(SMALL.replace("eps = 0.01", "eps = 0.02"))
    with pytest.raises(FileError, match="holds results of another method, model or images"):
        run(read(other), tmp_path / "out", quick=True, progress=False)


def test_only_a_new_method_is_computed(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing values are not computed again. Their maps may be missing, as from another machine."""
    run(spec, tmp_path / "out", quick=True, progress=False)
    for file in (tmp_path / "out" / "eva").glob("maps-*"):
        file.unlink()
    monkeypatch.setattr(EVA, "_measure", None)
    more = tmp_path / "more.toml"
    more.write_text(SMALL + '\n[[method]]\nlabel = "Grad x Input"\nname = "gradient-input"\n')
    table = run(read(more), tmp_path / "out", quick=True, progress=False)
    assert list(table.rows) == ["Saliency", "EVA", "Grad x Input"]


def test_values_are_stored_with_the_settings_of_their_metric(spec: Spec, tmp_path: Path) -> None:
    """They are in the store and in the table. The column of Tightness has only the settings that all methods share."""
    table = run(spec, tmp_path / "out", quick=True, progress=False)
    assert json.loads((tmp_path / "out" / "eva" / "insertion.json").read_text()) == Insertion().settings()
    assert [column.settings for column in table.columns] == [Deletion().settings(), Insertion().settings()]
    file = tmp_path / "bounds.toml"
    two = '[[method]]\nlabel = "EVA"\nname = "eva"\neps = [0.01, 0.02]\ngroups = "grid:2"\ncount = 2\n'
    file.write_text(SMALL.split("[[method]]", maxsplit=1)[0].replace('"deletion", "insertion"', '"tightness"') + two)
    (column,) = run(read(file), tmp_path / "bounds", quick=True, progress=False).columns
    assert "eps" not in column.settings
    assert column.settings["norm"] == "inf"


def test_values_of_other_settings_are_refused(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a changed metric or with unknown settings are refused. A deleted file is measured again."""
    out = tmp_path / "out"
    whole = run(spec, out, quick=True, progress=False)
    presets = {"paper": {**Deletion.presets["paper"], "steps": 10}}
    with monkeypatch.context() as patch:
        patch.setattr(Deletion, "presets", presets)
        with pytest.raises(FileError, match=r"deletion.npy was measured with steps = 100, expected 10: delete it"):
            run(spec, out, quick=True, progress=False)
    (out / "eva" / "insertion.json").unlink()
    with pytest.raises(FileError, match=r"insertion.npy was measured with unknown settings: delete it"):
        run(spec, out, quick=True, progress=False)
    (out / "eva" / "insertion.npy").unlink()
    again = run(spec, out, quick=True, progress=False)
    np.testing.assert_array_equal(again.values["EVA"]["insertion"], whole.values["EVA"]["insertion"])
    assert (out / "eva" / "insertion.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"made": 1}', '{"a"'])
@pytest.mark.parametrize("name", ["about.json", "deletion.npy", "deletion.json", "maps-0.npy", "maps-0.json"])
def test_damaged_files_are_named(name: str, content: str, small: tuple[Spec, Path], tmp_path: Path) -> None:
    spec, out = small
    shutil.copytree(out, tmp_path / "out")
    (tmp_path / "out" / "saliency" / "insertion.npy").unlink()  # so that the maps are read
    (tmp_path / "out" / "saliency" / name).write_text(content)
    with pytest.raises(FileError, match=r"(saliency.*(is damaged: delete|was measured with)|holds results of another)"):
        run(spec, tmp_path / "out", quick=True, progress=False)


def test_one_process_works_in_a_folder(small: tuple[Spec, Path], tmp_path: Path) -> None:
    spec, out = small
    shutil.copytree(out, tmp_path / "out")
    with (
        locked(tmp_path / "out"),
        pytest.raises(FileError, match=r"another run is at work in .*: wait for it, or choose another folder"),
    ):
        run(spec, tmp_path / "out", quick=True, progress=False)


def test_maps_that_were_deleted_are_made_again(spec: Spec, tmp_path: Path) -> None:
    whole = run(spec, tmp_path / "out", quick=True, progress=False)
    for name in ("maps-0.npy", "deletion.npy"):
        (tmp_path / "out" / "saliency" / name).unlink()
    again = run(spec, tmp_path / "out", quick=True, progress=False)
    np.testing.assert_array_equal(again.values["Saliency"]["deletion"], whole.values["Saliency"]["deletion"])


def test_a_quick_run_leaves_out_slow_methods(tmp_path: Path) -> None:
    """The table names them; a compared method may be among them."""
    file = tmp_path / "dear.toml"
    file.write_text('against = ["Saliency"]\n' + SMALL.replace('name = "saliency"', 'name = "saliency"\ndear = true'))
    assert list(run(read(file), tmp_path / "out", quick=True, progress=False).rows) == ["EVA"]
    assert "\nLeft out of a quick run: Saliency.\n" in (tmp_path / "out" / "table.md").read_text()
    file.write_text(file.read_text().replace('name = "eva"', 'name = "eva"\ndear = true'))
    with pytest.raises(InputError, match="only slow methods, and a quick run leaves them out: give the folder"):
        run(read(file), tmp_path / "none", quick=True, progress=False)


@pytest.mark.parametrize("name", ["table1-cifar10", "table1-mnist", "table3-ablation"])
def test_methods_that_need_a_gpu_are_marked_dear(name: str) -> None:
    greedy = [entry for entry in read(name).entries if issubclass(BASELINES[entry.name], Greedy)]
    assert len(greedy) > 0
    assert all(entry.dear for entry in greedy)


def test_a_table_of_the_package_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["proofmap.bench.benchmark_images"], "_QUICK_DIGITS", 1)
    monkeypatch.setattr(Greedy, "_measure", None)
    table = run(read("table3-ablation"), tmp_path / "out", quick=True, progress=False)
    assert list(table.rows) == ["Empirical EVA", "EVA"]
    assert "Left out of a quick run: Greedy-AS; Greedy-AO." in (tmp_path / "out" / "table.md").read_text()


def test_a_method_without_tightness_has_none(tmp_path: Path) -> None:
    """Its curve can be drawn nevertheless."""
    file = tmp_path / "bounds.toml"
    methods = '[[method]]\nlabel = "EVA"\nname = "eva"\neps = [0.01, 0.02]\ngroups = "grid:2"\ncount = 2\n'
    methods += methods.replace("EVA", "tangent").replace('"eva"', '"first-order"')
    file.write_text(SMALL.split("[[method]]", maxsplit=1)[0].replace('"insertion"', '"tightness"') + methods)
    table = run(read(file), tmp_path / "out", quick=True, progress=False)
    assert [label for label, row in table.rows.items() if "tightness" in row] == ["EVA, ε = 0.01", "EVA, ε = 0.02"]
    assert (tmp_path / "out" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_methods_are_created_before_any_work(tmp_path: Path) -> None:
    """An error of the last method is raised before the first one runs."""
    file = tmp_path / "wrong.toml"
    for old, new, message in (
        ("eps = 0.01", "", "eva got no ball"),
        ('{ objective = "mean" }', "{ magic = 1 }", r"eva got the settings \['groups', 'magic'\]"),
        ('"insertion"', '"tightness"', "tightness measures bounds on a ball, expected eps for every method"),
    ):
        assert old in SMALL
        file.write_text(SMALL.replace(old, new))
        with pytest.raises(InputError, match=message):
            run(read(file), tmp_path / "out", quick=True, progress=False)
        assert not (tmp_path / "out").exists()


def test_eva_is_compared_with_another_method(tmp_path: Path) -> None:
    """The difference is taken for samples that both explained. Above 0 means better."""
    file = tmp_path / "against.toml"
    file.write_text('against = ["Saliency"]\n' + SMALL)
    table = run(read(file), tmp_path / "out", quick=True, progress=False)
    lines = (tmp_path / "out" / "against.md").read_text().splitlines()
    assert lines[0] == "| ahead of Saliency by | Deletion | Insertion |"
    ahead = [float(cell.split()[0]) for cell in lines[2].split("|")[2:-1]]
    mean = {m: (table.values["EVA"][m][:4] - table.values["Saliency"][m][:4]).mean() for m in ("deletion", "insertion")}
    assert ahead == pytest.approx([-mean["deletion"], mean["insertion"]], abs=1e-4)
    file.write_text('against = ["Nobody"]\n' + SMALL)
    with pytest.raises(InputError, match="EVA with 'Nobody', expected the label of one of its methods"):
        read(file)


def test_machines_are_named(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table from two machines names both."""
    run(spec, tmp_path / "out", quick=True, progress=False)
    (tmp_path / "out" / "eva" / "insertion.npy").unlink()
    monkeypatch.setattr(sys.modules["proofmap.bench.benchmark_run"], "machine_of", lambda device: "another machine")
    run(spec, tmp_path / "out", quick=True, progress=False)
    text = (tmp_path / "out" / "table.md").read_text()
    assert "Made with another machine: EVA.\n" in text
    assert ": Saliency; EVA.\n" in text


def test_a_list_of_radii_is_a_method_for_each_and_a_curve(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(SMALL.replace("eps = 0.01", "eps = [0.01, 0.02]"))
    spec = read(file)
    assert [(e.label, e.eps, e.curve) for e in spec.entries[1:]] == [
        ("EVA, ε = 0.01", 0.01, "EVA"),
        ("EVA, ε = 0.02", 0.02, "EVA"),
    ]
    run(spec, tmp_path / "out", quick=True, progress=False)
    assert (tmp_path / "out" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_radius_may_be_each_samples_own(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(SMALL.replace("eps = 0.01", 'eps = "auto"'))
    (_, eva) = read(file).entries
    assert eva.ball((0.0, 1.0)) == Ball("auto", domain=(0.0, 1.0))


def test_a_mean_rank_where_a_benchmark_asks_for_one(tmp_path: Path) -> None:
    """It is over the named metrics, in all forms of the table. EVA explains fewer samples and has none."""
    third = '[[method]]\nlabel = "IG"\nname = "integrated-gradients"\n'
    file = tmp_path / "ranks.toml"
    file.write_text(
        SMALL.replace('"insertion"]', '"insertion", "sparseness"]\nranks = ["deletion", "insertion"]') + third
    )
    table = run(read(file), tmp_path / "out", quick=True, progress=False)
    both = [table.values["Saliency"][name] < table.values["IG"][name] for name in ("deletion", "insertion")]
    places = (np.where(both[0], 1, 2) + np.where(both[1], 2, 1)) / 2
    assert table.rows["Saliency"]["mean-rank"].mean == pytest.approx(places.mean())
    assert table.rows["IG"]["mean-rank"].mean == pytest.approx(3 - places.mean())
    assert "mean-rank" not in table.rows["EVA"]
    text = (tmp_path / "out" / "table.md").read_text()
    assert "| Sparseness ↑ | Mean rank ↓ |" in text
    assert "Mean rank: over deletion, insertion." in text
    assert read_table(tmp_path / "out" / "table.csv").rows["IG"]["mean-rank"].count == 16


def test_a_grid_may_be_smooth(tmp_path: Path) -> None:
    file = tmp_path / "smooth.toml"
    file.write_text(SMALL.replace("grid:7", "grid:7:smooth"))
    assert read(file).entries[1].grouping() == grid(7, smooth=True)
    file.write_text(SMALL)
    assert read(file).entries[1].grouping() == grid(7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"insertion"]', '"insertion"]\nranks = ["road"]', "ranks methods by 'road', expected one of its metrics"),
        ('"insertion"]', '"tightness"]\nranks = ["tightness"]', "ranks methods by 'tightness', expected one of"),
        ('"insertion"]', '"insertion"]\nranks = true', "has ranks = True, expected one"),
        ('name = "saliency"', 'name = "magic"', "is named 'magic', expected one of saliency"),
        ('"insertion"]', '"beauty"]', "asks for the metric 'beauty'"),
        ('"insertion"]', '"stability"]', "asks for the metric 'stability', expected one of deletion"),
        ('"insertion"]', '"deletion"]', "asks for the metric 'deletion' twice, expected it once"),
        ('["deletion", "insertion"]', "[]", r"has metrics = \(\), expected one"),
        ('["deletion", "insertion"]', '"deletion"', "has metrics = 'deletion', expected one"),
        (SMALL[SMALL.index("[[method]]") :], "method = []", "has no method, expected at least one"),
        ("eps = 0.01", 'eps = 0.01\ndear = "yes"', "has dear = 'yes', expected one"),
        ('groups = "grid:7"', 'groups = "grid:0"', "has groups 'grid:0', expected 'pixels' or 'grid:12'"),
        ('groups = "grid:7"', 'groups = "pixels:smooth"', "has groups 'pixels:smooth', .* or 'grid:12:smooth'"),
        ("eps = 0.01", 'eps = 0.01\nbounds = "magic"', "got bounds 'magic'"),
        ("eps = 0.01", "eps = 0.01\nradius = 3", "has a method with 'radius', expected only"),
        ('title = "Two methods"', "", "is no benchmark"),
        ('title = "Two methods"', "title = ", "is no benchmark"),
        ('label = "EVA"', 'label = "saliency"', "two methods with the label"),
        ("eps = 0.01", 'eps = "small"', "has eps = 'small', expected one"),
        ("eps = 0.01", "eps = [0.01, -1]", "has the radius -1, expected numbers of at least 0"),
        ("eps = 0.01", 'eps = [0.01, "auto"]', "has the radius 'auto', expected numbers of at least 0"),
        ("count = 500", "count = 0", "has count = 0, expected one"),
        ("paper = { deletion = 0.193 }", 'paper = { deletion = "x" }', "has paper = "),
    ],
)
def test_a_wrong_file_is_refused_before_any_work(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    file = tmp_path / "wrong.toml"
    file.write_text(SMALL.replace(old, new))
    with pytest.raises(ProofmapError, match=message):
        read(file)


VALUES = ["5", '"x"', '""', "[]", "{}", "true", "-1", "nan", "inf", "[1, 2]", '["a"]', "{ a = 1 }", "2020-01-01"]


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from([*VALUES, "delete", "method = 3", "[method]"]))), st.text()
)
def test_any_file_is_read_or_refused_in_one_sentence(changes: list[tuple[int, str]], tail: str) -> None:
    """Changed values, lost and added lines, or any text: the file is read or refused in one sentence."""
    lines = SMALL.splitlines()
    for place, value in changes:
        at = place % len(lines)
        if value == "delete" and len(lines) > 1:
            del lines[at]
        elif "=" in lines[at] and value in VALUES:
            lines[at] = f"{lines[at].split('=')[0]}= {value}"
        else:
            lines.insert(at, value)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "any.toml"
        file.write_text("\n".join(lines) + tail * (len(changes) % 2), encoding="utf-8", errors="replace")
        with suppress(ProofmapError):
            read(file)


def test_a_run_needs_a_folder_or_quick(spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected their folder, or quick=True"):
        run(spec, tmp_path / "out", progress=False)
    with pytest.raises(InputError, match="got the benchmark 'table9', expected one of choice-bounds, choice-cifar10"):
        read("table9")
    with pytest.raises(FileError, match="cannot read"):
        read(tmp_path / "none.toml")


def test_the_command_prints_the_table_and_one_sentence_for_an_error(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    done = called("bench", file, "--quick", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("| | Deletion ↓ | Insertion ↑ | seconds |")
    wrong = called("bench", "table9")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: got the benchmark 'table9', expected one of")
    assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize("device", ["foo", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    found = called("bench", "table1-mnist", "--quick", "--device", device)
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: got --device {device}, expected cpu, ")


def test_the_first_call_is_not_part_of_the_seconds(
    small: tuple[Spec, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for a resumed run: the time to load a method is not counted."""
    clock = Clock()
    method = clock.map_after(2.0)

    def explain(self: object, inputs: Tensor, target: Tensor) -> Tensor:
        return method(inputs, target)

    monkeypatch.setattr(Saliency, "attribute", explain)
    clock.rule(monkeypatch)
    assert run(small[0], tmp_path, quick=True, progress=False).seconds == {"Saliency": 2.0}
