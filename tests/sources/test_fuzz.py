"""Random and damaged files: each reader reads them or raises one of our errors with one sentence."""

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

import proofmap as pm
from proofmap.errors import ProofmapError
from proofmap.sources import Preparation, open_samples, preparation_of, read_box, read_model, read_specification
from proofmap.sources.preparation import read_classes
from tests.sources.files import BOX, digits, npy, small_state, write_idx, write_linear, write_module

FLAT = Preparation(shape=(3,))
PICTURE = Preparation(size=(4, 4), channels=3, shape=(3, 4, 4))

Reader = Callable[[Path], object]


def sampled(preparation: Preparation) -> Reader:
    def read(path: Path) -> object:
        samples = open_samples([path], preparation)
        return [samples.read(k) for k in range(min(len(samples), 3))]

    return read


def labelled(path: Path) -> object:
    Image.new("L", (4, 4)).save(path.with_name("x.png"))
    return open_samples([path.parent], PICTURE).labels


def filled(path: Path) -> object:
    return read_model(f"{path.parent / 'module.py'}:small", weights=path)


READERS: dict[str, Reader] = {
    "net.toml": lambda path: preparation_of(str(path.with_suffix(".onnx"))),
    "names.txt": read_classes,
    "x.npy": sampled(FLAT),
    "x.npz": sampled(FLAT),
    "packed.npz": sampled(FLAT),
    "labels.npz": sampled(FLAT),
    "x.csv": sampled(FLAT),
    "labels.csv": labelled,
    "x.idx": sampled(FLAT),
    "x.idx.gz": sampled(FLAT),
    "x.bin": sampled(Preparation(shape=(3, 32, 32))),
    "x.png": sampled(PICTURE),
    "x.jpeg": sampled(PICTURE),
    "x.webp": sampled(PICTURE),
    "x.bmp": sampled(PICTURE),
    "x.gif": sampled(PICTURE),
    "x.tiff": sampled(PICTURE),
    "packed.tiff": sampled(PICTURE),
    "x.vnnlib": lambda path: read_specification(path, Preparation(shape=(2,))),
    "x.vnnlib.gz": lambda path: read_box(path, Preparation(shape=(2,))),
    "net.onnx": lambda path: read_model(str(path)),
    "w.safetensors": filled,
    "w.pt": filled,
    "old.pt": filled,
    "x.proofmap": pm.Explanation.load,
}


def picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(out, kind)
    return out.getvalue()


@cache
def valid(name: str, folder: Path) -> bytes:
    """Return a file that its reader accepts."""
    path, values = folder / name, np.arange(6, dtype=np.float32).reshape(2, 3)
    match name:
        case "net.toml":
            path.write_text('size = [4, 6]\nmean = [1.5, 2, 3]\nstd = 2.5\nlayout = "NHWC"\nclasses = ["a", "b"]\n')
        case "names.txt":
            path.write_text("cat\ndög\n", encoding="utf-8")
        case "x.npy":
            np.save(path, values)
        case "x.npz":
            np.savez(path, x=values, y=np.array([1, 2]))
        case "labels.npz":
            np.savez_compressed(path, x=values, labels=np.array([0, 7], dtype=np.uint8))
        case "packed.npz":
            np.savez_compressed(path, x=values)
        case "x.csv":
            path.write_text('a,b,label,c\n1,2,0,3\n4,"5e-1",1,6\n')
        case "labels.csv":
            path.write_text("file,label\nx.png,3\n")
        case "x.idx" | "x.idx.gz":
            content = write_idx(path, values.astype(np.uint8)).read_bytes()
            path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
        case "x.bin":
            path.write_bytes(b"\x03" + bytes(range(256)) * 12)
        case "x.png" | "x.jpeg" | "x.webp" | "x.bmp" | "x.gif" | "x.tiff":
            path.write_bytes(picture(name[2:]))
        case "packed.tiff":
            Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(path, compression="tiff_lzw")
        case "x.vnnlib" | "x.vnnlib.gz":
            path.write_bytes(gzip.compress(BOX.encode(), mtime=0) if name.endswith(".gz") else BOX.encode())
        case "net.onnx":
            write_linear(path, (3,))
        case "w.safetensors":
            path.write_bytes(save(small_state()))
        case "w.pt" | "old.pt":
            torch.save(small_state(), path, _use_new_zipfile_serialization=name == "w.pt")
        case "x.proofmap":
            eva = pm.EVA(pm.zoo.mnist_mlp(), pm.Ball(0.01), groups=pm.groups.grid(2), progress=False)
            eva.explain(digits(1)[0]).save(path)
    return path.read_bytes()


