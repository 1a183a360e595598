"""The idx reader, the loaders of data sets and of pictures, and the packaged digits."""

import gzip
import hashlib
import io
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proofmap.data import cifar10, digits, images, mnist, read_idx
from proofmap.data.published_files import PUBLISHED
from proofmap.errors import FileError, InputError, ProofmapWarning


def idx(shape: tuple[int, ...], body: bytes, kind: int = 0x08) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


WHOLE = idx((2, 3), bytes(range(6)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), compressed=st.booleans(), data=st.data())
def test_read_idx_returns_written_data(tmp_path: Path, shape: list[int], compressed: bool, data: st.DataObject) -> None:
    size = torch.Size(shape).numel()
    body = data.draw(st.binary(min_size=size, max_size=size))
    path = tmp_path / "file"
    content = idx(tuple(shape), body)
    path.write_bytes(gzip.compress(content) if compressed else content)
    read = read_idx(path)
    assert read.dtype == torch.uint8
    assert read.shape == tuple(shape)
    assert bytes(read.flatten().tolist()) == body


def test_read_idx_recognises_compression_by_content(tmp_path: Path) -> None:
    for name, content in (("plain.gz", WHOLE), ("packed", gzip.compress(WHOLE))):
        (tmp_path / name).write_bytes(content)
        assert read_idx(str(tmp_path / name)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_result_of_read_idx_is_writable(tmp_path: Path) -> None:
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
    "too-many-sizes": (idx((1,) * 65, b"\0"), "states 65 dimensions, expected 32 at most"),
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
    images, labels = mnist(tmp_path, "test", verify=False)
    assert images.shape == (3, 1, 28, 28)
    assert images.dtype == torch.float32
    assert (float(images.min()), float(images.max())) == (0, 1)
    assert images[0, 0, 0, 1] == torch.tensor(1.0) / 255
    assert labels.dtype == torch.int64
    assert labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("images", "labels", "side"), [(3, 2, 28), (2, 3, 28), (2, 2, 27)])
def test_mnist_refuses_files_that_do_not_belong_together(tmp_path: Path, images: int, labels: int, side: int) -> None:
    write_mnist(tmp_path, images, labels, side)
    with pytest.raises(FileError, match="do not belong together"):
        mnist(tmp_path, "test", verify=False)


def test_mnist_refuses_files_that_are_not_the_published_ones(tmp_path: Path) -> None:
    write_mnist(tmp_path, images=3, labels=3)
    with pytest.raises(FileError, match=r"not the published t10k-images-idx3-ubyte.* or pass verify=False"):
        mnist(tmp_path, "test")


def test_mnist_verifies_the_unpacked_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path, images=3, labels=3)
    for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        plain = tmp_path / name
        content = plain.read_bytes() if plain.exists() else gzip.decompress((tmp_path / f"{name}.gz").read_bytes())
        monkeypatch.setitem(PUBLISHED, name, hashlib.sha256(content).hexdigest())
    assert mnist(tmp_path, "test")[1].tolist() == [0, 1, 2]


def write_cifar10(folder: Path, counts: dict[str, int], label: int = 0) -> None:
    """Write records whose red, green and blue planes are 0, 51 and 255, except a first red pixel of 102."""
    planes = bytes([102]) + bytes(1023) + bytes([51]) * 1024 + bytes([255]) * 1024
    for name, count in counts.items():
        (folder / name).write_bytes(b"".join(bytes([(i + label) % 256]) + planes for i in range(count)))


def test_cifar10_reads_labels_and_planes(tmp_path: Path) -> None:
    write_cifar10(tmp_path, {"test_batch.bin": 3}, label=2)
    images, labels = cifar10(tmp_path, "test", verify=False)
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == torch.float32
    assert torch.equal(images[1, :, 5, 7] * 255, torch.tensor([0.0, 51.0, 255.0]))
    assert torch.equal(images[:, 0, 0, 0] * 255, torch.full((3,), 102.0))
    assert labels.dtype == torch.int64
    assert labels.tolist() == [2, 3, 4]


def test_cifar10_joins_the_training_files_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    write_cifar10(folder, {f"data_batch_{i}.bin": i for i in range(1, 6)})
    images, labels = cifar10(str(tmp_path), "train", verify=False)
    assert len(images) == 15
    assert labels.tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]


