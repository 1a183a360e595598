"""Claims of a whole run, written as VNN-LIB properties into a resumable folder.

DIR/claims.json       the run and the groups; a folder accepts the claims of one run only
DIR/onnx, vnnlib      a network for each explained class, shared by all samples; a property for each claim
DIR/instances.csv     the list of all properties, written last
DIR/log.jsonl         the times of the work
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.claims.claim import BoundClaim, ProvenBounds, Which, enclosing_box, form_of, selected_groups
from proofmap.claims.claim_files import LIST, VnnlibFiles
from proofmap.errors import FileError, InputError
from proofmap.explainers.explained_ball import recorded_ball
from proofmap.explainers.statements.explained_inputs import INPUTS
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.registry import objective_of
from proofmap.report.attacked_overlaps import checked
from proofmap.runs import Results
from proofmap.runs.manifest import INDEX, differences
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources import Model, Samples
from proofmap.storage.hashing import hash_values
from proofmap.storage.resumable_folder import locked, path_inside, write_piece, write_piece_once

Inputs = Callable[[int], Tensor]  # returns the values (*shape) of a row

_RECORD_FILE = "claims.json"
_NOMINAL_TOLERANCE = 1e-3  # relative difference of the overlap at a sample that another machine may cause


def stored_inputs(results: Results) -> Inputs | None:
    """Return the inputs that a run stores beside its certificates; None if it has no certificates."""
    if results.manifest.certificates is None:
        return None
    folder = path_inside(results.folder, INDEX).parent

    def read(row: int) -> Tensor:
        try:
            return torch.from_numpy(np.load(folder / f"{row:06d}.npy", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise FileError(
                f"cannot read {folder / f'{row:06d}.npy'}, the input of {results.samples[row]}: {error}; give the "
                "inputs",
                arguments=("data",),
            ) from error

    return read


def verified_inputs(results: Results, samples: Samples) -> Inputs:
    """Return the user's inputs; raise InputError if a name or a file differs from the explained one."""
    index, names, files = results["index"].tolist(), results.samples, results.files
    for row, at in enumerate(index):
        if at >= len(samples) or samples.names[at] != names[row]:
            found = f"{samples.names[at]!r}" if at < len(samples) else f"no sample {at}"
            raise InputError(
                f"the run explains {names[row]!r}, and the given inputs have {found} there: give the inputs that were "
                "explained",
                arguments=("data",),
            )

    def read(row: int) -> Tensor:
        held = samples.source(index[row]).files
        if held and files[row] is not None and held[0].sha256 != files[row]:
            raise InputError(
                f"{names[row]} has SHA-256 {held[0].sha256[:12]}…, and the run explains one with {files[row]:.12}…: "
                "give what was explained"
            )
        return samples.read(index[row])

    return read


