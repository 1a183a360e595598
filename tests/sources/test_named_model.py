"""Models by name: the preparation is part of the network, and bounds include it."""

import os
import py_compile
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto
from safetensors.torch import save_file
from torch import Tensor, nn

import proofmap as pm
from proofmap import zoo
from proofmap.errors import FileError, InputError, ModelError
from proofmap.graph import Graph, load
from proofmap.sources import Preparation, read_model
from proofmap.sources import named_model as model_source
from tests.graph.onnx.files import floats
from tests.sources.files import small_state, write_convolution, write_linear, write_module

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.4, 0.3)


def normalised(x: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (MEAN, STD))
    return (x - mean) / std


def assert_bounded(network: nn.Module | Graph, x: Tensor, ball: pm.Ball) -> None:
    """Check that bounds of the prepared network hold at points of the ball around the user's values."""
    over = pm.overlap(network, x, ball, groups=pm.groups.pixels())
    generator = torch.Generator().manual_seed(0)
    for delta in ball.at(x).sample(50, generator):
        logits = pm.trace(network, x)(x + delta) if isinstance(network, nn.Module) else network(x + delta)
        rivals = logits.clone().scatter(1, over.target[:, None], -torch.inf).amax(1)
        assert bool((rivals - logits.gather(1, over.target[:, None])[:, 0] <= over.full + 1e-4).all())
    assert bool((over.full < over.nominal + 100).all())


def test_a_graph_with_channels_last_accepts_pixels_channels_first(tmp_path: Path) -> None:
    path = write_convolution(tmp_path / "net.onnx")
    preparation = Preparation(layout="NHWC", mean=MEAN, std=STD)
    model = read_model(str(path), preparation=preparation)
    assert model.preparation == replace(preparation, shape=(3, 6, 6), size=(6, 6), channels=3)
    x = torch.from_numpy(abs(floats(2, 3, 6, 6)))
    assert isinstance(model.network, Graph)
    assert model.network.input.shape == (3, 6, 6)
    expected = load(path)(normalised(x).permute(0, 2, 3, 1))
    torch.testing.assert_close(model.network(x), expected, atol=1e-5, rtol=1e-5)
    assert_bounded(model.network, x, pm.Ball(0.01, domain=(0.0, 1.0)))


