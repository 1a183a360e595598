"""Samples of several inputs: an npz file with one array for each input, or files for each input by its name.

The samples are the joined vectors of the inputs, and the model becomes a function of them. So all commands and runs see
an ordinary model and ordinary samples. Integers of a torch module, such as token ids, are constants of the network.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from proofmap.data.images import UNKNOWN
from proofmap.errors import FileError, InputError
from proofmap.explainers.origin import Source
from proofmap.graph import Graph
from proofmap.inputs.several_inputs import InputPart, join_tensors
from proofmap.sources.limited_reads import check_file
from proofmap.sources.named_model import Model, for_shape
from proofmap.sources.numpy_files import Stored, label_array, npy_array, npz_members, part_of_array
from proofmap.sources.preparation import Preparation
from proofmap.sources.prepared_network import Prepared
from proofmap.sources.sample_shapes import Array, Part
from proofmap.sources.samples import Files, open_samples

_Named = Mapping[str, list[Path]]


@dataclass(frozen=True, eq=False)
class SeveralFiles:
    """The samples of several inputs as joined vectors, in the order of the first input."""

    parts: tuple[InputPart, ...]  # in the order of the model
    files: Mapping[str, Files]  # for each input that is no constant
    notes: tuple[str, ...] = ()
    columns: None = field(default=None, init=False)  # the columns of a table are not those of the joined vectors

    @property
    def names(self) -> Sequence[str]:
        """The name of each sample."""
        return self._first.names

    @property
    def labels(self) -> Sequence[int] | None:
        """The class of each sample, from the first input that has classes."""
        return next((held.labels for held in self.files.values() if held.labels is not None), None)

    def __len__(self) -> int:
        return len(self._first)

    def read(self, index: int) -> Tensor:
        """Read one sample: its joined vector (d,) float32."""
        values = []
        for part in self.parts:
            if part.constant is None:
                value = self.files[part.name].read(index)
                if tuple(value.shape) != part.shape:
                    raise InputError(
                        f"the input {part.name!r} of {self.names[index]} has shape {tuple(value.shape)}, expected "
                        f"{part.shape} as in the first sample"
                    )
                values.append(value[None])
        return join_tensors(values)[0]

    def source(self, index: int) -> Source:
        """Return a sample's name and the files of its inputs."""
        each = [file for held in self.files.values() for file in held.source(index).files]
        return Source(self.names[index], tuple({file.path: file for file in each}.values()))

    @cached_property
    def _first(self) -> Files:
        return next(iter(self.files.values()))


def open_inputs(paths: Sequence[Path], model: Model) -> tuple[Model, Files | SeveralFiles]:
    """Open the samples of a model with one or several inputs.

    Several inputs are npz files with one array for each input, or paths such as image=xray.png and table=row.csv.

    Returns:
        The model, and its samples. With several inputs, both are about their joined vectors.
    """
    names, required = _input_names(model)
    named = _named_paths(paths, names)
    archives = not named and all(path.suffix.lower() == ".npz" for path in paths)
    if len(names) < 2 and not named:
        return model, open_samples(paths, model.preparation)
    if len(names) < 2:
        given = " ".join(f"{name}={path}" for name, each in named.items() for path in each)
        alone = " ".join(str(path) for each in named.values() for path in each)
        raise InputError(f"got {given} for {model.name}, which has one input, expected the files alone: {alone}")
    held = _arrays_of(paths, names) if archives else []
    several = bool(named) or (len(held) > 1 and _match(held, names, required))
    if not several:
        if required < 2:
            return model, open_samples(paths, model.preparation)
        one = f"{paths[0]}" if paths else "no file"
        arrays = f" with the arrays {', '.join(held)}" if held else ""
        wanted = names[:required]
        raise InputError(
            f"got {one}{arrays} for {model.name} of the inputs {', '.join(wanted)}, expected "
            f"{' '.join(f'{name}=FILE' for name in wanted)}, or an npz file with one array for each"
        )
    _check_preparation(model)
    known = {part.name: part.shape for part in model.network.parts} if isinstance(model.network, Graph) else {}
    found = _read_named(named, model, known) if named else _read_archives(paths, held, names, model, known)
    _check_names(list(found), names, required, model)
    return _joined(model, {name: found[name] for name in names if name in found})


