"""`run`: explain a data set chunk by chunk into a resumable folder; finished chunks are checked and kept."""

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proofmap.errors import InputError
from proofmap.explainers.origin import Source
from proofmap.runs.audit import find_faults
from proofmap.runs.chunk import Array
from proofmap.runs.manifest import MANIFEST, MASK, ChunkEntry, Manifest, chunk_file
from proofmap.runs.results import Results
from proofmap.runs.run_certificates import check_certifiable, write_certificates
from proofmap.runs.run_job import Job, Setup
from proofmap.runs.totals import Totals, total
from proofmap.runs.worker import ChunkTask, Engine, ExplainedChunk, Failure, Local, attempt, worker_name
from proofmap.runtime.progress_bar import ProgressBar, print_status
from proofmap.sources import Model, Samples
from proofmap.storage.hashing import digest, hash_values
from proofmap.storage.resumable_folder import EventLog, check_same_work, locked, write_piece
from proofmap.verify.objectives import Label

_LOG = logging.getLogger(__name__)


def run(
    samples: Samples,
    model: Model,
    job: Job,
    out: Path,
    *,
    limit: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    engine: Engine | None = None,
    progress: bool = True,
    certified: bool = False,
) -> Totals:
    """Explain every sample, write the results into the folder `out`, and return their totals.

    An interrupted run that is started again with the same arguments completes the missing chunks, with the same bytes.
    A sample that cannot be read or explained is recorded with the reason.

    Args:
        limit: The number of samples, taken after shuffling.
        shuffle: Explain the samples in random order.
        seed: The seed of the shuffling and of methods that sample.
        engine: Where chunks are computed, by default Local().
        progress: Show a progress bar.
        certified: Also write a certificate for every sample, in this process.
    """
    engine = engine or Local()
    engine.check(job)
    order = _order(len(samples), limit, shuffle, seed)
    setup = Setup(model.graph(torch.zeros(1, *shape_of(samples, model))), job, seed)
    setup.check()
    if setup.about_outputs:
        samples = Unlabelled(samples)
    _check_labels(samples, order, setup.classes)
    certified_model = check_certifiable(setup) if certified else None
    about = _about(samples, model, setup, order, {"limit": limit, "shuffle": shuffle, "seed": seed})
    pieces = [order[start : start + job.chunk] for start in range(0, len(order), job.chunk)]
    with locked(out) as log:
        earlier = _earlier_manifest(out, about)
        if setup.packed_mask is not None:
            write_piece(out, MASK, setup.packed_mask)
        wrong = _unusable_chunks(Results(out, earlier), samples, pieces)
        manifest = _start_manifest(out, earlier, wrong, Manifest(about, model=model.source), log, progress)
        todo = [number for number in range(len(pieces)) if number not in manifest.chunks]
        _LOG.info("run into %s begins: %d samples, %d of %d chunks to do", out, len(order), len(todo), len(pieces))
        log.add("start", engine=repr(engine), worker=worker_name(), model=model.name, chunks=len(todo))
        ready = sum(len(pieces[number]) for number in manifest.chunks)
        with ProgressBar(len(order), job.method, show=progress, done=ready) as bar, bar.ahead(job.chunk):
            chunks = (_read_task(samples, setup, number, pieces[number]) for number in todo)
            with closing(engine.explain(setup, chunks)) as stream:
                for done in stream if todo else ():
                    manifest = _store_chunk(out, manifest, done, len(pieces[done.number]))
                    each = [None if took is None else round(took, 4) for took in done.sample_seconds]
                    more: dict[str, Any] = {"samples": each} if each else {}
                    log.add("chunk", number=done.number, seconds=round(done.seconds, 3), worker=done.worker, **more)
                    _LOG.debug("chunk %d took %.2f s on %s", done.number, done.seconds, done.worker)
                    bar.advance(len(pieces[done.number]))
        totals = total(Results.open(out))
        totals.save(out)
        if certified_model is not None:
            known = manifest.certificates
            index = write_certificates(out, samples, certified_model, setup, order, log, index=known, progress=progress)
            replace(manifest, certificates=index).save(out)
        log.add("end")
        _LOG.info("run into %s ends", out)
    return totals


def shape_of(samples: Samples, model: Model) -> tuple[int, ...]:
    """Return the shape of one sample: the shape that the model states, else that of the first readable sample."""
    if model.preparation.shape is not None:
        return model.preparation.shape
    why = ""
    for index in range(len(samples)):
        sample = attempt(partial(samples.read, index))
        if not isinstance(sample, Failure):
            return tuple(sample.shape)
        why = why or sample.reason
    raise InputError(f"none of the {len(samples)} samples can be read, expected at least one: {why}")


def _order(count: int, limit: int | None, shuffle: bool, seed: int) -> list[int]:
    """Return the indices of the samples in the order of the run."""
    if not count:
        raise InputError("got a data set without samples, expected at least one")
    if limit is not None and limit < 1:
        raise InputError(f"got a limit of {limit} samples, expected at least one")
    if seed < 0:
        raise InputError(f"got the seed {seed}, expected a number of at least 0")
    order = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
    return [int(index) for index in order[:limit]]


def _check_labels(samples: Samples, order: Sequence[int], classes: int) -> None:
    """Raise InputError before any work if a label is not a class of the model."""
    labels = samples.labels or ()
    wrong = [index for index in order if labels and labels[index] >= classes]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InputError(
            f"{samples.names[wrong[0]]} has the label {labels[wrong[0]]}{more}, expected classes of the model, 0 to "
            f"{classes - 1}: correct the labels, or give the model that they belong to"
        )