def test_bounds_of_a_prepared_graph_equal_those_of_the_bare_graph_on_the_prepared_ball(tmp_path: Path) -> None:
    path = write_linear(tmp_path / "net.onnx", (3, 2, 2))
    model = read_model(str(path), preparation=Preparation(mean=MEAN, std=STD))
    x = torch.from_numpy(abs(floats(2, 3, 2, 2)))
    own = pm.overlap(model.network, x, pm.Ball(0.01), rigorous=False).full
    radii = 0.01 / torch.tensor(STD).reshape(1, 3, 1, 1)
    bare = pm.overlap(load(path), normalised(x), pm.Ball(radii), rigorous=False).full
    torch.testing.assert_close(own, bare, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "preparation", "taken"),
    [
        ((12, 1), Preparation(), (12,)),
        ((12,), Preparation(size=(2, 2)), (3, 2, 2)),
        ((12,), Preparation(size=(2, 2), layout="NHWC"), (3, 2, 2)),
        ((1, 12), Preparation(size=(4, 3), channels=1), (1, 4, 3)),
        ((3, 2, 2), Preparation(), (3, 2, 2)),
        ((2, 6), Preparation(), (2, 6)),
        ((12,), Preparation(mean=tuple(range(12)), std=(2.0,)), (12,)),
    ],
)
def test_flat_models_take_pictures_of_their_size(
    shape: tuple[int, ...], preparation: Preparation, taken: tuple[int, ...], tmp_path: Path
) -> None:
    path = write_linear(tmp_path / "net.onnx", shape)
    model = read_model(str(path), preparation=preparation)
    assert model.preparation.shape == taken
    x = torch.from_numpy(floats(2, *taken))
    values = x if preparation.mean is None else (x - torch.arange(12.0)) / 2
    last = values.movedim(1, -1) if preparation.layout == "NHWC" else values
    assert isinstance(model.network, Graph)
    torch.testing.assert_close(model.network(x), load(path)(last.reshape(2, *shape)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("preparation", "message"),
    [
        (Preparation(size=(3, 3)), "got the size"),
        (Preparation(channels=1), "got 1 channels for a model that takes 3"),
        (Preparation(mean=(1.0, 2.0)), "got 2 numbers as mean, expected 1 or 3"),
        (Preparation(layout="NHWC"), None),
    ],
)
def test_a_preparation_that_does_not_fit_the_file_is_refused(
    preparation: Preparation, message: str | None, tmp_path: Path
) -> None:
    path = write_linear(tmp_path / "net.onnx", (3, 2, 2))
    if message is None:
        assert read_model(str(path), preparation=preparation).preparation.shape == (2, 3, 2)
        return
    with pytest.raises(InputError, match=message):
        read_model(str(path), preparation=preparation)


def test_a_flat_model_refuses_a_size_that_does_not_divide_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes 12 numbers"):
        read_model(str(write_linear(tmp_path / "net.onnx", (12,))), preparation=Preparation(size=(5, 5)))


def test_a_module_is_wrapped_and_bounds_go_through(tmp_path: Path) -> None:
    name = f"{write_module(tmp_path)}:small"
    (tmp_path / "module.toml").write_text(f"size = 2\nchannels = 3\nmean = {list(MEAN)}\nstd = {list(STD)}")
    save_file(small_state(), tmp_path / "w.safetensors")
    torch.save(small_state(), tmp_path / "w.pt")
    before = list(sys.path)
    model = read_model(name, weights=tmp_path / "w.safetensors")
    assert sys.path == before
    assert model.preparation.shape == (3, 2, 2)
    x = torch.from_numpy(abs(floats(2, 3, 2, 2)))
    bare = read_model(name, weights=tmp_path / "w.pt", preparation=Preparation()).network
    assert isinstance(model.network, nn.Module)
    assert isinstance(bare, nn.Module)
    torch.testing.assert_close(model.network(x), bare(normalised(x)), atol=1e-6, rtol=1e-5)
    assert_bounded(model.network, x, pm.Ball(0.02, domain=(0.0, 1.0)))
    last = read_model(name, weights=tmp_path / "w.pt", preparation=Preparation(layout="NHWC")).network
    assert isinstance(last, nn.Module)
    torch.testing.assert_close(last(x), bare(x.movedim(1, -1)))


def test_a_module_in_double_precision_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "double.py"
    path.write_text("from torch import nn\ndef make():\n    return nn.Sequential(nn.Linear(2, 2)).double()")
    network = read_model(f"{path}:make", preparation=Preparation(mean=(1.0,), std=(2.0,))).network
    pm.trace(network, torch.zeros(1, 2)) if isinstance(network, nn.Module) else pytest.fail("no module")


def test_the_zoo_by_name() -> None:
    model = read_model("zoo:mnist_mlp")
    assert (model.preparation.shape, model.title(3)) == ((1, 28, 28), "3")
    assert read_model("zoo:cifar_cnn").title(3) == "cat"
    with pytest.raises(InputError, match="expected one of " + ", ".join(f"zoo:{name}" for name in zoo.__all__)):
        read_model("zoo:resnet")
    with pytest.raises(InputError, match="no weights of zoo:vgg16, expected a file of weights"):
        read_model("zoo:vgg16")
    with pytest.raises(InputError, match="expected one of zoo:"):
        read_model("zoo:../data/digits")


@pytest.mark.parametrize("kind", ["an onnx file", "weights beside it", "a module", "weights of a module"])
def test_a_file_that_changes_meanwhile_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes in a model's record are those of the bytes that were read."""
    net, module = write_linear(tmp_path / "net.onnx", (3,)), write_module(tmp_path)
    save_file(small_state(), tmp_path / "w.safetensors")
    weights = tmp_path / "w.safetensors" if kind.startswith("weights of") else None
    if kind == "weights beside it":
        location: dict[str, Any] = {"save_as_external_data": True, "location": "net.bin", "size_threshold": 0}
        onnx.save_model(onnx.load(net), net, **location)
    changed = {"an onnx file": net, "weights beside it": tmp_path / "net.bin", "a module": module}.get(kind, weights)
    name = str(net) if "onnx" in kind or "beside" in kind else f"{module}:small"
    assert changed is not None
    place = "load" if name == str(net) else "_fill" if weights else "_from_python"
    sound = getattr(model_source, place)

    def slow(*given: Any) -> Any:
        found = sound(*given)
        changed.write_bytes(changed.read_bytes() + b" ")
        return found

    monkeypatch.setattr(model_source, place, slow)
    with pytest.raises(FileError, match=rf"{changed.name} has changed since the model was read: its SHA-256 was "):
        read_model(name, weights=weights)


def test_code_is_read_from_the_file_and_not_from_a_cache(tmp_path: Path) -> None:
    """Python's own cache treats a file of the same size and time as the same file."""
    path = tmp_path / "net.py"
    path.write_text("import torch\ndef make(): return torch.nn.Linear(3, 2)\n")
    before = path.stat()
    py_compile.compile(str(path))
    path.write_text("import torch\ndef make(): return torch.nn.Linear(3, 4)\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    network = read_model(f"{path}:make").network
    assert isinstance(network, nn.Linear)
    assert network.out_features == 4


def test_the_number_of_class_names_must_be_that_of_the_classes(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("a\nb\n")
    model = read_model("zoo:mnist_mlp", classes=tmp_path / "names.txt")
    with pytest.raises(InputError, match="names of 2 classes, expected 10"):
        model.graph(torch.zeros(1, 1, 28, 28))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("net", "expected net.onnx, module.py:function, or zoo:"),
        ("module.py", "expected net.onnx, module.py:function, or zoo:"),
        ("module.py:a b", "expected net.onnx, module.py:function, or zoo:"),
        ("absent.py:small", "does not exist"),
        ("absent.onnx", "does not exist"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    with pytest.raises((InputError, FileError), match=message):
        read_model(name)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", "has no function 'absent'"),
        ("wrong", "returned a int, expected a torch.nn.Module"),
        ("broken", "failed with ZeroDivisionError: division by zero"),
        ("stops", "failed with SystemExit: no"),
        ("nn", "has no function 'nn'|failed with"),
    ],
)
def test_a_python_file_that_gives_no_model_is_refused(function: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        read_model(f"{write_module(tmp_path)}:{function}")


def test_a_python_file_that_does_not_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def (")
    with pytest.raises(ModelError, match=r"bad\.py:make failed with SyntaxError"):
        read_model(f"{tmp_path / 'bad.py'}:make")


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"3.bias": None}, "holds no '3.bias', expected the 4 tensors"),
        ({"extra": torch.zeros(1)}, "holds 'extra', which this Sequential model does not have"),
        ({"1.bias": torch.zeros(6)}, r"holds '1.bias' of shape \(6,\), expected \(5,\)"),
    ],
)
def test_weights_have_to_be_the_model_s_own(
    suffix: str, change: dict[str, Tensor | None], message: str, tmp_path: Path
) -> None:
    state = {name: tensor for name, tensor in {**small_state(), **change}.items() if tensor is not None}
    path = tmp_path / f"w.{suffix}"
    save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    with pytest.raises(FileError, match=message):
        read_model(f"{write_module(tmp_path)}:small", weights=path)