def test_cifar10_verifies_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path, {"test_batch.bin": 3})
    with pytest.raises(FileError, match=r"not the published test_batch.bin.* or pass verify=False"):
        cifar10(tmp_path, "test")
    digest = hashlib.sha256((tmp_path / "test_batch.bin").read_bytes()).hexdigest()
    monkeypatch.setitem(PUBLISHED, "test_batch.bin", digest)
    assert cifar10(tmp_path, "test")[1].tolist() == [0, 1, 2]


def test_cifar10_refuses_damaged_files(tmp_path: Path) -> None:
    write_cifar10(tmp_path, {"test_batch.bin": 2}, label=9)
    path = tmp_path / "test_batch.bin"
    with pytest.raises(FileError, match="gives record 1 the label 10, expected 0 to 9"):
        cifar10(tmp_path, "test", verify=False)
    for content in (b"", path.read_bytes()[:-1]):
        path.write_bytes(content)
        with pytest.raises(FileError, match=f"holds {len(content)} bytes, expected a multiple of 3073"):
            cifar10(tmp_path, "test", verify=False)


@pytest.mark.parametrize(("load", "missing"), [(mnist, "train-images-idx3-ubyte"), (cifar10, "data_batch_1.bin")])
def test_data_sets_name_a_missing_file_and_split(tmp_path: Path, load: Callable[..., Any], missing: str) -> None:
    with pytest.raises(FileError, match=f"no {missing}.* in {tmp_path}: put the"):
        load(tmp_path, "train")
    with pytest.raises(InputError, match="got split 'valid', expected 'train' or 'test'"):
        load(tmp_path, "valid")


def test_published_files_are_named_by_a_full_digest() -> None:
    assert len(PUBLISHED) == len(set(PUBLISHED.values())) == 10
    assert all(len(bytes.fromhex(digest)) == 32 for digest in PUBLISHED.values())


def test_digits_are_the_first_of_the_test_set() -> None:
    images, labels = digits()
    assert images.shape == (300, 1, 28, 28)
    assert images.dtype == torch.float32
    assert (float(images.min()), float(images.max())) == (0, 1)
    assert torch.equal(images * 255, (images * 255).round())
    assert labels.shape == (300,)
    assert labels.dtype == torch.int64
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert labels.unique().tolist() == list(range(10))


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image")


def draw(
    pillow: Any, path: Path, width: int = 4, height: int = 3, colour: Any = (255, 51, 0), mode: str = "RGB"
) -> None:
    pillow.new(mode, (width, height), colour).save(path)


def test_images_reads_pictures_by_name(tmp_path: Path, pillow: Any) -> None:
    draw(pillow, tmp_path / "b.png")
    draw(pillow, tmp_path / "c.JPEG", colour=(128, 128, 128))
    pillow.new("RGB", (4, 3), (0, 0, 255)).save(tmp_path / "a.webp", lossless=True)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".b.png").write_text("a hidden file")
    (tmp_path / "folder.png").mkdir()
    read = images(str(tmp_path))
    assert read.names == ("a.webp", "b.png", "c.JPEG")
    assert read.labels is None
    assert read.images.shape == (3, 3, 3, 4)
    assert read.images.dtype == torch.float32
    expected = torch.tensor([[0, 0, 255], [255, 51, 0], [128, 128, 128]]) / 255
    assert torch.equal(read.images, expected[:, :, None, None].expand(3, 3, 3, 4))


@pytest.mark.parametrize("name", ["a.bmp", "a.gif", "a.tif", "a.TIFF"])
def test_images_reads_formats_of_scanners_and_old_programs(tmp_path: Path, pillow: Any, name: str) -> None:
    pixels = np.zeros((2, 3, 3), dtype=np.uint8)
    pixels[0, 1:, 0] = pixels[1, 2, 1] = 255
    pillow.fromarray(pixels).save(tmp_path / name)
    assert torch.equal(images(tmp_path).images[0], torch.from_numpy(pixels).permute(2, 0, 1) / 255)


