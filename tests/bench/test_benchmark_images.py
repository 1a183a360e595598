"""The images of a benchmark: packaged ones, or those of a folder."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from proofmap.bench import read
from proofmap.bench.benchmark_images import pictures
from proofmap.errors import InputError


@pytest.mark.parametrize(
    ("name", "shape"),
    [("table1-mnist", (1, 28, 28)), ("table1-cifar10", (3, 32, 32)), ("table1-imagenet", (3, 224, 224))],
)
def test_a_quick_run_needs_no_folder(name: str, shape: tuple[int, ...]) -> None:
    """It uses digits or photographs in [0, 1], all different."""
    found = pictures(read(name), None, quick=True)
    assert found.shape[1:] == shape
    assert found.dtype == torch.float32
    assert 0 <= float(found.min()) < 0.1 < 0.9 < float(found.max()) <= 1
    assert len(found.flatten(1).unique(dim=0)) == len(found) >= 6


def test_imagenet_pictures_are_centre_crops(tmp_path: Path) -> None:
    wide = Image.new("RGB", (512, 256), "red")
    wide.paste("blue", (128 + 16, 16, 128 + 16 + 224, 16 + 224))
    wide.save(tmp_path / "a.png")
    found = pictures(replace(read("table1-imagenet"), start=0, count=1), tmp_path, quick=False)
    assert found.shape == (1, 3, 224, 224)
    assert torch.equal(found, torch.tensor([0.0, 0.0, 1.0]).view(1, 3, 1, 1).expand_as(found))


def test_a_benchmark_may_skip_the_first_samples(tmp_path: Path) -> None:
    for k in range(4):
        Image.new("RGB", (256, 256), (50 * k, 0, 0)).save(tmp_path / f"{k}.png")
    spec = replace(read("table1-imagenet"), start=1, count=2)
    found = pictures(spec, tmp_path, quick=False)
    assert [round(float(one[0, 0, 0]) * 255) for one in found] == [50, 100]
    with pytest.raises(InputError, match=r"from number 4 on .* got 4 in .*: give a folder with more"):
        pictures(replace(spec, start=4), tmp_path, quick=False)


def test_missing_data_is_an_error_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs the files of imagenet, expected their folder, or quick=True"):
        pictures(read("table1-imagenet"), None, quick=False)
    with pytest.raises(InputError, match=r"got folder=.* and quick=True, expected one of them"):
        pictures(read("table1-mnist"), tmp_path, quick=True)
    with pytest.raises(InputError, match="a folder of pictures has no parts"):
        pictures(replace(read("table1-imagenet"), split="validation"), tmp_path, quick=False)
    with pytest.raises(InputError, match="asks for the data 'svhn', expected one of mnist, cifar10, imagenet"):
        pictures(replace(read("table1-mnist"), data="svhn"), None, quick=True)
