"""What a run claims of its samples, written as questions into a folder: what is there already is left as it is.

DIR/claims.json       of which run, and of which groups: nothing else goes on there
DIR/onnx, vnnlib      a network for each explained class, shared by all samples; a question for each claim
DIR/instances.csv     all of them, written last
DIR/log.jsonl         when
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.claims.claim import Claim, Family, Which, asked_groups, form_of
from proofmap.claims.claim_files import LIST, Questions
from proofmap.claims.enclosing_boxes import hull
from proofmap.errors import FileError, InputError
from proofmap.explainers.recorded_ball import stated_ball
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.registry import objective_of
from proofmap.report.two_sided_bounds import checked
from proofmap.runs import Results
from proofmap.runs.manifest import INDEX, differences
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress_bar import Bar
from proofmap.sources import Model, Samples
from proofmap.storage.hashing import hash_values
from proofmap.storage.resumable_folder import inside, keep, keep_once, locked

__all__ = ["Inputs", "RunClaims", "given", "kept"]

Inputs = Callable[[int], Tensor]  # row -> its values (*shape)

_RECORD = "claims.json"
_SAME = 1e-3  # of the overlap at a sample, by which another machine may compute it otherwise


def kept(results: Results) -> Inputs | None:
    """The inputs that lie beside the certificates of a run; None where it has none."""
    if results.manifest.certificates is None:
        return None
    folder = inside(results.folder, INDEX).parent

    def read(row: int) -> Tensor:
        try:
            return torch.from_numpy(np.load(folder / f"{row:06d}.npy", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise FileError(
                f"cannot read {folder / f'{row:06d}.npy'}, the input of {results.samples[row]}: {error}; give --data"
            ) from error

    return read


def given(results: Results, samples: Samples) -> Inputs:
    """The inputs as the user has them; those that are not what was explained are refused by name."""
    index, names, files = results["index"].tolist(), results.samples, results.files
    for row, at in enumerate(index):
        if at >= len(samples) or samples.names[at] != names[row]:
            found = f"{samples.names[at]!r}" if at < len(samples) else f"no sample {at}"
            raise InputError(f"the run explains {names[row]!r}, and --data has {found} there: give what was explained")

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
    """The claims of a run on a model, which has to be the one that was explained."""

    results: Results
    model: Model
    inputs: Inputs
    names: Sequence[str]  # of the files of each row
    which: Which  # groups that are claimed beside B

    def __post_init__(self) -> None:
        """Refuse a run that claims nothing which a box can state, before any work."""
        folder = self.results.folder
        if self.results.guarantee != "certified":
            raise InputError(
                f"{folder} is {self.results.guarantee}, expected a run of certified explanations: nothing else claims "
                "anything"
            )
        hull(self._ball(0.0), torch.zeros(1, 1))

    def write(self, out: Path, progress: bool = True) -> int:
        """Put every question into the folder; return how many there are."""
        about, names, questions = self.results.about, self.results.samples, Questions(self.model)
        record = {"run": dict(about), "groups": self.which}
        graph = self._graph()
        _check_folder(out, record)
        with locked(out) as log, Bar(len(self.results), "claims", show=progress) as bar:
            log.add("start", run=str(self.results.folder))
            keep(out, _RECORD, record)
            for row, x, claims in self._rows(graph):
                for claim in claims:
                    files = questions.files(claim, x, names[row], graph, about["model"]["sha256"])
                    for place, content in files.items():
                        keep_once(out, place, content)
                bar.advance()
            keep(out, LIST, questions.listed)
            log.add("end")
        return len(questions.instances)

    def _graph(self) -> Graph:
        """The network, if it is that of the run."""
        about = self.results.about["model"]
        return checked(self.model.network, torch.zeros(1, *about["shape"]), str(self.results.folder), about["sha256"])

    def _ball(self, eps: float) -> Ball:
        """As it was stated, with a sample's radius."""
        ball = stated_ball({**self.results.about["job"]["ball"], "eps": eps})
        if ball is None:
            raise InputError(
                f"{self.results.folder} does not hold its ball, expected one whose domain is two numbers: explain its "
                "samples with proofmap explain"
            )
        return ball

    @cached_property
    def _explained(self) -> list[str | None]:
        """The SHA-256 of the values of each sample that was explained, where the run recorded it."""
        return self.results.inputs

    def _input(self, row: int) -> Tensor:
        """The values of a sample, which have to be those that were explained."""
        x, expected = self.inputs(row), self._explained[row]
        found = hash_values(x)
        if expected is not None and found != expected:
            raise InputError(
                f"the values of {self.results.samples[row]} have SHA-256 {found}, and the run explains values with "
                f"{expected}: give the data and the options that were explained"
            )
        return x

    def _rows(self, graph: Graph) -> Iterator[tuple[int, Tensor, Iterator[Claim]]]:
        """Every row with its values and its claims; none of a sample that could not be explained."""
        first = 0
        for part in self.results.parts:
            arrays = {name: part[name] for name in ("full", "frozen", "scores", "target", "eps", "nominal", "mask")}
            arrays["mask"] = np.broadcast_to(arrays["mask"], (len(part), *arrays["mask"].shape[1:]))
            for k, explained in enumerate(part.explained.tolist()):
                x = self._input(first + k) if explained else torch.zeros(0)
                held = {name: values[k] for name, values in arrays.items()}
                yield first + k, x, self._claims(first + k, x, held, graph) if explained else iter(())
            first += len(part)

    def _claims(self, row: int, x: Tensor, held: Mapping[str, Any], graph: Graph) -> Iterator[Claim]:
        """Those of one row, of which the run holds so much."""
        job = self.results.about["job"]
        form = form_of(int(held["target"]), objective_of(job["method"], job["settings"]), graph.classes)
        with full_precision(x.device), torch.no_grad():
            values = form.rows @ graph(x[None]).flatten().double()
        at_x, expected = float(values.max()) / form.factor, float(held["nominal"])
        if not abs(at_x - expected) <= _SAME * max(1.0, abs(expected)):
            raise InputError(
                f"{self.results.samples[row]} has the overlap {at_x:g}, and {expected:g} in the run: give the data and "
                "the options that were explained"
            )
        lower, upper = hull(self._ball(float(held["eps"])), x[None])
        tensors = {name: torch.from_numpy(np.array(held[name])) for name in ("mask", "frozen", "scores")}
        family = Family(form, lower[0], upper[0], x, tensors["mask"], float(held["full"]), tensors["frozen"])
        return family.claims(f"{row:06d}-{self.names[row]}", asked_groups(tensors["scores"], self.which))


def _check_folder(out: Path, record: Mapping[str, Any]) -> None:
    """Refuse a folder with the claims of another run, or of other groups."""
    path = out / _RECORD
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        different = differences(earlier, record)
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError) as error:
        raise FileError(f"cannot read {path}: {error}; choose another folder") from error
    if different:
        raise FileError(f"{out} holds claims of another run ({'; '.join(different)}): choose another folder")