def test_images_takes_the_first_frame_of_an_animation_and_no_page_of_several(tmp_path: Path, pillow: Any) -> None:
    frames = [pillow.new("RGB", (4, 3), colour) for colour in ((255, 0, 0), (0, 255, 0))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert images(tmp_path).images[0, :, 0, 0].tolist() == [1.0, 0.0, 0.0]
    frames[0].save(tmp_path / "b.tiff", save_all=True, append_images=frames[1:])
    with pytest.raises(FileError, match=r"b.tiff has several pages, expected one: save the one that you mean"):
        images(tmp_path)


def test_images_keeps_rows_and_columns(tmp_path: Path, pillow: Any) -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)  # (H, W, RGB)
    pillow.fromarray(pixels).save(tmp_path / "a.png")
    assert torch.equal(images(tmp_path).images[0], torch.from_numpy(pixels).permute(2, 0, 1) / 255)


def test_images_covers_the_size_and_cuts_the_middle(tmp_path: Path, pillow: Any) -> None:
    pixels = np.zeros((10, 30, 3), dtype=np.uint8)
    pixels[:, 10:20] = 255
    pillow.fromarray(pixels).save(tmp_path / "wide.png")
    draw(pillow, tmp_path / "other.png", 7, 9)
    assert images(tmp_path, size=(5, 8)).images.shape == (2, 3, 5, 8)
    read = images(tmp_path, size=10)
    assert read.images.shape == (2, 3, 10, 10)
    assert torch.equal(read.images[1], torch.ones(3, 10, 10))


