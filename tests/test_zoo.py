"""The packaged models: shapes, mode, and that the weights are those of a trained network."""

from __future__ import annotations

from importlib.resources import as_file, files

import torch
from safetensors import safe_open
from torch import nn

from proofmap.data import digits
from proofmap.zoo import mnist_mlp


def test_mnist_mlp_is_the_network_of_the_paper() -> None:
    model = mnist_mlp()
    kinds = [type(layer) for layer in model]
    assert kinds == [nn.Flatten, *[nn.Linear, nn.ReLU] * 4, nn.Linear]
    widths = [(layer.in_features, layer.out_features) for layer in model if isinstance(layer, nn.Linear)]
    assert widths == [(784, 256), (256, 128), (128, 64), (64, 32), (32, 10)]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model(torch.rand(3, 1, 28, 28)).shape == (3, 10)


def test_mnist_mlp_comes_in_eval_mode() -> None:
    for pretrained in (True, False):
        assert not any(module.training for module in mnist_mlp(pretrained).modules())


def test_mnist_mlp_reads_the_packaged_digits() -> None:
    images, labels = digits()
    correct = mnist_mlp()(images).argmax(dim=1) == labels
    assert correct.double().mean() >= 0.97


def test_mnist_mlp_untrained_has_its_own_weights() -> None:
    trained, untrained = mnist_mlp(), mnist_mlp(pretrained=False)
    assert trained.state_dict().keys() == untrained.state_dict().keys()
    assert not torch.equal(trained.state_dict()["1.weight"], untrained.state_dict()["1.weight"])


def test_mnist_mlp_calls_do_not_share_parameters() -> None:
    first, second = mnist_mlp(), mnist_mlp()
    with torch.no_grad():
        first.get_parameter("1.weight").zero_()
    assert second.get_parameter("1.weight").abs().sum() > 0


def test_mnist_mlp_weights_say_where_they_come_from() -> None:
    with as_file(files("proofmap.zoo") / "mnist_mlp.safetensors") as path:
        assert path.stat().st_size < 1_100_000
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
    assert metadata.keys() == {"accuracy", "command", "seed", "versions"}
    assert float(metadata["accuracy"].split()[0]) > 0.98
