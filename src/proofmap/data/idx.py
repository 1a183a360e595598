"""The idx file format of MNIST.

    bytes 0-1   zero
    byte  2     the element type; 0x08 is unsigned byte
    byte  3     the number of dimensions, k
    4k bytes    the k sizes, big-endian
    the rest    the elements, row-major

(http://yann.lecun.com/exdb/mnist, "the idx file format".)
"""

import hashlib
import math
import struct
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from proofmap.data.gzip_files import READ_ERRORS, is_packed, open_unpacked, read_up_to
from proofmap.errors import FileError

_UNSIGNED_BYTE = 0x08  # the code of this type of entries in the header
MAX_AXES = 32  # every version of numpy supports this many
_MAX_UNPACKED_BYTES = 1 << 31  # for packed files: forty times the largest published one
_MAX_GZIP_RATIO = 1032  # gzip unpacks one byte to at most this many


def read_idx(path: str | Path) -> Tensor:
    """Read an idx file of unsigned bytes, plain or packed by gzip, as a uint8 tensor of the shape in its header.

    Compression is recognised by content: a `.gz` file that a browser has unpacked under its old name is read too.
    Raises FileError if the file is missing, has another format, or is shorter or longer than its header says.

    >>> from pathlib import Path
    >>> size = Path("two-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 4]))
    >>> pm.data.read_idx("two-idx1-ubyte")
    tensor([7, 4], dtype=torch.uint8)
    """
    return read_idx_hashed(Path(path))[0]


def read_idx_hashed(path: Path) -> tuple[Tensor, str]:
    """Read an idx file as `read_idx` does; return the tensor and the SHA-256 of the unpacked file."""
    try:
        with closing(open_unpacked(path)) as stream:
            header, shape = _read_header(stream, path)
            expected = math.prod(shape)
            if expected > _MAX_UNPACKED_BYTES and is_packed(path):
                raise FileError(
                    f"{path} unpacks to {expected} bytes, expected {_MAX_UNPACKED_BYTES} at most: unpack it with gunzip"
                )
            body = read_up_to(stream, expected + 1)
    except READ_ERRORS as error:
        raise FileError(f"cannot read {path}: {error}; check that the file exists and was copied whole") from error
    if len(body) != expected:
        got = f"only {len(body)}" if len(body) < expected else "more"
        raise FileError(
            f"{path} holds {got} bytes after its header, expected {expected} for shape {shape}: "
            "the file is damaged, fetch it again"
        )
    digest = hashlib.sha256(header)
    digest.update(body)
    elements = torch.frombuffer(body, dtype=torch.uint8) if body else torch.empty(0, dtype=torch.uint8)
    return elements.reshape(shape), digest.hexdigest()


def read_idx_shape(path: Path) -> tuple[int, ...]:
    """Read the shape from the header of an idx file; raise FileError if the file is too small for it."""
    try:
        with closing(open_unpacked(path)) as stream:
            header, shape = _read_header(stream, path)
        most = path.stat().st_size * (_MAX_GZIP_RATIO if is_packed(path) else 1)
    except READ_ERRORS as error:
        raise FileError(f"cannot read {path}: {error}; check that the file exists and was copied whole") from error
    if len(header) + math.prod(shape) > most:
        raise FileError(
            f"{path} is too short for the shape {shape} that it states: the file is damaged, fetch it again"
        )
    return shape


def _read_header(stream: BinaryIO, path: Path) -> tuple[bytes, tuple[int, ...]]:
    """Read the header; return its bytes and the shape."""
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTE or magic[3] == 0:
        raise FileError(
            f"{path} is not an idx file of unsigned bytes: it starts with {magic.hex(' ') or 'nothing'}, "
            "expected 00 00 08 and the number of dimensions"
        )
    rank = magic[3]
    if rank > MAX_AXES:
        raise FileError(f"{path} states {rank} dimensions, expected {MAX_AXES} at most: is it an idx file?")
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise FileError(f"{path} ends inside its header of {rank} sizes: the file is damaged, fetch it again")
    return magic + sizes, struct.unpack(f">{rank}I", sizes)
