"""Read a model by its name: an ONNX file, a function in a Python file, or a packaged model."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import torch
from torch import Tensor, nn

from proofmap import zoo
from proofmap.errors import FileError, InputError, ModelError, first_line
from proofmap.explainers.origin import File, Source
from proofmap.graph import Graph, as_graph, load
from proofmap.graph.estimators import from_sklearn, is_estimator
from proofmap.graph.onnx import external_data_files
from proofmap.graph.torch.low_precision import in_single_precision
from proofmap.graph.torch.module_call import ModuleCall, call_of, called_by
from proofmap.inputs.several_inputs import InputPart
from proofmap.runtime.memory import is_out_of_memory
from proofmap.runtime.silence import quiet
from proofmap.sources.limited_reads import check_file
from proofmap.sources.preparation import ZOO, Preparation, read_classes, read_toml_beside
from proofmap.sources.prepared_network import put_behind, wrapped
from proofmap.zoo.weights import fill

_MODULE = "proofmap_model_file"  # the name of the user's Python file in sys.modules


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its preparation, and the names of its classes.

    It takes samples (N, C, H, W) with values in `preparation.range`, or (N, d). Normalisation and layout are part of
    the network.
    """

    name: str
    network: nn.Module | Graph
    preparation: Preparation
    classes: tuple[str, ...] | None = None
    files: tuple[File, ...] = ()  # the files that hold the model

    @property
    def source(self) -> Source:
        """The model's name and files, as results record them."""
        return Source(self.name, self.files)

    @property
    def parts(self) -> tuple[InputPart, ...]:
        """The inputs of a model of several, whose joined vectors it takes; () for one input."""
        if isinstance(self.network, Graph):
            return self.network.parts
        call = call_of(self.network)
        return () if call is None else call.parts

    def joined(self, parts: tuple[InputPart, ...]) -> Model:
        """Return the model as a function of the joined vectors of several inputs, which it gets by their names."""
        network = self.network
        if isinstance(network, Graph):
            expected = [part.shape for part in network.parts]
            if [part.shape for part in parts] != expected:
                raise InputError(
                    f"got inputs of shapes {[part.shape for part in parts]}, expected {expected} for {self.name}"
                )
        else:
            network = called_by(network, ModuleCall(parts=parts, by_keyword=True))
        prepared = replace(self.preparation, shape=(sum(part.size for part in parts),))
        return replace(self, network=network, preparation=prepared)

    def graph(self, x: Tensor) -> Graph:
        """Return the graph of the network for samples like x (N, *shape).

        Raises InputError if the number of class names differs from the number of classes.
        """
        if isinstance(self.network, nn.Module):
            _try(self.network, x, self.name)
        network = self.network
        if isinstance(network, nn.Module):
            network = in_single_precision(network)  # here, because its warning would be lost below
        with quiet():
            graph = as_graph(network, x)
        if self.classes is not None and len(self.classes) != graph.classes:
            raise InputError(
                f"got the names of {len(self.classes)} classes, expected {graph.classes} for {self.name}: one for each"
            )
        return graph

    def title(self, number: int) -> str:
        """Return the name of a class, or its number if the classes have no names."""
        return str(number) if self.classes is None else self.classes[number]


def _try(network: nn.Module, x: Tensor, name: str) -> None:
    """Run a module on one sample: for a wrong shape, its own error is clearer than that of the tracer."""
    like = next((p for p in network.parameters() if p.is_floating_point()), x)
    try:
        with torch.no_grad(), redirect_stdout(sys.stderr):  # standard output is reserved for results
            network(x[:1].to(like.device, like.dtype))
    except Exception as error:  # a module may raise anything
        if is_out_of_memory(error):
            raise
        parts = () if (call := call_of(network)) is None else call.parts
        if parts:
            given = ", ".join(f"{part.name!r} of shape {part.shape}" for part in parts)
            raise InputError(
                f"{name} does not take the inputs {given} without the samples: {first_line(error)}; check the arrays"
            ) from error
        raise InputError(
            f"{name} does not take samples of shape {tuple(x.shape[1:])}: {first_line(error)}; check the size, "
            "the channels and the layout",
            arguments=("size", "channels", "layout"),
        ) from error


def read_model(
    name: str, *, weights: Path | None = None, preparation: Preparation | None = None, classes: Path | None = None
) -> Model:
    """Read a model.

    Args:
        name: "net.onnx", "module.py:function" or "zoo:mnist_mlp". A Python file is executed. The function is called
            without arguments and returns a torch module or a scikit-learn classifier.
        weights: a state dict for a torch module, in safetensors or torch's format, with exactly its tensors.
        preparation: by default the fields of the TOML file beside the model.
        classes: a text file with the names of the classes; it replaces those of the TOML file.
    """
    default, names = read_toml_beside(name)
    preparation = default if preparation is None else preparation
    names = names if classes is None else read_classes(classes)
    network: nn.Module | Graph
    if Path(name).suffix == ".onnx" and not name.startswith(ZOO):
        if weights is not None:
            raise InputError(f"got weights for {name}, expected none: an ONNX file brings its own")
        check_file(Path(name))
        files = _hashed((Path(name), *_external_weights(Path(name))))
        network, shape = put_behind(load(name), preparation)
        check_unchanged(files)
        return Model(name, network, for_shape(preparation, shape), names, files)
    files = _hashed(_files(name, weights))
    module = _zoo(name.removeprefix(ZOO), weights) if name.startswith(ZOO) else _from_python(name)
    if weights is not None:
        _fill(module, weights)
    size, channels = preparation.size, preparation.channels
    known = None if size is None or channels is None else (channels, *size)
    check_unchanged(files)
    files = files or _packaged(name)
    return Model(name, wrapped(module.eval(), preparation), replace(preparation, shape=known), names, files)


