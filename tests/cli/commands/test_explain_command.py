"""proofmap explain: maps of all kinds of inputs, and errors in one sentence."""

import json
import shlex
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import proofmap as pm
from proofmap.errors import FileError
from proofmap.explainers.automatic import proof_choice
from proofmap.proof import check
from proofmap.registry import EXPLAINER_ENTRIES, EXPLAINERS
from tests.cli.invoke import answer, called, installed
from tests.sources.files import BOX, bytes_of, digits, small_state, write_linear, write_module, write_png

MODEL = "zoo:mnist_mlp"
GRID = ("--groups", "grid:4")


def test_the_installed_program_explains_a_picture(tmp_path: Path) -> None:
    images, labels = digits(2)
    for k in range(2):
        write_png(tmp_path / f"digit{k}.png", images[k])
    (tmp_path / "labels.csv").write_text("file,label\n" + "".join(f"digit{k}.png,{labels[k]}\n" for k in range(2)))
    found = installed("explain", MODEL, ".", "--eps", "2/255", *GRID, "--out", "maps", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    expected = pm.EVA(
        pm.zoo.mnist_mlp(), pm.Ball(2 / 255, domain=(0.0, 1.0)), groups=pm.groups.grid(4), progress=False
    ).explain(images)
    lines = found.stdout.splitlines()
    sentence = "proven: no input in the ball (ε = 2/255 in L∞, values within [0, 1]) changes the class"
    assert lines[0].startswith(f"digit0.png: {labels[0]}, as labelled; {sentence}; AO(B) <= -")
    assert lines[-1] == "wrote 2 maps to maps"
    for k in range(2):
        again = pm.Explanation.load(tmp_path / "maps" / f"digit{k}.proofmap")
        torch.testing.assert_close(again.scores, expected.scores[k : k + 1], atol=1e-5, rtol=1e-4)
        assert again.origin is not None
        (sample,) = again.origin.samples
        assert (sample.name, again.origin.model.name, again.label(0)) == (f"digit{k}.png", MODEL, labels[k])
        assert [(file.path, file.sha256) for file in sample.files] == [
            (f"digit{k}.png", sha256((tmp_path / f"digit{k}.png").read_bytes()).hexdigest())
        ]
        assert datetime.fromisoformat(again.origin.made or "").utcoffset() is not None
        with Image.open(tmp_path / "maps" / f"digit{k}.map.png") as picture:
            assert picture.size > (100, 100)
    assert write_png(tmp_path / "copy.png", images[0]).read_bytes() == (tmp_path / "digit0.png").read_bytes()


def test_a_certificate_is_written_and_the_command_that_checks_it_works(tmp_path: Path) -> None:
    np.save(tmp_path / "digit.npy", digits(1)[0].numpy())
    words = ("explain", MODEL, tmp_path / "digit.npy", "--eps", "0.01", *GRID, "--out", tmp_path / "maps")
    found = called(*words, "--certificate", tmp_path / "new" / "seven.proof")
    assert found.exit_code == 0, found.output
    said, line = found.stdout.splitlines()[1:3]
    size = (tmp_path / "new" / "seven.proof").stat().st_size
    assert f"seven.proof, {size} bytes: AO(B) <= -10.05 and AO(B_u) of 16 groups; no input of the ball" in said
    assert line.startswith("check it with: proofmap check ")
    command = shlex.split(line.removeprefix("check it with: proofmap "))
    assert [Path(word).name for word in command[1:]] == ["seven.proof", "seven.onnx", "seven.npy"]
    checked = called(*command)
    assert checked.exit_code == 0
    assert checked.stdout.startswith("Decision 7 is proven: no input within ε = 0.01 (L∞) of this input")
    record = answer(*words, "--certificate", tmp_path / "again.proof")["inputs"][0]["certificate"]
    assert (record["file"], record["bytes"]) == (str(tmp_path / "again.proof"), size)


def test_the_certificate_of_a_sufficient_set_is_checked_with_all_its_sentences(tmp_path: Path) -> None:
    np.save(tmp_path / "digit.npy", digits(1)[0].numpy())
    net = write_linear(tmp_path / "net.onnx", (1, 28, 28))
    words = ("explain", net, tmp_path / "digit.npy", "--eps", "0.01", *GRID, "--out", tmp_path / "maps")
    found = called(*words, "--method", "sufficient", "--certificate", tmp_path / "reason.proof")
    assert found.exit_code == 0, found.output
    said, line = found.stdout.splitlines()[1:3]
    assert "groups are proven to be free, over the reals and in float32; " in said
    checked = called(*shlex.split(line.removeprefix("check it with: proofmap ")))
    assert checked.exit_code == 0
    first, second, third, *_ = checked.stdout.splitlines()
    assert first.startswith("Proven: no input within ε = 0.01 (L∞) of this input")
    assert "All 5 kept groups are necessary: for each, the file has an input of the ball" in second
    assert third == "None of the kept groups can be freed as well: the set of kept groups is subset-minimal."


def test_a_certificate_of_an_onnx_file_is_about_that_file_behind_its_preparation(tmp_path: Path) -> None:
    np.save(tmp_path / "digit.npy", digits(1)[0].numpy())
    net = write_linear(tmp_path / "net.onnx", (1, 28, 28))
    words = ("explain", net, tmp_path / "digit.npy", "--eps", "0.01", *GRID, "--out", tmp_path / "maps")
    record = answer(*words, "--mean", "0.13", "--std", "0.3", "--certificate", tmp_path / "x.proof")["inputs"][0]
    made = record["certificate"]
    assert (made["model"], (tmp_path / "x.onnx").exists()) == (str(net), False)
    assert made["full"] == pytest.approx(record["overlap_upper_proven"], abs=3e-2)  # the rounding of float32
    assert check.read_claim(made["file"], made["model"], made["input"]).statement.target == 2


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--certificate", "x.zip"), "got --certificate x.zip, expected a name that ends in .proof"),
        (
            ("--certificate", "x.proof", "--method", "empirical"),
            "got --certificate with --method empirical, expected eva",
        ),
    ],
)
def test_a_certificate_of_something_else_is_refused(words: tuple[str, ...], match: str, tmp_path: Path) -> None:
    np.save(tmp_path / "digit.npy", digits(1)[0].numpy())
    found = called("explain", MODEL, tmp_path / "digit.npy", "--eps", "0.01", *words, "--out", tmp_path / "maps")
    assert found.exit_code != 0
    assert match in " ".join(found.output.split())
    assert not (tmp_path / "maps").exists()