def test_weights_with_code_or_compression_are_refused(tmp_path: Path) -> None:
    name = f"{write_module(tmp_path)}:small"
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")  # a pickled object
    with pytest.raises(FileError, match="of tensors alone"):
        read_model(name, weights=tmp_path / "module.pt")
    torch.save(small_state(), tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as whole, zipfile.ZipFile(tmp_path / "bomb.pt", "w") as packed:
        for entry in whole.namelist():
            packed.writestr(entry, whole.read(entry))
        packed.writestr("w/data/9", bytes(10**6), zipfile.ZIP_DEFLATED)
    with pytest.raises(FileError, match=r"unpacks to .* bytes, more than its size"):
        read_model(name, weights=tmp_path / "bomb.pt")
    with pytest.raises(InputError, match="an ONNX file brings its own"):
        read_model(str(write_linear(tmp_path / "net.onnx", (3,))), weights=tmp_path / "w.pt")


@pytest.mark.parametrize("location", ["/etc/hosts", "../w.bin", "link.bin"])
def test_external_weights_must_lie_beside_the_onnx_file(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    model = onnx.load(write_linear(folder / "net.onnx", (3,)))
    tensor = next(t for t in model.graph.initializer if t.name == "w")
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match="leaves the model's folder: only files beside the model are opened"):
        read_model(str(folder / "net.onnx"))