def _files(name: str, weights: Path | None) -> Iterator[Path]:
    """Yield the files of a torch module: its code, unless it is a packaged model, and its weights."""
    code = Path(name.rpartition(":")[0])
    if not name.startswith(ZOO) and code.is_file():
        yield code
    if weights is not None and weights.is_file():
        yield weights


def _external_weights(path: Path) -> Sequence[Path]:
    """Return the external files that hold weights of an ONNX file; empty for a damaged file, which `load` reports."""
    try:
        return [file for file in external_data_files(path) if file.is_file()]
    except MemoryError:
        raise
    except Exception:  # the parser raises its own types
        return []


def check_unchanged(files: Iterable[File]) -> None:
    """Raise FileError if a file has changed since the model was read."""
    for file in files:
        now = File.of(Path(file.path)).sha256
        if now != file.sha256:
            raise FileError(
                f"{file.path} has changed since the model was read: its SHA-256 was {file.sha256} and is {now}; put "
                "the file back, or start again with the new one"
            )


def _hashed(paths: Iterable[Path]) -> tuple[File, ...]:
    return tuple(File.of(path) for path in paths)


def _packaged(name: str) -> tuple[File, ...]:
    """Return the weights of a packaged model by their path inside the package: the path on the disk stays private."""
    inside = Path("zoo") / f"{name.removeprefix(ZOO)}.safetensors"
    path = Path(zoo.__file__).parents[1] / inside
    return (File(str("proofmap" / inside), File.of(path).sha256),) if path.is_file() else ()


def for_shape(preparation: Preparation, shape: tuple[int, ...]) -> Preparation:
    """Return the preparation with the size and the channels of the network's samples."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        return replace(preparation, shape=shape)
    return replace(preparation, shape=shape, size=(shape[1], shape[2]), channels=shape[0])


def _zoo(name: str, weights: Path | None) -> nn.Module:
    if name not in zoo.__all__:
        raise InputError(f"got the model {ZOO + name!r}, expected one of {', '.join(ZOO + one for one in zoo.__all__)}")
    if weights is None and name in zoo.UNTRAINED:
        raise InputError(
            f"the package has no weights of {ZOO + name}, expected a file of weights such as x.safetensors or x.pt",
            arguments=("weights",),
        )
    module: nn.Module = getattr(zoo, name)()
    return module


def _from_python(name: str) -> nn.Module:
    """Return the module that the function of a Python file makes."""
    path_text, _, function = name.rpartition(":")
    path = Path(path_text)
    if path.suffix != ".py" or not function.isidentifier():
        raise InputError(f"got the model {name!r}, expected net.onnx, module.py:function, or {ZOO}{zoo.__all__[0]}")
    check_file(path)
    with _importable(path) as spec, redirect_stdout(sys.stderr):
        try:
            source = importlib.util.module_from_spec(spec)
            sys.modules[_MODULE] = source
            assert spec.loader is not None
            spec.loader.exec_module(source)
            make = getattr(source, function, None)
            module = make() if callable(make) else None
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise ModelError(f"{name} failed with {type(error).__name__}: {error}; run the file by itself") from error
    if not callable(make):
        raise ModelError(f"{path} has no function {function!r}, expected one that returns a torch.nn.Module")
    if is_estimator(module):
        module = from_sklearn(module)
    if not isinstance(module, nn.Module):
        got = type(module).__name__
        raise ModelError(f"{name} returned a {got}, expected a torch.nn.Module or a classifier of scikit-learn")
    return module


def user_modules() -> list[ModuleType]:
    """Return the modules of the user's Python file and of its folder, which a cluster's workers do not have."""
    source = sys.modules.get(_MODULE)
    file = None if source is None else getattr(source, "__file__", None)
    if source is None or file is None:
        return []
    folder = Path(file).resolve().parent
    named = [(module, getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    return [module for module, path in named if path is not None and Path(path).resolve().parent == folder]


class _Source(SourceFileLoader):
    """Compile the file itself: Python's cache compares only times and sizes."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path), path, "exec", dont_inherit=True)


@contextmanager
def _importable(path: Path) -> Iterator[importlib.machinery.ModuleSpec]:
    """Put the file's folder on the import path, so that the file can import its neighbours."""
    folder = str(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=_Source(_MODULE, str(path)))
    assert spec is not None
    sys.path.insert(0, folder)
    try:
        yield spec
    finally:
        sys.path.remove(folder)


def _fill(module: nn.Module, path: Path) -> None:
    """Fill a module from a file of weights.

    Raises FileError for an archive that unpacks to more bytes than it has: torch does not compress its files.
    """
    check_file(path)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > path.stat().st_size:
                raise FileError(
                    f"{path} unpacks to {unpacked} bytes, more than its size, expected a file that torch.save wrote"
                )
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise FileError(f"{path} is not a file of weights: {error}; check that it was copied whole") from error
    fill(module, path)