def test_a_targeted_map_has_a_certificate_for_each_half(tmp_path: Path) -> None:
    write_png(tmp_path / "seven.png", digits(1)[0][0])
    words = ["explain", MODEL, tmp_path / "seven.png", "--eps", "0.01", "--groups", "grid:4", "--out", tmp_path]
    words += ["--method", "targeted", "--target", "3"]
    made = answer(*words, "--certificate", tmp_path / "x.proof")["inputs"][0]["certificates"]
    assert [Path(one["file"]).name for one in made] == ["x.plus.proof", "x.minus.proof"]
    for one in made:
        assert check.read_claim(one["file"], one["model"], one["input"]).statement.rows == [3]


def test_an_output_has_a_certificate(tmp_path: Path) -> None:
    np.save(tmp_path / "digit.npy", digits(1)[0].numpy())
    net = write_linear(tmp_path / "net.onnx", (1, 28, 28))
    words = ("explain", net, tmp_path / "digit.npy", "--eps", "0.01", *GRID, "--out", tmp_path / "maps")
    record = answer(*words, "--output", "2", "--certificate", tmp_path / "x.proof")["inputs"][0]
    made = record["certificate"]
    checked = called("check", made["file"], made["model"], made["input"])
    assert checked.exit_code == 0
    assert checked.stdout.startswith("Proven: output 2 is between ")
    (upper,) = (value for name, value in record.items() if name.endswith("_upper_proven"))
    assert made["full"] == pytest.approx(upper, rel=1e-2)


def test_one_certificate_is_of_one_input(tmp_path: Path) -> None:
    np.save(tmp_path / "digits.npy", digits(2)[0].numpy())
    words = ("explain", MODEL, tmp_path / "digits.npy", "--eps", "0.01", "--out", tmp_path / "maps")
    found = called(*words, "--certificate", tmp_path / "x.proof")
    assert found.exit_code != 0
    assert "got 2 inputs with --certificate, expected one: proofmap run" in " ".join(found.output.split())
    assert not (tmp_path / "maps").exists()


