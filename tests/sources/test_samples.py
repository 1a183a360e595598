"""Data sets in every format: opening reads no sample, samples are read one at a time, and errors state the reason."""

import gzip
import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from proofmap.data import idx
from proofmap.errors import FileError, InputError, ProofmapError
from proofmap.inputs.ball import Ball
from proofmap.sources import Preparation, Samples, open_samples
from proofmap.sources import csv_tables as table
from proofmap.sources import numpy_files as arrays
from proofmap.sources.sample_shapes import scaled
from tests.sources.files import GREY, bytes_of, digits, npy, write_idx, write_png

FLAT = Preparation(shape=(3,))


def write_all(folder: Path) -> tuple[torch.Tensor, list[int]]:
    """Write three digits in every format; each file or folder of pictures contains all three."""
    images, labels = digits(3)
    raw = bytes_of(images)
    (folder / "pictures" / "deep").mkdir(parents=True)
    for k, place in enumerate(("a.png", "b.PNG", "deep/c.png")):
        write_png(folder / "pictures" / place, images[k])
    np.save(folder / "bytes.npy", raw)
    np.save(folder / "floats.npy", images.numpy().astype(np.float64))
    np.save(folder / "columns.npy", np.asfortranarray(images.numpy()))
    np.save(folder / "flat.npy", raw.reshape(3, 784))
    np.savez(folder / "plain.npz", raw)
    np.savez_compressed(folder / "packed.npz", images=raw, labels=np.array(labels))
    write_idx(folder / "t10k-images-idx3-ubyte", raw)
    write_idx(folder / "t10k-labels-idx1-ubyte", np.array(labels, dtype=np.uint8))
    whole = (folder / "t10k-images-idx3-ubyte").read_bytes()
    (folder / "some.idx.gz").write_bytes(gzip.compress(whole))
    rows = ["label," + ",".join(f"p{i}" for i in range(784))]
    rows += [f"{k}," + ",".join(map(str, row)) for k, row in zip(labels, images.flatten(1).tolist(), strict=True)]
    (folder / "rows.csv").write_text("\n".join(rows))
    return images, labels


def test_every_format_gives_the_same_digits(tmp_path: Path) -> None:
    images, labels = write_all(tmp_path)
    samples = open_samples([tmp_path], GREY)
    assert len(samples) == 30
    assert all(torch.equal(samples.read(k), images[k % 3]) for k in range(30))
    assert samples.labels is not None
    assert {samples.labels[k] for k, name in enumerate(samples.names) if "pictures" in name} == {-1}
    assert [samples.labels[samples.names.index(f"packed.npz#{k}")] for k in range(3)] == labels
    assert open_samples([tmp_path / "pictures"], GREY).labels is None
    assert samples.names[:3] == ("bytes.npy#0", "bytes.npy#1", "bytes.npy#2")
    assert [name for name in samples.names if "pictures" in name] == [
        "pictures/a.png",
        "pictures/b.PNG",
        "pictures/deep/c.png",
    ]
    for name in ("packed.npz", "t10k-images-idx3-ubyte", "rows.csv"):
        assert open_samples([tmp_path / name], GREY).labels == tuple(labels)
    assert open_samples([tmp_path / "rows.csv"], GREY).columns == tuple(f"p{i}" for i in range(784))


def reason(samples: Samples, k: int) -> Any:
    """Return why a sample cannot be read, or None."""
    try:
        samples.read(k)
    except ProofmapError as error:
        return str(error)
    return None


def test_opening_reads_no_sample(tmp_path: Path) -> None:
    for name in ("a.png", "b.jpg", "c.webp"):
        (tmp_path / name).write_bytes(b"no picture")
    (tmp_path / "d.csv").write_text("1,2,3\n1,2\n1,x,3\n1,,3\n\n4,5,6\n1e999,0,0\n\xff,0,0\n", encoding="latin-1")
    samples = open_samples([tmp_path], FLAT)
    assert len(samples) == 10
    messages = {name: reason(samples, k) for k, name in enumerate(samples.names)}
    good = {"d.csv#0", "d.csv#4"}
    assert {name for name, message in messages.items() if message is None} == good
    assert "2 fields, expected 3" in messages["d.csv#1"]
    assert "holds 'x', expected a number" in messages["d.csv#2"]
    assert "holds '', expected a number" in messages["d.csv#3"]
    assert "infinite" in messages["d.csv#5"]
    assert "no row of a table" in messages["d.csv#6"]


