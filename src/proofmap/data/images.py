"""Pictures from a folder: PNG, JPEG, WebP, BMP, GIF and TIFF, read with Pillow."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import FileError, InputError, ProofmapWarning

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

LABELS_FILE = "labels.csv"
UNKNOWN = -1  # the class of a sample without a label
_ALWAYS_TRIED = ("PNG", "JPEG", "WEBP")  # such files often have the ending of another of these formats
_BY_ENDING = {".bmp": "BMP", ".gif": "GIF", ".tif": "TIFF", ".tiff": "TIFF"}
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", *_BY_ENDING})
_DEEP_MODES = ("I", "F")  # Pillow's modes with more than 8 bits for each channel begin with these letters
_GREY_MODES = ("1", "L", "LA")  # Pillow's modes without colour


@dataclass(frozen=True)
class Pictures:
    """Pictures in the order of their names, and their labels if the folder has a table of labels.

    >>> from PIL import Image
    >>> Image.new("RGB", (4, 4), "red").save("red.png")
    >>> found = pm.data.images(".")
    >>> isinstance(found, pm.data.Pictures), found.names
    (True, ('red.png',))
    """

    names: tuple[str, ...]
    images: Tensor  # (N, 3, H, W), float32 RGB in [0, 1]
    labels: Tensor | None  # (N,), int64; -1 for a picture without a label


def images(folder: str | Path, size: int | tuple[int, int] | None = None) -> Pictures:
    """Read every PNG, JPEG, WebP, BMP, GIF and TIFF picture in `folder`, without its subfolders.

    `size` is a side or (height, width): each picture is scaled until it covers this size, and its middle is cut out.
    Without it, all pictures must have the same size. Photographs are turned by their EXIF orientation, transparent
    parts become white, and the first frame of an animation is read. A file `labels.csv` with the columns `file` and
    `label`, or `class_index`, gives pictures their class numbers. Raises FileError for a picture with several pages,
    with more than 8 bits for each channel, or with more pixels than Pillow considers safe.

    >>> from PIL import Image
    >>> Image.new("RGB", (8, 8), "red").save("red.png")
    >>> pm.data.images(".", size=4).images.shape
    torch.Size([1, 3, 4, 4])
    """
    folder = Path(folder)
    height_width = _check_size(size)
    try:
        paths = sorted((path for path in folder.iterdir() if _is_picture(path)), key=lambda path: path.name)
    except OSError as error:
        raise FileError(f"cannot list {folder}: {error}; give a folder of pictures") from error
    if not paths:
        raise FileError(f"no picture in {folder}: expected files that end in {', '.join(sorted(SUFFIXES))}")
    names = tuple(path.name for path in paths)
    labels = None
    if (folder / LABELS_FILE).exists():
        given, note = read_labels(folder / LABELS_FILE, names)
        if note:
            warnings.warn(note, ProofmapWarning, stacklevel=2)
        labels = torch.tensor([given.get(name, UNKNOWN) for name in names], dtype=torch.int64)
    pixels = [read_picture(path, height_width) for path in paths]  # (H, W, 3), uint8
    for path, one in zip(paths, pixels, strict=True):
        if one.shape != pixels[0].shape:
            raise FileError(
                f"{path} is {one.shape[1]} x {one.shape[0]} pixels and {paths[0].name} is "
                f"{pixels[0].shape[1]} x {pixels[0].shape[0]}: pass size= to bring all pictures to one size"
            )
    return Pictures(names, torch.stack(pixels).permute(0, 3, 1, 2).float().contiguous() / 255, labels)


def _is_picture(path: Path) -> bool:
    """Return whether a file has the name of a picture; if it is none, reading it reports the error."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _check_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise InputError(f"got size {size!r}, expected a side of at least 1 or such a pair (height, width)")
    return height, width


def read_picture(path: Path, size: tuple[int, int] | None = None, channels: int | None = 3) -> Tensor:
    """Read one picture, (H, W, C), uint8, in colour (3 channels) or grey (1); `channels=None` keeps that of the file.

    If `size` = (height, width) is given, the picture is scaled until it covers this size, and its middle is cut out.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise FileError(f"cannot read {path}: pictures need Pillow; install it with pip install pillow") from error
    try:
        kind = _BY_ENDING.get(path.suffix.lower())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_ALWAYS_TRIED if kind is None else (kind, *_ALWAYS_TRIED)) as opened:
                _check_kind(opened, path)
                opened.load()
                grey = channels == 1 or (channels is None and opened.mode in _GREY_MODES)
                picture = _opaque(ImageOps.exif_transpose(opened)).convert("L" if grey else "RGB")
    except (FileError, MemoryError):
        raise
    except Exception as error:  # a damaged picture makes Pillow fail in many ways
        raise FileError(f"cannot read {path} as a picture: {error}; check that it was copied whole") from error
    if size is not None:
        picture = ImageOps.fit(picture, (size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(picture))
    return pixels.unsqueeze(2) if grey else pixels


def _check_kind(opened: ImageFile, path: Path) -> None:
    """Raise FileError for a picture with more than 8 bits for each channel or with several pages."""
    raw = [str(tile[3]) for tile in opened.tile]  # the stored format of a channel: Pillow's mode may have fewer bits
    if opened.mode.startswith(_DEEP_MODES) or any(";16" in one for one in raw):
        raise FileError(f"{path} has more than 8 bits a channel (mode {opened.mode}): save it with 8")
    if opened.format == "TIFF" and getattr(opened, "is_animated", False):
        raise FileError(f"{path} has several pages, expected one: save the one that you mean")


def _opaque(picture: Image) -> Image:
    from PIL import Image

    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture


def read_labels(path: Path, names: Sequence[str]) -> tuple[dict[str, int], str]:
    """Read the labels of the named files from a table; return them with a sentence about missing and unused labels.

    The sentence is empty if there are none. Raises FileError if the table has no label for any of the files.
    """
    labels: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            columns = table.fieldnames or []
            label = next((name for name in ("label", "class_index") if name in columns), None)
            if label is None or "file" not in columns:
                raise FileError(
                    f"{path} has the columns {columns!s:.200}, expected file and label, or file and class_index"
                )
            for row in table:
                _add_label(labels, row["file"], row[label], f"{path}, line {table.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(
            f"cannot read {path}: {error}; expected a table in UTF-8 with the columns file and label"
        ) from error
    foreign = sorted(labels.keys() - set(names))
    bare = [name for name in names if name not in labels]
    if names and len(bare) == len(names):
        other = f", but {foreign[0]!r:.80}" if foreign else ""
        raise FileError(
            f"{path} labels none of the {len(names)} files beside it{other}: correct the names, or take the table away"
        )
    notes = [f"gives {len(bare)} of {len(names)} files no label, such as {bare[0]!r:.80}"] if bare else []
    others = "a file that is" if len(foreign) == 1 else f"{len(foreign)} files that are"
    notes += [f"labels {others} not there, such as {foreign[0]!r:.80}"] if foreign else []
    return {name: labels[name] for name in names if name in labels}, f"{path} {', and '.join(notes)}" if notes else ""


def _add_label(labels: dict[str, int], name: str | None, label: str | None, where: str) -> None:
    name, label = (name or "").strip(), (label or "").strip()
    if not name:
        raise FileError(f"{where}: a label without a file, expected the name of one")
    if not re.fullmatch("[0-9]{1,9}", label):
        raise FileError(f"{where}: the label of {name!r:.80} is {label!r:.80}, expected a class number, 0 or more")
    if name in labels:
        raise FileError(f"{where}: {name!r:.80} has a label already; leave one line for each picture")
    labels[name] = int(label)