def test_every_form_of_a_digit_gives_the_same_explanation(tmp_path: Path) -> None:
    images, _ = digits(1)
    write_png(tmp_path / "a.png", images[0])
    np.save(tmp_path / "b.npy", images.numpy())
    np.savez(tmp_path / "c.npz", bytes_of(images))
    (tmp_path / "d.csv").write_text(",".join(map(str, images.flatten().tolist())))
    files = [tmp_path / name for name in ("a.png", "b.npy", "c.npz", "d.csv")]
    found = answer("explain", MODEL, *files, "--eps", "0.02", *GRID, "--out", tmp_path / "out")
    assert [entry["name"] for entry in found["inputs"]] == ["a.png", "b.npy", "c.npz", "d.csv#0"]
    assert len({json.dumps({**e, "name": 0, "file": 0, "picture": 0, "seconds": 0}) for e in found["inputs"]}) == 1
    first = found["inputs"][0]
    assert (first["predicted"], first["class"], first["guarantee"], first["certified"]) == (7, "7", "certified", True)
    assert (first["eps"], first["norm"], first["domain"]) == (0.02, "inf", [0.0, 1.0])
    assert [Path(entry["file"]).name for entry in found["inputs"]] == [f"{n}.proofmap" for n in ("a", "b", "c", "d-0")]
    assert all(Path(entry["picture"]).is_file() for entry in found["inputs"])


def test_the_default_radius_is_the_proven_one(tmp_path: Path) -> None:
    images, _ = digits(1)
    np.save(tmp_path / "x.npy", images.numpy())
    words = ("explain", MODEL, tmp_path / "x.npy", "--method", "eva", *GRID, "--out", tmp_path / "out")
    chosen = answer(*words)["inputs"][0]
    radius = pm.certified_radius(pm.zoo.mnist_mlp(), images, domain=(0.0, 1.0))
    assert chosen["eps"] == pytest.approx(float(radius), rel=1e-5)
    assert chosen["certified"]
    found = called(*words, "--target", "3")
    assert "7, explained as 3, which is not the prediction; refuted: the input itself has another class" in found.stdout


def test_labels_may_be_missing_and_a_limit_takes_the_first(tmp_path: Path) -> None:
    for k in range(3):
        write_png(tmp_path / f"{k}.png", digits(3)[0][k])
    (tmp_path / "labels.csv").write_text("file,label\n1.png,3\ngone.png,2\n")
    words = ("explain", MODEL, tmp_path, "--eps", "0.5/255", *GRID, "--out", tmp_path / "out")
    found = called(*words, "--limit", 2, "--json")
    said = "gives 2 of 3 files no label, such as '0.png', and labels a file that is not there, such as 'gone.png'"
    assert found.stderr == f"note: {tmp_path / 'labels.csv'} {said}\n"
    entries = json.loads(found.stdout)["inputs"]
    assert [(entry["name"], entry["label"]) for entry in entries] == [("0.png", None), ("1.png", 3)]
    assert entries[0]["eps"] == 0.5 / 255


def test_crown_is_another_name_of_backward(tmp_path: Path) -> None:
    file = write_png(tmp_path / "digit.png", digits(1)[0][0])
    words = ("explain", MODEL, file, "--eps", "0.01", *GRID, "--out", tmp_path, "--bounds", "crown+ibp")
    assert called(*words).exit_code == 0
    found = pm.Explanation.load(tmp_path / "digit.proofmap").settings["bounds"]
    assert found == "Intersection(parts=(Backward(), IBP()))"