def test_names_are_relative_to_the_common_folder_of_all_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, _ = digits(1)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_png(tmp_path / folder / "x.png", images[0])
    monkeypatch.chdir(tmp_path)
    assert open_samples([Path("one/x.png")], GREY).names == ("x.png",)
    assert open_samples([Path("one/x.png"), Path("two")], GREY).names == ("one/x.png", "two/x.png")
    with pytest.raises(InputError, match=r"got 'x\.png' twice"):
        open_samples([Path("one"), tmp_path / "one" / "x.png"], GREY)
    with pytest.raises(InputError, match="got no input"):
        open_samples([], GREY)
    with pytest.raises(IndexError):
        open_samples([Path("one")], GREY).read(1)


def test_hidden_files_and_linked_folders_are_left_out(tmp_path: Path) -> None:
    images, _ = digits(1)
    data = tmp_path / "data"
    for folder in (data / ".cache", data / "in", tmp_path / "out"):
        folder.mkdir(parents=True)
        write_png(folder / "x.png", images[0])
    write_png(data / ".x.png", images[0])
    (data / "notes.txt").write_text("no sample")
    os.symlink(tmp_path / "out", data / "linked")
    assert open_samples([data], GREY).names == ("in/x.png",)


def test_a_damaged_file_of_a_folder_is_a_bad_sample(tmp_path: Path) -> None:
    broken = broken_arrays(tmp_path)
    os.mkfifo(tmp_path / "pipe.png")
    os.symlink(tmp_path / "gone", tmp_path / "link.png")
    np.savez(tmp_path / "whole.npz", x=np.ones((2, 3)), y=np.array([4, 5]))
    samples = open_samples([tmp_path], FLAT)
    assert samples.names == (*sorted([*broken, "link.png", "pipe.png"]), "whole.npz#0", "whole.npz#1")
    assert samples.labels == (*(-1,) * (len(samples) - 2), 4, 5)
    found = {name: reason(samples, k) for k, name in enumerate(samples.names)}
    expected = {**broken, "link.png": "is a link to nothing", "pipe.png": "is no plain file"}
    assert all(re.search(message, found[name]) for name, message in expected.items())
    assert found["whole.npz#0"] is None
    for name, message in expected.items():
        with pytest.raises(FileError, match=message):
            open_samples([tmp_path / name], FLAT)


