"""The preparation from the TOML file beside a model, and errors for invalid values."""

from pathlib import Path
from typing import Any

import pytest

from proofmap import zoo
from proofmap.errors import FileError, InputError
from proofmap.sources import Preparation, preparation_of
from proofmap.sources.preparation import read_classes, read_toml_beside


def test_every_field_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("cat\n dog \n\n", encoding="utf-8")
    (tmp_path / "net.toml").write_text(
        "size = [4, 6]\nchannels = 3\nrange = [0, 255]\nmean = [1, 2, 3]\n"
        'std = 2.5\nlayout = "NHWC"\nclasses = "names.txt"'
    )
    expected = Preparation((4, 6), 3, (1.0, 2.0, 3.0), (2.5,), "NHWC", (0.0, 255.0))
    assert read_toml_beside(str(tmp_path / "net.onnx")) == (expected, ("cat", "dog"))
    assert preparation_of(f"{tmp_path / 'net.py'}:make") == expected
    (tmp_path / "net.toml").write_text('size = 5\nclasses = ["a", "b"]')
    assert read_toml_beside(str(tmp_path / "net.onnx")) == (Preparation((5, 5)), ("a", "b"))


def test_without_a_file_the_default_is_used(tmp_path: Path) -> None:
    assert read_toml_beside(str(tmp_path / "net.onnx")) == (Preparation(), None)
    assert preparation_of("net") == Preparation()


@pytest.mark.parametrize("name", ["efficientnet_lite0", "vgg16"])
def test_models_of_imagenet_name_its_classes(name: str) -> None:
    _, classes = read_toml_beside(f"zoo:{name}")
    assert classes is not None
    assert len(set(classes)) == 1000
    assert [classes[k] for k in (0, 207, 817, 999)] == ["tench", "golden retriever", "sports car", "toilet tissue"]


@pytest.mark.parametrize("name", zoo.__all__)
def test_packaged_models_state_their_preparation(name: str) -> None:
    preparation, classes = read_toml_beside(f"zoo:{name}")
    assert preparation.size is not None
    assert preparation.channels is not None
    assert classes is not None
    assert len(classes) == (10 if preparation.size < (224, 224) else 1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size = [1, 2, 3]", "expected a height and a width"),
        ("size = 0", "expected a height and a width"),
        ("size = 100000", "expected a height and a width"),
        ("size = 2.5", "expected a whole number"),
        ("channels = 2", "expected 1 for grey or 3"),
        ("channels = true", "expected a whole number"),
        ("mean = []", "expected finite numbers"),
        ("mean = [nan]", "expected finite numbers"),
        ('mean = ["a"]', "expected a number"),
        ("mean = [1, 2]\nchannels = 3", "2 numbers as mean for 3 channels"),
        ("std = [1, 0]", "expected numbers above 0"),
        ('layout = "HWC"', "expected NCHW, or NHWC"),
        ("layout = 3", "expected NCHW, or NHWC"),
        ("range = [1, 0]", "expected the values of black and white"),
        ("range = 1", "expected the values of black and white"),
        ("classes = 3", "expected a list of names"),
        ("classes = []", "no name for class 0"),
        ('classes = ["a", "\\u001b[2J"]', "no name for class 1, expected one that can be printed"),
        ('classes = "../names.txt"', "expected a file beside it"),
        ('classes = "names.txt"', "names.txt does not exist"),
        ("sizes = 3", "'sizes', expected only size, channels"),
        ("size", "is not TOML"),
    ],
)
def test_invalid_values_are_refused_with_the_name_of_the_file(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(FileError, match=message) as caught:
        preparation_of(str(tmp_path / "net.onnx"))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"a\n\nb", b"\xff\xfe", b"a\nb\x00"])
def test_invalid_class_names_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes(content)
    with pytest.raises(FileError, match=r"names\.txt"):
        read_classes(tmp_path / "names.txt")


def test_endless_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes(b"a" * (2**20 + 1))
    with pytest.raises(FileError, match="more than 1048576 bytes"):
        read_classes(tmp_path / "names.txt")
    with pytest.raises(FileError, match="is no plain file"):
        read_classes(Path("/dev/zero"))


@pytest.mark.parametrize("given", [{"size": (1, 9000)}, {"std": (-1.0,)}, {"range": (0.0, float("inf"))}])
def test_arguments_are_checked_like_the_file(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        Preparation(**given)