@pytest.mark.parametrize("method", EXPLAINERS)
def test_every_method_names_its_kind_of_bound(method: str, tmp_path: Path) -> None:
    write_linear(tmp_path / "net.onnx", (1, 6, 6))
    np.save(tmp_path / "x.npy", np.full((1, 6, 6), 0.5, dtype=np.float32))
    words: list[str | Path] = ["explain", tmp_path / "net.onnx", tmp_path / "x.npy", "--eps", "0.1", "--method", method]
    words += ["--groups", "grid:2", "--out", tmp_path / "out", *(["--target", "1"] if method == "targeted" else [])]
    norm = EXPLAINER_ENTRIES[method].norm
    words += [] if norm is None else ["--norm", f"{norm:g}"]
    found = called(*words)
    assert found.exit_code == 0, found.output
    saved = pm.Explanation.load(tmp_path / "out" / "x.proofmap")
    said = found.stdout.splitlines()[0]
    names_groups = method in ("sufficient", "contrastive")
    bounded = saved.guarantee in ("certified", "probable") and not names_groups
    assert ("<=" in said) == bounded
    assert ("smoothed AO(B) <= " in said) == ("with probability 99.9 %, noise σ = ε" in said) == (method == "probable")
    assert (">=" in said) == (saved.guarantee == "sampled")
    assert ("AO(B) about" in said) == (saved.guarantee == "none")
    words_of_guarantee = {
        "certified": "; proven: n",
        "probable": "nothing is proven about the network itself",
        "sampled": "(from samples)",
        "none": "(estimated)",
    }
    assert words_of_guarantee[saved.guarantee] in said
    assert saved.guarantee == "certified" or "; proven" not in said
    assert f"ε = 0.1 in {'L∞' if norm is None else 'L2'}, values within [0, 1]" in said
    name = {"certified": "upper_proven", "probable": "upper_probable", "sampled": "lower_sampled", "none": "estimate"}[
        saved.guarantee
    ]
    objective = saved.settings.get("objective", "margin")
    what = "overlap" if objective == "margin" else f"objective_{objective}"
    what = f"smoothed_{what}" if saved.guarantee == "probable" else what
    (record,) = answer(*words)["inputs"]
    assert record[f"{what}_{name}"] == pytest.approx(float(saved.overlap.full))
    told = [key for key in record if key.startswith(("overlap", "objective", "smoothed")) and "opposite" not in key]
    assert told == [f"{what}_{name}"]
    assert record.get("level") == (0.999 if saved.guarantee == "probable" else None)
    assert ("note: AO is the overlap of the smoothed classifier" in found.stdout) == (saved.guarantee == "probable")


def test_radius_and_method_are_chosen_and_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_choice, "_EXACT_TIME_SHARE", 0.02)  # a search of a second
    write_linear(tmp_path / "net.onnx", (1, 6, 6))
    np.save(tmp_path / "x.npy", np.linspace(0, 1, 36, dtype=np.float32).reshape(1, 6, 6))
    words = ("explain", tmp_path / "net.onnx", tmp_path / "x.npy", "--out", tmp_path / "out")
    entry = answer(*words)["inputs"][0]
    assert entry["guarantee"] == "sampled"
    assert entry["proof"]["certified"]
    assert pm.Explanation.load(entry["file"]).method == "BlendEVA"
    proof = pm.Explanation.load(entry["proof"]["file"])
    assert (proof.method, proof.guarantee) == ("EVA", "certified")
    assert Path(entry["proof"]["picture"]).is_file()
    said = called(*words, "--within", "30").stdout
    assert "Map: BlendEVA, from " in said
    assert "Proven: no input in the ball (ε = " in said
    assert "of 30 seconds for 1 sample" in said


def test_a_wrong_prediction_is_printed_with_its_label(tmp_path: Path) -> None:
    images, labels = digits(2)
    np.savez(tmp_path / "x.npz", images=images.numpy(), labels=np.array([labels[0], 5]))
    found = called("explain", MODEL, tmp_path / "x.npz", "--eps", "0.01", *GRID, "--out", tmp_path / "out")
    assert [line.partition(";")[0] for line in found.stdout.splitlines()[:2]] == [
        f"x.npz#0: {labels[0]}, as labelled",
        f"x.npz#1: {labels[1]}, but labelled 5",
    ]