def test_a_damaged_file_may_have_a_label(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", digits(1)[0][0])
    os.symlink(tmp_path / "gone", tmp_path / "b.png")
    for row, label in (("", -1), ("b.png,2\n", 2)):
        (tmp_path / "labels.csv").write_text(f"file,label\na.png,7\n{row}")
        assert open_samples([tmp_path], GREY).labels == (7, label)


@pytest.mark.parametrize("column", ["label", "class_index"])
def test_a_folder_s_labels(column: str, tmp_path: Path) -> None:
    images, _ = digits(2)
    (tmp_path / "deep").mkdir()
    write_png(tmp_path / "a.png", images[0])
    write_png(tmp_path / "deep" / "b.png", images[1])
    (tmp_path / "labels.csv").write_text(f"file,{column},name\ndeep/b.png,2,two\na.png,7,seven\n")
    assert open_samples([tmp_path], GREY).labels == (7, 2)
    assert open_samples([tmp_path], GREY).notes == ()


def test_a_folder_s_labels_may_be_more_and_fewer_than_its_files(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        write_png(tmp_path / name, digits(1)[0][0])
    (tmp_path / "labels.csv").write_text("file,label\na.png,7\ngone.png,2\n")
    found = open_samples([tmp_path], GREY)
    assert found.labels == (7, -1)
    table = tmp_path / "labels.csv"
    said = "gives 1 of 2 files no label, such as 'b.png', and labels a file that is not there, such as 'gone.png'"
    assert found.notes == (f"{table} {said}",)
    table.write_text("file,label\ngone.png,2\n")
    with pytest.raises(FileError, match=r"labels none of the 2 files beside it, but 'gone\.png': correct the names"):
        open_samples([tmp_path], GREY)


def test_conversions_of_pictures_are_mentioned(tmp_path: Path) -> None:
    """Proofs are about the picture that the network sees, not about the original."""
    Image.new("RGB", (40, 30), "red").save(tmp_path / "photo.png")
    said = open_samples([tmp_path / "photo.png"], replace(GREY, size=(28, 28))).notes
    assert said == (
        "photo.png is in colour and was converted to grey: what is proven is about the converted picture",
        "photo.png is of 40 x 30 pixels and was scaled and cut to 28 x 28: "
        "what is proven is about the converted picture",
    )
    Image.new("RGB", (28, 28), "blue").save(tmp_path / "other.png")
    Image.new("L", (28, 28)).save(tmp_path / "grey.png")
    several = open_samples([tmp_path], replace(GREY, size=(28, 28))).notes
    assert several[0].startswith("2 pictures, such as other.png in colour, were converted to grey")
    assert several[1].startswith("photo.png is of 40 x 30 pixels")
    assert open_samples([tmp_path / "grey.png"], replace(GREY, size=(28, 28))).notes == ()


def test_a_turned_picture_of_the_right_size_is_not_called_scaled(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[274] = 6  # EXIF orientation 6: the camera was held upright
    Image.new("L", (28, 14)).save(tmp_path / "turned.jpg", exif=turned)
    assert open_samples([tmp_path / "turned.jpg"], replace(GREY, size=(28, 14))).notes == ()


def test_pictures_are_brought_to_size_channels_and_range(tmp_path: Path) -> None:
    picture = np.zeros((4, 8, 3), dtype=np.uint8)
    picture[:, 4:, 0] = 255  # the right half is red
    Image.fromarray(picture).save(tmp_path / "x.png")
    found = open_samples([tmp_path], Preparation()).read(0)
    assert found.shape == (3, 4, 8)
    assert found[0, 0].tolist() == [0.0] * 4 + [1.0] * 4
    assert open_samples([tmp_path], Preparation(size=(2, 2))).read(0).shape == (3, 2, 2)
    grey = open_samples([tmp_path], Preparation(channels=1, range=(-1.0, 1.0))).read(0)
    assert grey.shape == (1, 4, 8)
    torch.testing.assert_close(grey[0, 0, [0, -1]], torch.tensor([-1.0, 76 / 255 * 2 - 1]))
    Image.fromarray(picture[:, :, 0]).save(tmp_path / "x.png")
    assert open_samples([tmp_path], Preparation()).read(0).shape == (1, 4, 8)  # the file's own size
    assert open_samples([tmp_path], Preparation(channels=3)).read(0).shape == (3, 4, 8)


@example(low=-1.81, width=0.11)
@given(low=st.floats(-300, 300), width=st.floats(0.01, 300))
def test_bytes_never_leave_the_range(low: float, width: float) -> None:
    """A white pixel that rounding moved out of the range would leave the domain of the ball."""
    ends = (low, low + width)
    values = scaled(torch.arange(256, dtype=torch.uint8), Preparation(range=ends))
    Ball(0.0, domain=ends).at(values[None])
    torch.testing.assert_close(values[[0, -1]], torch.tensor(ends))


@pytest.mark.parametrize("shape", [(784,), (224, 224, 3)])
def test_a_picture_for_a_model_of_other_samples_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    write_png(tmp_path / "x.png", digits(1)[0][0])
    with pytest.raises(InputError, match="give the pictures' size, or the layout NHWC"):
        open_samples([tmp_path], Preparation(shape=shape)).read(0)


def test_arrays_follow_the_layout_and_pictures_do_not(tmp_path: Path) -> None:
    last = Preparation(layout="NHWC", size=(2, 4), channels=3, shape=(3, 2, 4))
    values = np.arange(48, dtype=np.float32).reshape(2, 2, 4, 3)  # (N, H, W, C)
    np.save(tmp_path / "x.npy", values)
    assert torch.equal(open_samples([tmp_path / "x.npy"], last).read(1), torch.from_numpy(values[1]).permute(2, 0, 1))
    Image.fromarray(values[0].astype(np.uint8)).save(tmp_path / "x.png")
    assert torch.equal(
        open_samples([tmp_path / "x.png"], last).read(0) * 255, torch.from_numpy(values[0]).permute(2, 0, 1)
    )
    wide = Preparation(layout="NHWC", size=(32, 32), channels=3, shape=(3, 32, 32))
    record = np.arange(3073, dtype=np.int64).astype(np.uint8)
    record[0] = 4
    (tmp_path / "x.bin").write_bytes(record.tobytes() * 2)
    found = open_samples([tmp_path / "x.bin"], wide)
    assert found.labels == (4, 4)
    expected = torch.from_numpy(record[1:].reshape(3, 32, 32)).float() / 255
    assert torch.equal(found.read(1), expected)
    assert torch.equal(open_samples([tmp_path / "x.bin"], replace(wide, layout="NCHW")).read(1), expected)


@pytest.mark.parametrize(
    ("shape", "own", "count"),
    [((3,), (3,), None), ((2, 3), (3,), 2), ((28, 28), (1, 28, 28), None), ((5, 28, 28), (1, 28, 28), 5)],
)
def test_an_array_is_one_sample_or_several(
    shape: tuple[int, ...], own: tuple[int, ...], count: int | None, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.ones(shape))
    samples = open_samples([tmp_path / "x.npy"], Preparation(shape=own))
    assert samples.names == (("x.npy",) if count is None else tuple(f"x.npy#{k}" for k in range(count)))
    assert samples.read(len(samples) - 1).shape == own


def test_tables_with_and_without_names(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("\ufeffa,b b,c\r\n1,2,3\r\n\r\n4,5,6", encoding="utf-8")
    samples = open_samples([path], FLAT)
    assert [samples.read(k).tolist() for k in range(2)] == [[1, 2, 3], [4, 5, 6]]
    assert samples.columns == ("a", "b b", "c")
    assert samples.labels is None
    path.write_text('1,"2",3\n4,5,6\n')
    samples = open_samples([path], FLAT)
    assert samples.read(0).tolist() == [1, 2, 3]
    assert samples.columns is None
    path.write_text("x, Label ,y,z\n1,0,2,3\n4,1,5,6\n")
    samples = open_samples([path], FLAT)
    assert (samples.read(1).tolist(), samples.labels) == ([4, 5, 6], (0, 1))
    assert samples.columns == ("x", "y", "z")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ("a,b\n", "has no rows"),
        ("label\n1\n", "'label' alone"),
        ("label,label\n1,2\n", "2 columns named 'label'"),
        ('a,"b\n1,2\n', "no line of a table"),
        ("1;2;3\n4;5;6\n", r"x.csv, line 1 has semicolons between its fields, expected commas: save it as CSV with"),
        ("a;b;label\n1;2;3\n", "line 1 has semicolons between its fields"),
        ("1,5;2;3\n", "line 1 has semicolons .*, expected commas, and a point in a number: save"),
        ("a,b\n1,5;2,5\n", "line 2 has semicolons .*, and a point in a number"),
        ("1\t2\t3\n", "line 1 has tabs between its fields"),
    ],
)
def test_damaged_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(FileError, match=message):
        open_samples([tmp_path / "x.csv"], FLAT)


def test_a_row_with_a_bad_label_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b,c,label\n1,2,3,7\n1,2,3,cat\n1,2,3,-1\n1,2,3\n1,2,3,\n\xff,2,3,1\n1,2,3,0\n")
    samples = open_samples([path], FLAT)
    assert samples.labels == (7, -1, -1, -1, -1, -1, 0)
    reasons = [reason(samples, k) for k in range(7)]
    assert reasons[0] is reasons[6] is None
    for k, label in ((1, "cat"), (2, "-1"), (4, "")):
        assert reasons[k] == f"x.csv#{k} has the label {label!r}, expected a class number, 0 or more"
    assert "has 3 fields, expected 4" in reasons[3]
    assert "is no row of a table" in reasons[5]


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_MAX_LINE_BYTES", 100)
    (tmp_path / "x.csv").write_text("1," * 51)
    with pytest.raises(FileError, match="line 1 has more than 100 bytes"):
        open_samples([tmp_path / "x.csv"], FLAT)


def broken_arrays(folder: Path) -> dict[str, str]:
    """Write damaged files of arrays; return the expected message of each."""
    np.save(folder / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(folder / "text.npy", np.array(["a"]))
    np.save(folder / "scalar.npy", np.float32(3))
    np.save(folder / "empty.npy", np.zeros((0, 3)))
    np.save(folder / "many.npy", np.zeros((10**12, 0)))
    (folder / "deep.npy").write_bytes(npy((1,) * 70))
    with zipfile.ZipFile(folder / "deep.npz", "w") as archive:
        archive.writestr("x.npy", npy((1,) * 70))
    np.save(folder / "short.npy", np.zeros((4, 3)))
    content = (folder / "short.npy").read_bytes()
    (folder / "short.npy").write_bytes(content[:-1])
    (folder / "huge.npy").write_bytes(content.replace(b"(4, 3)", b"(4444444444, 3)")[:-9])
    (folder / "none.npy").write_bytes(b"PK")
    (folder / "none.npz").write_bytes(b"PK")
    np.savez(folder / "two.npz", a=np.zeros((1, 3)), b=np.zeros((1, 3)))
    np.savez(folder / "labels.npz", x=np.zeros((2, 3)), y=np.zeros(2))
    np.savez(folder / "negative.npz", x=np.zeros((2, 3)), y=np.array([0, -1]))
    np.savez(folder / "object.npz", x=np.array([{}], dtype=object))
    with zipfile.ZipFile(folder / "other.npz", "w") as archive:
        archive.writestr("x.txt", "no array")
    with zipfile.ZipFile(folder / "long.npz", "w") as archive:
        archive.writestr("x.npy", content + b"more")
    return {
        "object.npy": "holds object",
        "text.npy": "expected numbers",
        "scalar.npy": "expected \\(N, ...\\)",
        "empty.npy": "with samples in it",
        "many.npy": "with samples in it",
        "deep.npy": "holds an array of 70 axes, expected 32 at most",
        "deep.npz": "holds an array of 70 axes, expected 32 at most",
        "short.npy": "is cut short: it has 95 bytes, expected 96 bytes of the array",
        "huge.npy": "is cut short|not a numpy array",
        "none.npy": "not a numpy array",
        "none.npz": "not an npz file",
        "two.npz": r"holds the arrays \['a', 'b'\]",
        "labels.npz": "labels of type float64",
        "negative.npz": "the label -1",
        "object.npz": "holds object",
        "other.npz": "is not an array",
        "long.npz": "has 100 bytes, expected 96 bytes of the array",
    }


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    for name, message in broken_arrays(tmp_path).items():
        with pytest.raises(FileError, match=message):
            open_samples([tmp_path / name], FLAT)


@pytest.mark.parametrize("values", [np.full((2, 3), np.nan), np.full((2, 3), 1e300), np.zeros((2, 4))])
def test_samples_that_do_not_fit_are_refused_one_by_one(values: np.ndarray[Any, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", values)
    samples = open_samples([tmp_path / "x.npy"], FLAT)
    assert len(samples) == 2
    with pytest.raises(InputError, match=r"x\.npy#1"):
        samples.read(1)


def test_archives_that_unpack_to_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_UNPACKED_BYTES", 1000)
    np.savez_compressed(tmp_path / "bomb.npz", np.zeros((10**5, 3)))
    assert (tmp_path / "bomb.npz").stat().st_size < 10**4
    with pytest.raises(FileError, match="unpacks to 2400128 bytes, expected at most 1000"):
        open_samples([tmp_path / "bomb.npz"], FLAT)
    monkeypatch.setattr(idx, "_MAX_UNPACKED_BYTES", 1000)
    content = write_idx(tmp_path / "bomb.idx", np.zeros((2000, 3), dtype=np.uint8)).read_bytes()
    (tmp_path / "bomb.idx.gz").write_bytes(gzip.compress(content))
    with pytest.raises(FileError, match="unpacks to 6000 bytes, expected 1000 at most"):
        open_samples([tmp_path / "bomb.idx.gz"], FLAT).read(0)
    assert open_samples([tmp_path / "bomb.idx"], FLAT).read(0).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"", "a name of no known format"),
        ("x.vnnlib", b"", "a name of no known format"),
        ("t10k-labels-idx1-ubyte", bytes([0, 0, 8, 1, 0, 0, 0, 1, 5]), "is it a file of labels"),
        ("x.idx", bytes([0, 0, 8, 2, 64, 0, 0, 0, 0, 0, 0, 1]) + bytes(9), "too short for the shape"),
        ("x.idx", bytes([0, 0, 8, 2, 255, 0, 0, 0, 0, 0, 0, 0]), "with samples in it"),
        ("x.idx.gz", gzip.compress(bytes([0, 0, 8, 2, 64, 0, 0, 0, 0, 0, 0, 1]), mtime=0), "too short for the shape"),
        ("x.bin", bytes(3072), "expected a multiple of 3073"),
    ],
)
def test_other_files_are_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        open_samples([tmp_path / name], GREY)


def test_missing_paths_empty_folders_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="no samples in"):
        open_samples([tmp_path / "empty"], GREY)
    with pytest.raises(FileError, match=r"x\.png does not exist"):
        open_samples([tmp_path / "x.png"], GREY)
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(FileError, match=r"pipe\.png is no plain file"):
        open_samples([tmp_path / "pipe.png"], GREY)


def test_a_wrong_number_of_labels_is_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "t10k-images-idx3-ubyte", np.zeros((3, 28, 28), dtype=np.uint8))
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.zeros(2, dtype=np.uint8))
    with pytest.raises(FileError, match=r"holds \(2,\) labels, expected \(3,\)"):
        open_samples([tmp_path / "t10k-images-idx3-ubyte"], GREY)
