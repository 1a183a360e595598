"""The idx reader, the MNIST loader and the packaged digits."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proofmap.data import digits, mnist, read_idx
from proofmap.errors import FileError


def idx(shape: tuple[int, ...], body: bytes, kind: int = 0x08) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


WHOLE = idx((2, 3), bytes(range(6)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), compressed=st.booleans(), data=st.data())
def test_read_idx_returns_what_was_written(
    tmp_path: Path, shape: list[int], compressed: bool, data: st.DataObject
) -> None:
    size = torch.Size(shape).numel()
    body = data.draw(st.binary(min_size=size, max_size=size))
    path = tmp_path / "file"
    content = idx(tuple(shape), body)
    path.write_bytes(gzip.compress(content) if compressed else content)
    read = read_idx(path)
    assert read.dtype == torch.uint8
    assert read.shape == tuple(shape)
    assert bytes(read.flatten().tolist()) == body


def test_read_idx_goes_by_content_not_by_name(tmp_path: Path) -> None:
    for name, content in (("plain.gz", WHOLE), ("packed", gzip.compress(WHOLE))):
        (tmp_path / name).write_bytes(content)
        assert read_idx(str(tmp_path / name)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_read_idx_result_may_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(WHOLE)
    read = read_idx(tmp_path / "file")
    read[0, 0] = 9
    assert read[0, 0] == 9


DAMAGED = {
    "empty": (b"", "starts with nothing"),
    "no-header": (WHOLE[:3], "not an idx file"),
    "wrong-magic": (b"\x89PNG" + WHOLE[4:], "starts with 89 50 4e 47"),
    "other-type": (idx((2, 3), bytes(24), kind=0x0D), "not an idx file of unsigned bytes"),
    "no-dimensions": (idx((), b"\0"), "not an idx file"),
    "half-a-header": (WHOLE[:9], "ends inside its header of 2 sizes"),
    "truncated": (WHOLE[:-1], r"only 5 bytes after its header, expected 6 for shape \(2, 3\)"),
    "too-long": (WHOLE + b"\0", "more bytes after its header, expected 6"),
    "false-sizes": (idx((2**32 - 1,) * 3, b"\0"), "only 1 bytes"),
    "truncated-gzip": (gzip.compress(WHOLE)[:-9], "copied whole"),
    "damaged-gzip": (gzip.compress(WHOLE)[:10] + b"\xff" * 20, "copied whole"),
    "wrong-checksum": (gzip.compress(WHOLE)[:-8] + bytes(8), "copied whole"),
    "truncated-in-gzip": (gzip.compress(WHOLE[:-1]), "only 5 bytes"),
}


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_read_idx_refuses_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_read_idx_names_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(FileError, match="cannot read"):
            read_idx(path)


def write_mnist(folder: Path, images: int, labels: int, side: int = 28) -> None:
    pixels = bytes(i % 256 for i in range(images * side * side))
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx((images, side, side), pixels))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((labels,), bytes(range(labels)))))


def test_mnist_scales_images_and_finds_compressed_files(tmp_path: Path) -> None:
    write_mnist(tmp_path, images=3, labels=3)
    images, labels = mnist(tmp_path, "test")
    assert images.shape == (3, 1, 28, 28)
    assert images.dtype == torch.float32
    assert images.min() == 0
    assert images.max() == 1
    assert images[0, 0, 0, 1] == torch.tensor(1.0) / 255
    assert labels.dtype == torch.int64
    assert labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("images", "labels", "side"), [(3, 2, 28), (2, 3, 28), (2, 2, 27)])
def test_mnist_refuses_files_that_do_not_belong_together(tmp_path: Path, images: int, labels: int, side: int) -> None:
    write_mnist(tmp_path, images, labels, side)
    with pytest.raises(FileError, match="do not belong together"):
        mnist(tmp_path, "test")


def test_mnist_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no train-images-idx3-ubyte"):
        mnist(tmp_path, "train")


def test_digits_are_the_first_of_the_test_set() -> None:
    images, labels = digits()
    assert images.shape == (300, 1, 28, 28)
    assert images.dtype == torch.float32
    assert images.min() == 0
    assert images.max() == 1
    assert torch.equal(images * 255, (images * 255).round())
    assert labels.shape == (300,)
    assert labels.dtype == torch.int64
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert labels.unique().tolist() == list(range(10))