def test_a_targeted_map_has_a_verdict_on_each_half(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", digits(1)[0].numpy())
    words = ["explain", MODEL, tmp_path / "x.npy", *GRID, "--out", tmp_path / "out", "--method", "targeted"]
    said = called(*words, "--target", "9", "--eps", "0.01").stdout.splitlines()[0]
    ball = "the ball (ε = 0.01 in L∞, values within [0, 1])"
    assert f"towards 9; proven: neither raising nor lowering values alone, in {ball}, changes the class to 9" in said
    assert "; AO(B) <= -10.26 by raising, AO(B) <= -" in said
    assert said.endswith(" by lowering")
    wide = called(*words, "--target", "9", "--eps", "0.3").stdout.splitlines()[0]
    assert "towards 9; undecided: neither proven nor refuted for the ball (ε = 0.3 in L∞, values within [0, 1])" in wide


def test_a_module_with_weights_classes_and_columns(tmp_path: Path) -> None:
    write_module(tmp_path)
    save_file(small_state(), tmp_path / "w.safetensors")
    (tmp_path / "names.txt").write_text("low\nmiddle\nhigh\n")
    header = ",".join(f"c{k}" for k in range(12))
    (tmp_path / "rows.csv").write_text(f"{header},label\n{'0.5,' * 12}1\n{'2,' * 12}0\n")
    words: list[str | Path] = [
        "explain",
        f"{tmp_path / 'module.py'}:small",
        tmp_path / "rows.csv",
        "--weights",
        tmp_path / "w.safetensors",
    ]
    words += ["--classes", tmp_path / "names.txt", "--eps", "0.01", "--groups", "columns", "--out", tmp_path / "out"]
    words += ["--bounds", "ibp+forward", "--norm", "2", "--target", "middle"]
    found = answer(*words)["inputs"]
    assert [entry["class"] for entry in found] == ["middle", "middle"]
    assert [entry["label"] for entry in found] == [1, 0]
    assert found[0]["domain"] is None
    assert pm.Explanation.load(found[1]["file"]).scores.shape == (1, 12)


def test_the_box_of_a_specification_is_the_ball(tmp_path: Path) -> None:
    write_linear(tmp_path / "net.onnx", (2,))
    (tmp_path / "net.toml").write_text("mean = 100\nstd = 9")  # a specification speaks of the network's own inputs
    (tmp_path / "x.vnnlib").write_text(BOX)
    model = str(tmp_path / "net.onnx")
    entry = answer("explain", model, tmp_path / "x.vnnlib", "--out", tmp_path / "out")["inputs"][0]
    ball = pm.Ball(torch.tensor([[0.125, 0.025]]))
    over = pm.overlap(pm.load(model), torch.tensor([[0.375, -0.075]]), ball)
    assert entry["overlap_upper_proven"] == pytest.approx(float(over.full), abs=1e-5)
    assert entry["eps"] is None
    said = called("explain", model, tmp_path / "x.vnnlib", "--out", tmp_path / "out").stdout
    assert "; proven: no input in the file's box changes the class; AO(B) <= " in said
    for more in (["--eps", "0.1"], ["--norm", "2"], ["--domain", "0,1"]):
        assert "its box is the ball" in called("explain", model, tmp_path / "x.vnnlib", *more).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--eps", "much"], "got --eps much, expected a number such as 0.02 or 2/255"),
        (["--eps", "1/0"], "got --eps 1/0, expected a number"),
        (["--eps", "-1"], "got --eps -1, expected a radius of at least 0"),
        (["--norm", "3"], "got --norm 3, expected one of 1, 2, inf"),
        (["--domain", "1"], "got --domain 1, expected two numbers such as 0,1"),
        (["--domain", "0.9,1"], "x.png: x leaves the domain"),
        (["--groups", "grid"], "got --groups grid, expected pixels, grid:12"),
        (["--groups", "grid:0"], "got --groups grid:0, expected pixels, grid:12"),
        (["--groups", "pixels:smooth"], "got --groups pixels:smooth, expected pixels, grid:12"),
        (["--groups", "columns"], "expected (d,)"),
        (["--bounds", "best"], "got bounds 'best', expected names among ibp"),
        (["--bounds", "ibp", "--method", "empirical"], "for empirical, which has none"),
        (["--method", "magic"], "got --method magic, expected one of"),
        (["--method", "targeted"], "got --method targeted alone, expected the class to move to as well: give --target"),
        (["--target", "ten"], "got --target ten, expected a class number, or a name"),
        (["--target", "10"], "expected a class from 0 to 9"),
        (["--size", "big"], "got --size big, expected a side such as 224"),
        (["--size", "32"], "zoo:mnist_mlp does not take samples of shape (1, 32, 32)"),
        (["--mean", "a,b"], "got --mean a, expected a number"),
        (["--std", "0"], "expected numbers above 0"),
        (["--layout", "CHW"], "got --layout CHW, expected NCHW or NHWC"),
        (["--range", "1,0"], "got the range (1.0, 0.0)"),
        (["--channels", "2"], "got 2 channels, expected 1 for grey"),
        (["--device", "abacus"], "got --device abacus, expected cpu"),
        (["--device", "meta"], "got --device meta, expected cpu, cuda or cuda:1"),
        (["--weights", "absent.pt"], "absent.pt does not exist"),
        (["--classes", "absent.txt"], "absent.txt does not exist"),
    ],
)
def test_errors_are_one_sentence(words: list[str], message: str, tmp_path: Path) -> None:
    found = called("explain", MODEL, write_png(tmp_path / "x.png", digits(1)[0][0]), "--out", tmp_path / "out", *words)
    assert found.exit_code == 2, found.output
    *notes, error = found.stderr.splitlines()
    assert error.startswith("error: ")
    assert all(note.startswith("note: ") for note in notes)
    assert message in error


