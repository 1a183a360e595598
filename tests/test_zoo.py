"""Packaged models: shapes, names, modes; packaged weights; and files of weights."""

from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import proofmap as pm
from proofmap.data import digits
from proofmap.errors import FileError
from proofmap.graph import trace
from proofmap.zoo import cifar_cnn, cifar_provable, mnist_mlp, mnist_provable, vgg16
from proofmap.zoo.vgg import VGG
from proofmap.zoo.weights import fill

PACKAGED = {
    "mnist_mlp": (mnist_mlp, (1, 28, 28), 0.98, 1_100_000),
    "cifar_cnn": (cifar_cnn, (3, 32, 32), 0.75, 4_000_000),
    "mnist_provable": (mnist_provable, (1, 28, 28), 0.98, 1_800_000),
    "cifar_provable": (cifar_provable, (3, 32, 32), 0.6, 3_000_000),
}
packaged = pytest.mark.parametrize("name", PACKAGED)


def test_mnist_mlp_is_the_network_of_the_paper() -> None:
    model = mnist_mlp()
    assert [type(layer) for layer in model] == [nn.Flatten, *[nn.Linear, nn.ReLU] * 4, nn.Linear]
    widths = [(layer.in_features, layer.out_features) for layer in model if isinstance(layer, nn.Linear)]
    assert widths == [(784, 256), (256, 128), (128, 64), (64, 32), (32, 10)]


def test_cifar_cnn_is_the_network_of_the_paper() -> None:
    model = cifar_cnn()
    shapes = [(3, 32, 32)]
    for layer in model:
        shapes.append(tuple(layer(torch.zeros(1, *shapes[-1])).shape[1:]))
    assert [type(layer) for layer in model] == [
        *[nn.Conv2d, nn.ReLU] * 3,
        *[nn.MaxPool2d, nn.Flatten, nn.Linear, nn.ReLU, nn.Linear],
    ]
    assert shapes[1::2] == [(128, 30, 30), (80, 28, 28), (64, 26, 26), (64, 13, 13), (64,), (10,)]


def test_most_digits_are_proven_at_the_radius_of_the_training() -> None:
    images, labels = digits()
    ball = pm.Ball(0.1, domain=(0.0, 1.0))
    over = pm.overlap(mnist_provable(), images[:50], ball, target=labels[:50], bounds=pm.bounds.Backward())
    assert over.rigorous
    assert int((over.full < 0).sum()) >= 40


@packaged
def test_packaged_models_map_images_to_logits(name: str) -> None:
    build, shape, *_ = PACKAGED[name]
    model = build()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model(torch.rand(3, *shape)).shape == (3, 10)


@packaged
def test_packaged_models_come_in_eval_mode(name: str) -> None:
    build = PACKAGED[name][0]
    for pretrained in (True, False):
        assert not any(module.training for module in build(pretrained).modules())


@packaged
def test_packaged_models_can_be_traced(name: str) -> None:
    build, shape, *_ = PACKAGED[name]
    model, x = build(), torch.rand(4, *shape)
    torch.testing.assert_close(trace(model, x)(x), model(x), rtol=1e-5, atol=1e-5)


@packaged
def test_untrained_models_have_their_own_weights(name: str) -> None:
    build = PACKAGED[name][0]
    trained, untrained = build().state_dict(), build(pretrained=False).state_dict()
    assert trained.keys() == untrained.keys()
    assert not any(torch.equal(trained[key], untrained[key]) for key in trained)


@packaged
def test_calls_do_not_share_parameters(name: str) -> None:
    build = PACKAGED[name][0]
    first, second = build(), build()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.zero_()
    assert all(parameter.abs().sum() > 0 for parameter in second.parameters())


@packaged
def test_packaged_weights_state_their_origin(name: str) -> None:
    _, _, accuracy, size = PACKAGED[name]
    with as_file(files("proofmap.zoo") / f"{name}.safetensors") as path:
        assert path.stat().st_size < size
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
    assert metadata.keys() == {"accuracy", "command", "seed", "versions"}
    assert float(metadata["accuracy"].split()[0]) > accuracy
    assert metadata["command"].startswith("python scripts/train.py ")


def test_mnist_mlp_reads_the_packaged_digits() -> None:
    images, labels = digits()
    correct = mnist_mlp()(images).argmax(dim=1) == labels
    assert correct.double().mean() >= 0.97


# torchvision's VGG16: the index of each layer with weights in its part, outputs, inputs
CONVOLUTIONS = [
    *[(0, 64, 3), (2, 64, 64)],
    *[(5, 128, 64), (7, 128, 128)],
    *[(10, 256, 128), (12, 256, 256), (14, 256, 256)],
    *[(17, 512, 256), (19, 512, 512), (21, 512, 512)],
    *[(24, 512, 512), (26, 512, 512), (28, 512, 512)],
]
DENSE = [(0, 4096, 25088), (3, 4096, 4096), (6, 1000, 4096)]


