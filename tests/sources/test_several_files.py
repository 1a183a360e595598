"""Samples of several inputs: npz files and files by the names of the inputs; one sentence for each bad call."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from proofmap.errors import FileError, InputError
from proofmap.sources import Model, SeveralFiles, open_inputs, read_model, rerun
from tests.sources.several import IMAGES, JOINED, ROWS, outputs, write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    write_files(folder)
    return folder


def opened(folder: Path, model: str, *given: str) -> tuple[Model, SeveralFiles]:
    """Open samples with a model of the folder, from inside of it."""
    network = read_model(str(folder / model))
    found, samples = open_inputs([placed(folder, one) for one in given], network)
    assert isinstance(samples, SeveralFiles)
    return found, samples


def placed(folder: Path, given: str) -> Path:
    name, equals, path = given.partition("=")
    return Path(f"{name}={folder / path}") if equals else folder / name


@pytest.mark.parametrize("model", ["net.onnx", "net.py:make"])
@pytest.mark.parametrize("given", [("both.npz",), ("image=image.npy", "table=table.csv"), ("plain.npz",)])
def test_all_ways_give_the_joined_vectors_and_the_model_of_them(folder: Path, model: str, given: tuple[str]) -> None:
    np.savez(folder / "plain.npz", IMAGES.numpy(), ROWS.numpy())  # arrays without names are in the model's order
    network, samples = opened(folder, model, *given)
    assert [(part.name, part.shape) for part in network.parts] == [("image", (1, 4, 4)), ("table", (2,))]
    assert len(samples) == 3
    x = torch.stack([samples.read(k) for k in range(3)])
    torch.testing.assert_close(x, JOINED)
    expected = outputs(JOINED)
    torch.testing.assert_close(network.graph(x[:1])(x), expected)
    torch.testing.assert_close(rerun(network)(x), expected)
    assert samples.labels == (tuple(expected.argmax(1).tolist()) if given == ("both.npz",) else None)
    files = {file.path for file in samples.source(0).files}
    assert len(files) == len(given)


def test_one_sample_of_a_picture_and_a_row(folder: Path) -> None:
    Image.fromarray((IMAGES[0, 0].numpy() * 255).round().astype(np.uint8)).save(folder / "xray.png")
    (folder / "row.csv").write_text("1,2\n")
    _, samples = opened(folder, "net.onnx", "table=row.csv", "image=xray.png")
    assert list(samples.names) == ["xray.png"]
    torch.testing.assert_close(samples.read(0)[:16], IMAGES[0].flatten(), atol=0.002, rtol=0.0)
    assert samples.read(0)[16:].tolist() == [1.0, 2.0]


def test_integers_are_constants(folder: Path) -> None:
    tokens = np.array([[1, 3]] * 3)
    np.savez(folder / "tokens.npz", image=IMAGES.numpy(), table=ROWS.numpy(), tokens=tokens)
    network, samples = opened(folder, "net.py:make", "tokens.npz")
    words = torch.arange(15.0).reshape(5, 3)[[1, 3]].sum(0)
    torch.testing.assert_close(network.graph(samples.read(0)[None])(JOINED), outputs(JOINED) + words)
    np.savez(folder / "other.npz", image=IMAGES.numpy(), table=ROWS.numpy(), tokens=np.array([[1], [2], [3]]))
    with pytest.raises(InputError, match=r"'tokens' holds int64 with different values for 3 samples, .* once for each"):
        opened(folder, "net.py:make", "other.npz")
    np.save(folder / "ids.npy", tokens)
    with pytest.raises(InputError, match="got only integers for"):
        opened(folder, "net.py:make", "image=ids.npy", "table=ids.npy")


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("net.onnx", ("image.npy",), r"image.npy for .*net.onnx of the inputs image, table, expected image=FILE"),
        ("net.py:make", ("image.npy",), r"of the inputs image, table, expected image=FILE table=FILE, or an npz file"),
        ("net.py:make", ("image=image.npy",), r"got the inputs image without 'table', expected all that"),
        ("net.onnx", ("imag=image.npy", "table=table.csv"), r"got the input 'imag', expected inputs of .*: image"),
        ("net.onnx", ("image=image.npy", "table.csv"), r"got .*table.csv beside image=.*, expected name=FILE for all"),
        ("net.onnx", ("image=image.npy", "table=one.csv"), r"got 3 of 'image' and 1 of 'table', expected as many"),
        ("net.py:one", ("image=image.npy",), r"which has one input, expected the files alone: .*image.npy"),
        ("net.onnx", ("image=table.csv", "table=table.csv"), r"table.csv#0 has shape \(2,\), expected \(1, 4, 4\)"),
    ],
)  # fmt: skip
def test_bad_calls(folder: Path, model: str, given: tuple[str, ...], message: str) -> None:
    (folder / "one.csv").write_text("1,2\n")
    with pytest.raises(InputError, match=message):
        opened(folder, model, *given)


def test_a_module_that_does_not_take_the_arrays(folder: Path) -> None:
    network, samples = opened(folder, "net.py:make", "image=table.csv", "table=table.csv")
    with pytest.raises(InputError, match=r"does not take the inputs 'image' of shape \(2,\), 'table' of shape \(2,\)"):
        network.graph(samples.read(0)[None])


def test_files_with_other_arrays(folder: Path) -> None:
    np.savez(folder / "third.npz", image=IMAGES.numpy(), rows=ROWS.numpy())
    with pytest.raises(FileError, match=r"third.npz holds the arrays image, rows, expected image, table as in"):
        opened(folder, "net.onnx", "both.npz", "third.npz")
    with pytest.raises(InputError, match=r"got the input 'rows', expected inputs of"):
        opened(folder, "net.onnx", "third.npz")