def test_a_grid_on_flat_pixels_names_the_option_that_helps(tmp_path: Path) -> None:
    write_linear(tmp_path / "net.onnx", (36,))
    np.save(tmp_path / "x.npy", np.full(36, 0.5, dtype=np.float32))
    words = ["explain", tmp_path / "net.onnx", tmp_path / "x.npy", "--eps", "0.1", "--groups", "grid:2"]
    found = called(*words, "--out", tmp_path / "out")
    assert found.exit_code == 2
    assert found.stderr.endswith("; on the command line, --size 6 states the picture's size\n")
    helped = called(*words, "--size", "6", "--out", tmp_path / "out")
    assert helped.exit_code == 0, helped.output


def test_a_grid_on_flat_pixels_of_a_module_states_what_helps(tmp_path: Path) -> None:
    """A module has no input shape, so that --size cannot put its flattening in front."""
    flat, pictures = np.full((2, 36), 0.5, dtype=np.float32), np.full((2, 1, 6, 6), 0.5, dtype=np.float32)
    np.savez(tmp_path / "flat.npz", images=flat)
    np.savez(tmp_path / "pictures.npz", images=pictures)
    code = "from torch import nn\n\n\ndef flat():\n    return nn.Sequential(nn.Linear(36, 3))\n\n\n"
    (tmp_path / "net.py").write_text(code + "def pictures():\n    return nn.Sequential(nn.Flatten(), *flat())\n")
    words = ("--eps", "0.1", "--groups", "grid:2", "--out", tmp_path / "out")
    found = called("explain", f"{tmp_path / 'net.py'}:flat", tmp_path / "flat.npz", *words)
    assert found.exit_code == 2
    advice = "begin the module with torch.nn.Flatten(), and give samples of the shape (1, 6, 6)"
    assert found.stderr.endswith(f"; for the command line, {advice}\n")
    helped = called("explain", f"{tmp_path / 'net.py'}:pictures", tmp_path / "pictures.npz", *words)
    assert helped.exit_code == 0, helped.output


def test_a_bad_input_is_refused_before_any_work(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", digits(1)[0][0])
    (tmp_path / "b.png").write_bytes(b"no picture")
    found = called("explain", MODEL, tmp_path, "--out", tmp_path / "out")
    assert found.exit_code == 2
    assert "b.png as a picture" in found.stderr
    assert not (tmp_path / "out").exists()


def test_an_invalid_label_is_refused_before_any_work(tmp_path: Path) -> None:
    images, labels = digits(2)
    np.savez(tmp_path / "x.npz", images=images.numpy(), labels=np.array([labels[0], 12]))
    found = called("explain", MODEL, tmp_path / "x.npz", "--out", tmp_path / "out")
    assert (found.exit_code, found.stderr) == (
        2,
        "error: x.npz#1 has the label 12, expected a class of zoo:mnist_mlp, 0 to 9\n",
    )
    assert not (tmp_path / "out").exists()


def test_the_program_says_one_sentence_and_shows_more_on_request(tmp_path: Path) -> None:
    plain = called("explain", MODEL, tmp_path / "absent.png")
    assert (plain.exit_code, plain.stderr) == (
        2,
        f"error: {tmp_path / 'absent.png'} does not exist, expected a file: check its name\n",
    )
    assert isinstance(called("--debug", "explain", MODEL, tmp_path / "absent.png").exception, FileError)


def test_files_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    images, _ = digits(3)
    write_png(tmp_path / "x.png", images[0])
    Image.fromarray(bytes_of(images)[1]).save(tmp_path / "x.webp", lossless=True)
    found = answer("explain", MODEL, tmp_path, "--eps", "0.01", *GRID, "--out", tmp_path)
    assert [Path(entry["file"]).name for entry in found["inputs"]] == ["x.proofmap", "x-2.proofmap"]
    assert [entry["predicted"] for entry in found["inputs"]] == [7, 2]