def _about(
    samples: Samples, model: Model, setup: Setup, order: Sequence[int], selection: dict[str, Any]
) -> dict[str, Any]:
    """Return everything that the results depend on, as JSON."""
    names, labels = samples.names, samples.labels
    columns = samples.columns if setup.variables is None else setup.variables
    return {
        **setup.about,
        "model": {**setup.about["model"], "classes": _titles(model, setup)},
        "data": {
            "samples": len(order),
            **selection,
            "columns": None if columns is None else list(columns),
            "names": digest(names[index] for index in order),
            "labels": None if labels is None else digest(str(labels[index]) for index in order),
        },
    }


def _titles(model: Model, setup: Setup) -> list[str] | None:
    """Return the names of the classes, or of the states of a label; None for an output."""
    if isinstance(setup.objective, Label):
        return [f"{setup.objective.text} off", f"{setup.objective.text} on"]
    return None if model.classes is None or setup.about_outputs else list(model.classes)


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Samples without their labels, which are classes and no outputs."""

    samples: Samples
    labels: None = None

    @property
    def names(self) -> Sequence[str]:
        """The name of each sample."""
        return self.samples.names

    @property
    def columns(self) -> Sequence[str] | None:
        """The names of the variables."""
        return self.samples.columns

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> torch.Tensor:
        """Read one sample."""
        return self.samples.read(index)

    def source(self, index: int) -> Source:
        """Return a sample's name and file."""
        return self.samples.source(index)


def _earlier_manifest(out: Path, about: dict[str, Any]) -> Manifest:
    """Return the manifest of an earlier start of this run; raise FileError if the folder has results of another run."""
    earlier = Manifest.load(out) if (out / MANIFEST).exists() else Manifest({})
    if earlier.chunks:
        check_same_work(out, earlier.about, about, "results of another run")
        return earlier
    return Manifest(about)


def _unusable_chunks(results: Results, samples: Samples, pieces: Sequence[Sequence[int]]) -> dict[int, str]:
    """Return the chunks that cannot be used, with reasons: audit faults, and rows of other samples."""
    wrong = {fault.number: fault.why for fault in find_faults(results)}
    names, labels = samples.names, samples.labels
    for number, entry in results.manifest.chunks.items():
        if number in wrong:
            continue
        part, piece = results.part(entry), pieces[number]
        held = [part["index"].tolist(), list(part.texts.names)]
        expected = [list(piece), [names[index] for index in piece]]
        if labels is not None:
            held.append(part["label"].tolist())
            expected.append([labels[index] for index in piece])
        if held != expected:
            wrong[number] = f"{entry.file} holds other samples than chunk {number} of the run"
    return wrong


def _start_manifest(
    out: Path, earlier: Manifest, wrong: dict[int, str], manifest: Manifest, log: EventLog, progress: bool
) -> Manifest:
    """Write and return the manifest with the usable chunks."""
    for number, why in wrong.items():
        log.add("damaged", number=number, why=why)
        if progress:
            print_status(f"chunk {number} is damaged and computed again: {why}")
    whole = {number: entry for number, entry in earlier.chunks.items() if number not in wrong}
    manifest = replace(manifest, chunks=whole, certificates=None if wrong else earlier.certificates)
    manifest.save(out)
    return manifest


def _read_task(samples: Samples, setup: Setup, number: int, piece: Sequence[int]) -> ChunkTask:
    """Read the samples of a chunk, with reasons for those that are unreadable or outside the ball's domain."""
    shape = tuple(setup.graph.input.shape)
    names, labels = samples.names, samples.labels
    arrays: list[Array] = []
    rows: list[int] = []
    reasons: dict[int, str] = {}
    hashes: list[str | None] = []
    for row, index in enumerate(piece):
        x = attempt(partial(_sample, samples, index, shape, setup))
        hashes.append(None if isinstance(x, Failure) else hash_values(torch.from_numpy(x)))
        if isinstance(x, Failure):
            reasons[row] = x.reason
        else:
            rows.append(row)
            arrays.append(x)
    return ChunkTask(
        number=number,
        index=tuple(piece),
        names=tuple(names[index] for index in piece),
        labels=None if labels is None else tuple(labels[index] for index in piece),
        files=tuple(_file(samples, index) for index in piece),
        inputs=tuple(hashes),
        x=np.stack(arrays) if arrays else np.zeros((0, *shape), dtype=np.float32),
        rows=tuple(rows),
        reasons=reasons,
    )


def _file(samples: Samples, index: int) -> str | None:
    """Return the SHA-256 of a sample's file; None if it has no readable file."""
    source = attempt(partial(samples.source, index))
    return source.files[0].sha256 if isinstance(source, Source) and source.files else None


def _sample(samples: Samples, index: int, shape: tuple[int, ...], setup: Setup) -> Array:
    x = samples.read(index)
    if tuple(x.shape) != shape:
        raise InputError(f"the sample has the shape {tuple(x.shape)}, expected {shape}")
    setup.check_values(x[None])
    values: Array = x.numpy()
    return values


def _store_chunk(out: Path, manifest: Manifest, done: ExplainedChunk, samples: int) -> Manifest:
    """Write a chunk, then the manifest that names it. After an interruption in between the chunk is repeated."""
    file = chunk_file(done.number)
    write_piece(out, file, done.content)
    entry = ChunkEntry(file, sha256(done.content).hexdigest(), samples)
    manifest = replace(manifest, chunks={**manifest.chunks, done.number: entry})
    manifest.save(out)
    return manifest