@st.composite
def mutations(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """Draw changes: positions (as shares of the file), numbers of removed bytes, and inserted bytes."""
    places = st.one_of(st.floats(0, 0.2), st.floats(0, 1, exclude_max=True))  # the first positions hit headers
    ends = st.sampled_from([b"\xff" * 4, b"\0" * 8, b"\x7f\xff\xff\xff", b"9" * 12, b"-1", b"nan", b"((", b"\n", b'"'])
    put = st.one_of(ends, st.binary(max_size=6))
    cut = st.one_of(st.none(), st.integers(0, 4), st.integers(0, 4000))  # None: remove as many bytes as are inserted
    found = [(draw(places), draw(cut), draw(put)) for _ in range(draw(st.integers(1, 3)))]
    return [(place, len(put) if cut is None else cut, put) for place, cut, put in found]


def longer(sizes: list[int]) -> st.SearchStrategy[list[int]]:
    """Also draw the same shape with up to 200 leading axes of size 1, which hold the same data."""
    return st.sampled_from([0, 1, 31, 32, 33, 63, 64, 65, 200]).map(lambda rank: [1] * rank + sizes)


def mutated(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for place, cut, put in changes:
        at = int(place * len(content))
        content = content[:at] + put + content[at + cut :]
    return content


def refusal(reader: Reader, path: Path) -> str | None:
    """Return the message of a reader that refuses the file, or None; any error that is not ours is a failure."""
    try:
        reader(path)
    except ProofmapError as error:
        return str(error)
    return None


def read_or_refuse(name: str, content: bytes, folder: Path) -> None:
    path = folder / name
    path.write_bytes(content)
    said = refusal(READERS[name], path)
    assert said is None or (said and "\n" not in said and len(said) < 1000)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a folder for each format, with the files that its reader needs."""

    @cache
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("fuzz")
        write_module(folder)
        return folder

    return make


ONE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", READERS)
def test_a_whole_file_is_read(name: str, folders: Callable[[str], Path]) -> None:
    """Without this test, a reader that refuses everything would pass the others."""
    path = folders(name) / name
    path.write_bytes(valid(name, folders(name)))
    assert READERS[name](path) is not None


@pytest.mark.parametrize("name", READERS)
@ONE
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(name: str, content: bytes, folders: Callable[[str], Path]) -> None:
    read_or_refuse(name, content, folders(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@settings(ONE, max_examples=200)
@given(changes=mutations())
def test_damaged_files_are_read_or_refused(
    name: str, changes: list[tuple[float, int, bytes]], folders: Callable[[str], Path]
) -> None:
    folder = folders(name)
    read_or_refuse(name, mutated(valid(name, folder), changes), folder)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "labels.npz", "x.idx", "x.idx.gz"])
@ONE
@given(shape=st.lists(st.sampled_from([0, 1, 1, 1, 2, 3, 2**31]), max_size=4).flatmap(longer))
def test_headers_of_any_rank_are_read_or_refused(name: str, shape: list[int], folders: Callable[[str], Path]) -> None:
    count = min(prod(shape), 100)
    content = npy(tuple(shape), count)
    if name.endswith("npz"):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("x.npy", content)
            if name == "labels.npz":
                archive.writestr("y.npy", content)
        content = packed.getvalue()
    elif ".idx" in name:
        content = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(count)
        content = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
    read_or_refuse(name, content, folders(name))