def test_images_turns_every_kind_of_picture_into_rgb(tmp_path: Path, pillow: Any) -> None:
    draw(pillow, tmp_path / "a-grey.png", colour=51, mode="L")
    draw(pillow, tmp_path / "b-bits.png", colour=1, mode="1")
    draw(pillow, tmp_path / "c-half.png", colour=(0, 0, 0, 204), mode="RGBA")
    draw(pillow, tmp_path / "d-none.png", colour=(9, 9, 9, 0), mode="RGBA")
    palette = pillow.new("P", (4, 3), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.save(tmp_path / "e-palette.png")
    palette.save(tmp_path / "f-hole.png", transparency=bytes([0, 255]))
    first = images(tmp_path).images[:, :, 0, 0] * 255
    assert first.round().tolist() == [[51] * 3, [255] * 3, [51] * 3, [255] * 3, [255, 0, 0], [255] * 3]


def test_images_turns_photographs_upright(tmp_path: Path, pillow: Any) -> None:
    exif = pillow.Exif()
    exif[0x0112] = 6  # EXIF orientation 6: the camera was held upright
    pillow.new("RGB", (4, 3)).save(tmp_path / "a.jpg", exif=exif)
    assert images(tmp_path).images.shape == (1, 3, 4, 3)


def test_images_of_several_sizes_need_one(tmp_path: Path, pillow: Any) -> None:
    draw(pillow, tmp_path / "a.png", 4, 3)
    draw(pillow, tmp_path / "b.png", 5, 3)
    with pytest.raises(FileError, match=r"b.png is 5 x 3 pixels and a.png is 4 x 3: pass size="):
        images(tmp_path)


@pytest.mark.parametrize("size", [0, (4, -1)])
def test_images_refuses_an_empty_size(tmp_path: Path, size: int | tuple[int, int]) -> None:
    with pytest.raises(InputError, match="expected a side of at least 1"):
        images(tmp_path, size)


def test_images_names_a_folder_without_pictures(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no picture in"):
        images(tmp_path)
    with pytest.raises(FileError, match="cannot list"):
        images(tmp_path / "absent")


def test_images_names_the_damaged_file(tmp_path: Path, pillow: Any) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    for name in ("a.png", "a.jpg", "a.webp", "a.bmp", "a.gif", "a.tiff"):
        path = tmp_path / name
        pillow.fromarray(noise).save(path)
        whole = path.read_bytes()
        for content in (b"", b"no picture", whole[: len(whole) // 2]):
            path.write_bytes(content)
            with pytest.raises(FileError, match=f"{name} as a picture"):
                images(tmp_path)
        path.unlink()


def deep_png() -> bytes:
    """Return a colour PNG with two pixels of 16 bits per channel; Pillow would drop half of the bits silently."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1 + 2 * 3 * 2))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", rows) + part(b"IEND", b"")


def deep_tiff() -> bytes:
    """Return the same picture as a TIFF."""
    entries = [  # tag, type (3: two bytes, 4: four), count, value
        (256, 3, 1, 2),
        (257, 3, 1, 1),
        (258, 3, 3, 200),  # bits per sample, at byte 200
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, 220),  # the offset of the pixels
        (277, 3, 1, 3),
        (278, 3, 1, 1),
        (279, 4, 1, 12),
    ]
    table = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    content = b"II*\0" + struct.pack("<I", 8) + table
    return content.ljust(200, b"\0") + struct.pack("<HHH", 16, 16, 16).ljust(20, b"\0") + bytes(12)


def saved(mode: str, kind: str) -> bytes:
    """Return a picture in one of Pillow's modes, stored in a format."""
    pillow, content = pytest.importorskip("PIL.Image"), io.BytesIO()
    pillow.new(mode, (4, 3)).save(content, format=kind)
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.png", lambda: saved("RGB", "BMP"), "a.png as a picture"),
        ("a.png", lambda: saved("I;16", "PNG"), "a.png has more than 8 bits a channel"),
        ("a.tiff", lambda: saved("I;16", "TIFF"), "a.tiff has more than 8 bits a channel"),
        ("a.png", deep_png, "a.png has more than 8 bits a channel"),
        ("a.tiff", deep_tiff, "a.tiff has more than 8 bits a channel"),
    ],
)
def test_images_refuses_false_names_and_deep_pictures(
    tmp_path: Path, name: str, make: Callable[[], bytes], message: str
) -> None:
    (tmp_path / name).write_bytes(make())
    with pytest.raises(FileError, match=message):
        images(tmp_path)


@pytest.mark.parametrize("limit", [100, 300])  # Pillow raises above twice its limit, and warns between the two
def test_images_refuses_bombs(tmp_path: Path, pillow: Any, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    draw(pillow, tmp_path / "a.png", 20, 20)
    monkeypatch.setattr(pillow, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(FileError, match=r"a.png as a picture.*decompression bomb"):
        images(tmp_path)


def test_images_names_pillow_if_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(FileError, match="pictures need Pillow; install it"):
        images(tmp_path)


def test_images_reads_labels(tmp_path: Path, pillow: Any) -> None:
    for name in ("a.png", "b.png"):
        draw(pillow, tmp_path / name)
    (tmp_path / "labels.csv").write_text("\ufeffnote,file,label\nx,b.png,3\n,a.png, 07\n\n", encoding="utf-8")
    labels = images(tmp_path).labels
    assert labels is not None
    assert labels.dtype == torch.int64
    assert labels.tolist() == [7, 3]


TABLES = {
    "empty": ("", r"has the columns \[\], expected file and label"),
    "columns": ("name,label\na.png,1\n", "expected file and label"),
    "word": ("file,label\na.png,cat\n", "line 2: the label of 'a.png' is 'cat', expected a class number"),
    "negative": ("file,label\na.png,-1\n", "expected a class number"),
    "huge": (f"file,label\na.png,{10**30}\n", "expected a class number"),
    "short": ("file,label\na.png\n", "is '', expected a class number"),
    "twice": ("file,label\na.png,1\na.png,2\n", "line 3: 'a.png' has a label already"),
    "foreign": ("file,label\nb.png,2\n", "labels none of the 1 files beside it, but 'b.png': correct the names"),
    "nameless": ("label,file\n1\n", "line 2: a label without a file"),
    "bare": ("file,label\n", "labels none of the 1 files beside it: correct the names, or take the table away"),
}


@pytest.mark.parametrize(("table", "message"), TABLES.values(), ids=TABLES.keys())
def test_images_refuses_wrong_labels_before_it_reads_pictures(tmp_path: Path, table: str, message: str) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "labels.csv").write_text(table, encoding="utf-8")
    with pytest.raises(FileError, match=message) as caught:
        images(tmp_path)
    assert str(tmp_path / "labels.csv") in str(caught.value)


def test_images_takes_labels_of_more_and_of_fewer_pictures(tmp_path: Path, pillow: Any) -> None:
    for name in ("a.png", "b.png", "c.png"):
        draw(pillow, tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,label\nb.png,4\ngone.png,5\nlost.png,6\n")
    said = "gives 2 of 3 files no label, such as 'a.png', and labels 2 files that are not there, such as 'gone.png'"
    with pytest.warns(ProofmapWarning, match=said):
        labels = images(tmp_path).labels
    assert labels is not None
    assert labels.tolist() == [-1, 4, -1]


def test_images_refuses_labels_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "labels.csv").write_bytes(b"file,label\n\xff\xfe,1\n")
    with pytest.raises(FileError, match=r"cannot read .*labels.csv"):
        images(tmp_path)