def test_vgg16_has_the_names_and_shapes_of_torchvision() -> None:
    with torch.device("meta"):
        model = vgg16()
    expected: dict[str, tuple[int, ...]] = {}
    for i, outputs, inputs in CONVOLUTIONS:
        expected |= {f"features.{i}.weight": (outputs, inputs, 3, 3), f"features.{i}.bias": (outputs,)}
    for i, outputs, inputs in DENSE:
        expected |= {f"classifier.{i}.weight": (outputs, inputs), f"classifier.{i}.bias": (outputs,)}
    assert {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()} == expected
    assert [i for i, layer in enumerate(model.features) if isinstance(layer, nn.MaxPool2d)] == [4, 9, 16, 23, 30]
    assert not any(module.training for module in model.modules())
    assert model(torch.zeros(2, 3, 224, 224, device="meta")).shape == (2, 1000)


def test_vgg16_refuses_a_wrong_file(tmp_path: Path) -> None:
    save_file({"features.0.weight": torch.zeros(64, 3, 3, 3)}, tmp_path / "part.safetensors")
    with pytest.raises(FileError, match=r"part.safetensors holds no 'features.0.bias', expected the 32 tensors"):
        vgg16(tmp_path / "part.safetensors")


def slim(seed: int) -> VGG:
    """Return VGG16's layers with few filters: loading weights into it works as for the full network."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return VGG(((2, 2), (2, 2), (3, 3, 3), (4, 4, 4), (4, 4, 4)), hidden=8, classes=10).eval()


def save_zip(weights: dict[str, Tensor], path: Path) -> None:
    torch.save(weights, path)


def save_legacy(weights: dict[str, Tensor], path: Path) -> None:  # as in torchvision's older files
    torch.save(weights, path, _use_new_zipfile_serialization=False)


SAVE = {"zip": save_zip, "legacy": save_legacy, "safetensors": save_file}


@pytest.mark.parametrize("save", SAVE.values(), ids=SAVE)
@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])  # the format follows from the content
def test_fill_reads_saved_weights(tmp_path: Path, save: Callable[..., None], name: str) -> None:
    saved, model = slim(0), slim(1)
    save(saved.state_dict(), tmp_path / name)
    fill(model, str(tmp_path / name))
    (tmp_path / name).unlink()
    for key, tensor in saved.state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor), key
    x = torch.rand(2, 3, 224, 224)
    assert torch.equal(model(x), saved(x))


def test_fill_keeps_the_types_of_the_model(tmp_path: Path) -> None:
    save_file({name: tensor.half() for name, tensor in slim(0).state_dict().items()}, tmp_path / "half")
    model = slim(1)
    fill(model, tmp_path / "half")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    name = "classifier.6.weight"
    assert torch.equal(model.get_parameter(name), slim(0).get_parameter(name).half().float())


def foreign_files() -> dict[str, tuple[Callable[[Path], object], str]]:
    weights = slim(0).state_dict()
    missing = {name: tensor for name, tensor in weights.items() if name != "features.5.bias"}
    return {
        "absent": (lambda path: None, "cannot read .* check that the file exists"),
        "empty": (lambda path: path.write_bytes(b""), r"not a file of weights \(EOFError\)"),
        "text": (lambda path: path.write_text("not weights at all"), "not a file of weights"),
        "cut-safetensors": (lambda path: path.write_bytes(b"\xff\0\0\0\0\0\0\0{}"), "not a file of weights"),
        "whole-module": (lambda path: torch.save(slim(0), path), r"not a file of weights \(UnpicklingError\)"),
        "tensor": (lambda path: torch.save(torch.zeros(3), path), "something other than tensors by name"),
        "checkpoint": (lambda path: torch.save({"epoch": 3, "model": weights}, path), "expected a state dict"),
        "missing": (lambda path: save_file(missing, path), "holds no 'features.5.bias', expected the 32 tensors"),
        "extra": (lambda path: save_file({**weights, "fc.bias": torch.zeros(2)}, path), "holds 'fc.bias', which"),
        "shape": (
            lambda path: save_file({**weights, "classifier.6.bias": torch.zeros(3)}, path),
            r"holds 'classifier.6.bias' of shape \(3,\), expected \(10,\)",
        ),
    }


@pytest.mark.parametrize("case", foreign_files())
def test_fill_refuses_foreign_files_and_leaves_the_model(tmp_path: Path, case: str) -> None:
    write, message = foreign_files()[case]
    write(tmp_path / "file")
    model = slim(1)
    with pytest.raises(FileError, match=message) as caught:
        fill(model, tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)
    assert "\n" not in str(caught.value)
    for name, tensor in slim(1).state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
