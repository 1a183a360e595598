"""Notes on pictures that are converted: colours that become grey, and sizes that are scaled and cut."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from proofmap.data.images import SUFFIXES
from proofmap.sources.preparation import Preparation

_COLOUR_MODES = {"RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}  # Pillow's modes with three channels or more
_MAX_HEADERS_READ = 1000  # a note about conversions needs no more pictures


def conversion_notes(paths: Sequence[Path], preparation: Preparation) -> Iterator[str]:
    """Yield a sentence for each kind of conversion that the pictures among the files need."""
    headers = [header for header in map(_header, paths[:_MAX_HEADERS_READ]) if header is not None]
    if preparation.channels == 1:
        colour = [path for path, mode, _ in headers if mode in _COLOUR_MODES]
        yield from _sentence(colour, "in colour", "converted to grey")
    if preparation.size is not None:
        height, width = preparation.size
        other = {path: size for path, _, size in headers if size != (width, height)}
        first = next(iter(other.values()), (0, 0))
        yield from _sentence(list(other), f"of {first[0]} x {first[1]} pixels", f"scaled and cut to {width} x {height}")


def _sentence(paths: Sequence[Path], kind: str, done: str) -> Iterator[str]:
    if len(paths) == 1:
        yield f"{paths[0].name} is {kind} and was {done}: what is proven is about the converted picture"
    elif paths:
        yield (
            f"{len(paths)} pictures, such as {paths[0].name} {kind}, were {done}: what is proven is about the "
            "converted pictures"
        )


def _header(path: Path) -> tuple[Path, str, tuple[int, int]] | None:
    """Return a picture's mode and size (width, height); None for other files and for pictures that cannot be read."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():  # opening a named pipe would block
        return None
    try:
        from PIL import Image

        with warnings.catch_warnings(), Image.open(path) as opened:
            warnings.simplefilter("ignore")  # `read_picture` reports problems
            turned = opened.getexif().get(274, 1) >= 5  # EXIF orientation 5 to 8 swaps width and height
            width, height = opened.size
            return path, opened.mode, (height, width) if turned else (width, height)
    except Exception:  # a damaged picture makes Pillow fail in many ways
        return None