def _named_paths(paths: Sequence[Path], names: Sequence[str]) -> dict[str, list[Path]]:
    """Return the paths of each input; empty if the paths have no names."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        name, equals, rest = str(path).partition("=")
        if equals and rest and name and ("/" not in name or name in names) and not path.exists():
            found.setdefault(name, []).append(Path(rest))
    if found and sum(map(len, found.values())) != len(paths):
        bare = next(path for path in paths if not any(str(path).startswith(f"{name}=") for name in found))
        raise InputError(f"got {bare} beside {paths[0] if paths[0] != bare else paths[1]}, expected name=FILE for all")
    return found


def _input_names(model: Model) -> tuple[list[str], int]:
    """Return the names of a model's inputs in their order, and how many of them it needs."""
    if isinstance(model.network, Graph):
        names = [part.name for part in model.network.parts]
        return names, len(names)
    try:
        arguments = inspect.signature(_user_module(model.network).forward).parameters.values()
    except (TypeError, ValueError):  # TorchScript
        return [], 0
    usual = [one for one in arguments if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return [one.name for one in usual], sum(one.default is one.empty for one in usual)


def _user_module(network: nn.Module) -> nn.Module:
    """Return the user's module, without the preparation in front of it."""
    return network.network if isinstance(network, Prepared) else network


def _arrays_of(paths: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Return the names of the arrays in the first npz file that are no labels."""
    check_file(paths[0])
    members = npz_members(paths[0])
    return [name for name in members if name != label_array(members, names)]


def _match(held: Sequence[str], names: Sequence[str], required: int) -> bool:
    """Return whether the arrays of an npz file are meant as inputs: one has the name of an input, or none a name."""
    return bool({*held} & {*names}) or list(held) == _unnamed(len(held)) or required > 1


def _unnamed(count: int) -> list[str]:
    """Return the names that numpy.savez gives to arrays without names."""
    return [f"arr_{k}" for k in range(count)]


def _check_preparation(model: Model) -> None:
    """Refuse settings that change arrays: each input would need its own."""
    prepared = model.preparation
    for name, value in (("mean", prepared.mean), ("std", prepared.std)):
        if value is not None:
            raise InputError(
                f"got the {name} {value} for a model of several inputs, expected none: normalise inside the model, or "
                "before its arrays are saved"
            )
    if prepared.layout != "NCHW":
        raise InputError(f"got the layout {prepared.layout} for a model of several inputs, expected NCHW: save arrays")


def _check_names(given: list[str], names: Sequence[str], required: int, model: Model) -> None:
    strange = next((name for name in given if name not in names), None)
    if strange is not None:
        raise InputError(f"got the input {strange!r}, expected inputs of {model.name}: {', '.join(names)}")
    missing = next((name for name in names[:required] if name not in given), None)
    if missing is not None:
        raise InputError(
            f"got the inputs {', '.join(given)} without {missing!r}, expected all that {model.name} needs: "
            f"{', '.join(names[:required])}"
        )


_Held = Files | Tensor  # the samples of an input, or its constant (1, *shape)


def _read_named(named: _Named, model: Model, known: Mapping[str, tuple[int, ...]]) -> dict[str, _Held]:
    """Open the files of each input by its name."""
    found: dict[str, _Held] = {}
    for name, paths in named.items():
        if not known and len(paths) == 1 and paths[0].suffix.lower() == ".npy":
            check_file(paths[0])
            stored = npy_array(paths[0])
            if _holds_integers(stored):
                found[name] = _constant(name, [(stored, stored.mapped())])
                continue
        found[name] = open_samples(paths, _preparation_of(name, model, known))
    return found


def _read_archives(
    paths: Sequence[Path], held: Sequence[str], names: Sequence[str], model: Model, known: Mapping[str, tuple[int, ...]]
) -> dict[str, _Held]:
    """Open the arrays of npz files: by their names, or in the model's order if numpy.savez got none."""
    of_input = dict(zip(held, names, strict=False)) if list(held) == _unnamed(len(held)) else {}
    files = [npz_members(path) for path in paths]
    for path, members in zip(paths, files, strict=True):
        others = sorted(members.keys() - {label_array(members, names)})
        if others != sorted(held):
            raise FileError(f"{path} holds the arrays {', '.join(others)}, expected {', '.join(held)} as in {paths[0]}")
    found: dict[str, _Held] = {}
    for array in held:
        name = of_input.get(array, array)
        if not known and all(_holds_integers(members[array]) for members in files):
            found[name] = _constant(name, [(members[array], members[array].unpacked()) for members in files])
            continue
        prepared = _preparation_of(name, model, known)
        parts: list[Part] = []
        for members in files:
            label = label_array(members, names)
            parts.append(part_of_array(members[array], prepared, None if label is None else members[label]))
        found[name] = _files(paths, parts)
    return found


def _files(paths: Sequence[Path], parts: Sequence[Part]) -> Files:
    labels = [label for part in parts for label in part.labels or [UNKNOWN] * len(part)]
    names = [
        path.name if part.single else f"{path.name}#{i}"
        for path, part in zip(paths, parts, strict=True)
        for i in range(len(part))
    ]
    twice = next((name for name in names if names.count(name) > 1), None) if len(paths) > 1 else None
    if twice is not None:
        raise InputError(f"got {twice!r} twice among the inputs, expected files of different names")
    classes = None if all(label == UNKNOWN for label in labels) else tuple(labels)
    return Files(tuple(names), classes, tuple(parts), tuple(paths))


def _holds_integers(stored: Stored) -> bool:
    """Return whether an array holds integers. Arrays of type uint8 are pixels."""
    return stored.dtype.kind in "iu" and stored.dtype != np.uint8


def _constant(name: str, arrays: Sequence[tuple[Stored, Array]]) -> Tensor:
    """Return the value (1, *shape) of an input of integers; raise InputError if it differs between samples."""
    rows = np.concatenate([values.reshape(stored.shape) for stored, values in arrays])
    if not rows.ndim or not len(rows) or not bool((rows == rows[:1]).all()):
        raise InputError(
            f"the input {name!r} holds {rows.dtype} with different values for {len(rows)} samples, expected the same "
            "for all: integers are constants of the network, so start the command once for each, with a file of its own"
        )
    return torch.from_numpy(np.array(rows[:1], dtype=np.int64))


def _preparation_of(name: str, model: Model, known: Mapping[str, tuple[int, ...]]) -> Preparation:
    """Return the preparation of the files of one input."""
    base = replace(model.preparation, shape=None)
    return base if name not in known else for_shape(base, known[name])


def _joined(model: Model, found: Mapping[str, _Held]) -> tuple[Model, SeveralFiles]:
    """Return the model of the joined vectors, and their samples."""
    files = {name: held for name, held in found.items() if isinstance(held, Files)}
    if not files:
        raise InputError(f"got only integers for {model.name}, expected an input of floats: integers stay fixed")
    counts = {name: len(held) for name, held in files.items()}
    if len(set(counts.values())) > 1:
        said = " and ".join(f"{count} of {name!r}" for name, count in counts.items())
        raise InputError(f"got {said}, expected as many samples of each input: the first belongs to the first")
    shapes = {name: tuple(held.read(0).shape) for name, held in files.items()}
    parts = tuple(
        InputPart(name, tuple(held.shape[1:]), held) if isinstance(held, Tensor) else InputPart(name, shapes[name])
        for name, held in found.items()
    )
    notes = tuple(dict.fromkeys(note for held in files.values() for note in held.notes))
    return model.joined(parts), SeveralFiles(parts, files, notes)