@dataclass(frozen=True, eq=False)
class RunClaims:
    """Claims of a run about its model. The given model has to be the explained one."""

    results: Results
    model: Model
    inputs: Inputs
    names: Sequence[str]  # stems of the files of each row
    which: Which  # the groups whose B_u are claimed beside B

    def __post_init__(self) -> None:
        """Raise InputError before any work if the run is not certified, or if its ball is not a box."""
        folder = self.results.folder
        if self.results.guarantee != "certified":
            raise InputError(
                f"{folder} is {self.results.guarantee}, expected a run of certified explanations: nothing else claims "
                "anything"
            )
        enclosing_box(self._recorded_ball(0.0), torch.zeros(1, 1))

    def write(self, out: Path, progress: bool = True) -> int:
        """Write all properties into the folder and return their number."""
        about, names, questions = self.results.about, self.results.samples, VnnlibFiles(self.model)
        record = {"run": dict(about), "groups": self.which}
        graph = self._graph()
        _check_folder(out, record)
        with locked(out) as log, ProgressBar(len(self.results), "claims", show=progress) as bar:
            log.add("start", run=str(self.results.folder))
            write_piece(out, _RECORD_FILE, record)
            for row, x, claims in self._rows(graph):
                for claim in claims:
                    files = questions.files(claim, x, names[row], graph, about["model"]["sha256"])
                    for place, content in files.items():
                        write_piece_once(out, place, content)
                bar.advance()
            write_piece(out, LIST, questions.listed)
            log.add("end")
        return len(questions.instances)

    def _graph(self) -> Graph:
        """Return the network; raise InputError if it is not the network of the run."""
        about = self.results.about["model"]
        x, inputs = torch.zeros(1, *about["shape"]), about.get(INPUTS)
        return checked(self.model.network, x, str(self.results.folder), about["sha256"], inputs)

    def _recorded_ball(self, eps: float) -> Ball:
        """Return the recorded ball with a sample's radius."""
        recorded = self.results.about["job"]["ball"]
        ball = None if INPUTS in recorded else recorded_ball({**recorded, "eps": eps})
        if ball is None:
            raise InputError(
                f"{self.results.folder} does not contain its ball, expected one input and a domain of two numbers: "
                "explain its samples alone, by pm.EVA"
            )
        return ball

    @cached_property
    def _explained(self) -> list[str | None]:
        """The recorded SHA-256 of each explained sample's values, or None."""
        return self.results.inputs

    def _input(self, row: int) -> Tensor:
        """Return the values of a sample; raise InputError if they are not the explained ones."""
        x, expected = self.inputs(row), self._explained[row]
        found = hash_values(x)
        if expected is not None and found != expected:
            raise InputError(
                f"the values of {self.results.samples[row]} have SHA-256 {found}, and the run explains values with "
                f"{expected}: give the data and the options that were explained"
            )
        return x

    def _rows(self, graph: Graph) -> Iterator[tuple[int, Tensor, Iterator[BoundClaim]]]:
        """Yield each row with its values and claims; a sample that could not be explained has no claims."""
        first = 0
        for part in self.results.parts:
            arrays = {name: part[name] for name in ("full", "frozen", "scores", "target", "eps", "nominal", "mask")}
            arrays["mask"] = np.broadcast_to(arrays["mask"], (len(part), *arrays["mask"].shape[1:]))
            for k, explained in enumerate(part.explained.tolist()):
                x = self._input(first + k) if explained else torch.zeros(0)
                held = {name: values[k] for name, values in arrays.items()}
                yield first + k, x, self._claims(first + k, x, held, graph) if explained else iter(())
            first += len(part)

    def _claims(self, row: int, x: Tensor, held: Mapping[str, Any], graph: Graph) -> Iterator[BoundClaim]:
        """Return the claims of one row, from the run's arrays of that row."""
        job = self.results.about["job"]
        form = form_of(int(held["target"]), objective_of(job["method"], job["settings"]), graph.classes)
        with full_precision(x.device), torch.no_grad():
            values = form.rows @ graph(x[None]).flatten().double()
        at_x, expected = float(values.max()) / form.factor, float(held["nominal"])
        if not abs(at_x - expected) <= _NOMINAL_TOLERANCE * max(1.0, abs(expected)):
            raise InputError(
                f"the overlap at {self.results.samples[row]} is {at_x:g}, and the run recorded {expected:g}: give the "
                "data and the options of the run"
            )
        lower, upper = enclosing_box(self._recorded_ball(float(held["eps"])), x[None])
        tensors = {name: torch.from_numpy(np.array(held[name])) for name in ("mask", "frozen", "scores")}
        proven = ProvenBounds(form, lower[0], upper[0], x, tensors["mask"], float(held["full"]), tensors["frozen"])
        return proven.claims(f"{row:06d}-{self.names[row]}", selected_groups(tensors["scores"], self.which))


def _check_folder(out: Path, record: Mapping[str, Any]) -> None:
    """Raise FileError if the folder has claims of another run or of other groups."""
    path = out / _RECORD_FILE
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        different = differences(earlier, record)
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError) as error:
        raise FileError(f"cannot read {path}: {error}; choose another folder") from error
    if different:
        raise FileError(f"{out} holds claims of another run ({'; '.join(different)}): choose another folder")
