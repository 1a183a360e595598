"""Load weights into a model from safetensors or torch's format, without executing code from the file."""

from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from proofmap.errors import FileError


def fill(model: nn.Module, path: str | Path) -> None:
    """Replace the model's parameters and buffers by those in the file: a state dict in safetensors or torch's format.

    Raises FileError unless the names and shapes are exactly those of the model. The values are copied: the model keeps
    its types and does not depend on the file afterwards.
    """
    path = Path(path)
    weights = _read(path)
    for why in _mismatches(model, weights):
        raise FileError(f"{path} holds {why}: these are the weights of another network")
    model.load_state_dict(weights)


def fill_packaged(model: nn.Module, name: str) -> None:
    """Fill the model from the packaged file `name`.safetensors."""
    with as_file(files("proofmap.zoo") / f"{name}.safetensors") as path:
        fill(model, path)


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with path.open("rb") as file:
            # safetensors: eight bytes of length, then a JSON object; in torch's formats the ninth byte differs
            safetensors = file.read(9)[8:] == b"{"
            file.seek(0)
            content = load_file(path) if safetensors else torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}; check that the file exists and may be read") from error
    except Exception as error:  # the readers raise many types for a damaged file
        raise FileError(
            f"{path} is not a file of weights ({type(error).__name__}): expected a state dict in safetensors or in "
            "torch's format, of tensors alone"
        ) from error
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise FileError(f"{path} holds something other than tensors by name: expected a state dict")
    return content


def _mismatches(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield the differences between the names and shapes of the weights and those of the model."""
    expected, kind = model.state_dict(), f"this {type(model).__name__} model"
    for name, tensor in expected.items():
        if name not in weights:
            yield f"no {name!r}, expected the {len(expected)} tensors of {kind}"
        elif weights[name].shape != tensor.shape:
            yield f"{name!r} of shape {tuple(weights[name].shape)}, expected {tuple(tensor.shape)} for {kind}"
    for name in sorted(weights.keys() - expected.keys()):
        yield f"{name!r}, which {kind} does not have"
