"""Results for other tools: CSV and Parquet as tables with a row a sample, npz and zarr as arrays.

In a table a number is named by what it is: a proven upper bound, a lower bound that samples reached, or an estimate.
Parquet and zarr need the extra `proofmap[export]`. Tables and zarr are written chunk by chunk, however long the run is.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from proofmap.errors import FileError, InputError
from proofmap.registry import objective_of
from proofmap.runs.chunk import ARRAYS, SCORES, WHOLE, Array, widened
from proofmap.storage.csv_cells import cell_of, readable
from proofmap.storage.records import whole
from proofmap.text.wording import bound_name, quantity_name, reached_name

if TYPE_CHECKING:
    from proofmap.runs.results import Results

__all__ = ["FORMATS", "export", "rows"]

_SCORES = {
    "scores": "score_{}",
    "errors": "score_{}_standard_error",
    "score_lower": "score_{}_lower_proven",
    "score_upper": "score_{}_upper_proven",
}


def export(results: Results, out: Path) -> None:
    """Write what a run found, in the format that the name ends in."""
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"got the name {out}, expected one that ends in {', '.join(FORMATS)}")
    if suffix == ".zarr" and out.exists():
        raise FileError(f"{out} is there already, expected a new folder: remove it, or choose another name")
    with whole(out) as beside:
        FORMATS[suffix](results, beside)


def _names(results: Results) -> dict[str, str]:
    """What arrays are called in a table, where that depends on what they are."""
    job = results.about["job"]
    objective = objective_of(job["method"], job["settings"])
    at_input = f"{quantity_name(objective)}_at_input"
    return {
        "full": bound_name(results.guarantee, objective),
        "nominal": f"smoothed_{at_input}_lower_probable" if results.guarantee == "probable" else at_input,
        "frozen": bound_name(results.guarantee, objective, "frozen"),
        "full_lower": reached_name(objective),
        "frozen_lower": reached_name(objective, "frozen"),
        "drop_lower": "drop_lower_proven",
        "drop_upper": "drop_upper_proven",
        "errors": "score_standard_error",
        "score_lower": "score_lower_proven",
        "score_upper": "score_upper_proven",
    }


def _same(results: Results) -> dict[str, str]:
    """What a table repeats in every row, so that none says less than was proven, or more, when it is cut out."""
    ball = results.about["job"]["ball"]
    around = {} if ball is None else {"norm": str(ball["norm"]), "domain": json.dumps(ball["domain"])}
    level = {"level": str(results.about["job"]["settings"]["level"])} if results.guarantee == "probable" else {}
    return {"guarantee": results.guarantee, **level, **around}


def _parts(results: Results) -> Iterator[tuple[list[str], list[str], dict[str, Array]]]:
    """Chunk by chunk: names, reasons ("" where there is none) and arrays, all chunks with the same columns."""
    names = [name for name in results.names if name not in ("mask", "attributions")]
    wide = [name for name in names if name in SCORES or ARRAYS[name][2] == 2]
    groups = {name: max(part[name].shape[1] for part in results.parts) for name in wide}
    for part in results.parts:
        arrays = {name: part[name] for name in names}
        for name, count in groups.items():
            whole = arrays[WHOLE[name]] if name in WHOLE else None
            arrays[name] = widened(arrays[name], count, whole, part.explained)
        failed = part.words.reasons
        reasons = [failed.get(row, "") for row in range(len(part))]
        yield list(part.words.names), reasons, arrays


def _csv(results: Results, out: Path) -> None:
    """A column a number: scores as score_0, score_1 and so on, then their intervals; what is not known is empty.

    Texts are written by `spreadsheet.cell_of`.
    """
    with out.open("x", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        for row in rows(results):
            table.writerow(["" if value != value else cell_of(value) for value in row])


def rows(results: Results) -> Iterator[list[Any]]:
    """The names of the columns, then a row a sample; NaN is what is not known."""
    called, same, files = _names(results), _same(results), iter(results.files)
    for at, (names, reasons, arrays) in enumerate(_parts(results)):
        flat = {called.get(name, name): values for name, values in arrays.items() if values.ndim == 1}
        scores = {head: arrays[name] for name, head in _SCORES.items() if name in arrays}
        if not at:
            numbered = [head.format(k) for head, values in scores.items() for k in range(values.shape[1])]
            yield ["name", "file_sha256", *same, *flat, *numbered, "reason"]
        for row, name in enumerate(names):
            numbers = [values[row].item() for values in flat.values()]
            numbers += [number for values in scores.values() for number in values[row].tolist()]
            yield [name, next(files) or "", *same.values(), *numbers, reasons[row]]


def _parquet(results: Results, out: Path) -> None:
    """Scores and frozen overlaps as lists."""
    arrow, parquet = _pyarrow()
    called, same, files = _names(results), _same(results), iter(results.files)
    writer = None
    try:
        for names, reasons, arrays in _parts(results):
            texts = {"name": [readable(name) for name in names], "file_sha256": list(islice(files, len(names)))}
            texts |= {column: [value] * len(names) for column, value in same.items()}
            columns = {column: arrow.array(values, arrow.string()) for column, values in texts.items()}
            for name, values in arrays.items():
                held = arrow.array(values.ravel())
                columns[called.get(name, name)] = held if values.ndim == 1 else _lists(arrow, held, *values.shape)
            columns["reason"] = arrow.array([readable(reason) or None for reason in reasons], arrow.string())
            table = arrow.table(columns)
            writer = writer or parquet.ParquetWriter(out, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _lists(arrow: Any, values: Any, rows: int, width: int) -> Any:
    ends = arrow.array(np.arange(rows + 1, dtype=np.int32) * width)
    return arrow.ListArray.from_arrays(ends, values)


def _npz(results: Results, out: Path) -> None:
    """All arrays, the names among them; the whole run in memory. full_is: what a table calls the array full."""
    arrays = {name: results[name] for name in results.names if name != "attributions"}
    failed, files = results.reasons, [file or "" for file in results.files]
    reasons = [readable(failed.get(k, "")) for k in range(len(results))]
    texts = {"name": _samples(results), "reason": reasons, "file_sha256": files, **_same(results)}
    texts |= {f"{name}_is": called for name, called in _names(results).items() if name in arrays}
    with out.open("xb") as file:
        np.savez(file, allow_pickle=False, **{name: np.array(text) for name, text in texts.items()}, **arrays)


def _samples(results: Results) -> list[str]:
    return [readable(name) for name in results.samples]


def _zarr(results: Results, out: Path) -> None:
    """A group with the arrays, a chunk for a chunk; names, reasons and what bounds are as attributes."""
    group = _zarr_module().open_group(str(out), mode="w")
    reasons = {str(k): readable(reason) for k, reason in results.reasons.items()}
    group.attrs.update({"name": _samples(results), "reason": reasons})
    group.attrs.update({"file_sha256": results.files, "run": dict(results.about), **_same(results)})
    called = _names(results)
    make = getattr(group, "create_array", None) or group.create_dataset  # zarr 3, zarr 2
    step, start = len(results.parts[0]), 0
    shared = results.about["mask"] is not None
    if shared:
        mask = results["mask"]
        make("mask", shape=mask.shape, chunks=mask.shape, dtype="int32")[...] = mask
    for part, (_, _, arrays) in zip(results.parts, _parts(results), strict=True):
        if not shared:
            arrays["mask"] = part["mask"]
        for name, values in arrays.items():
            if not start:
                whole, piece = (len(results), *values.shape[1:]), (step, *(max(1, side) for side in values.shape[1:]))
                held = make(name, shape=whole, chunks=piece, dtype=values.dtype.name)
                held.attrs.update({"is": called[name]} if name in called else {})
            group[name][start : start + len(part)] = values
        start += len(part)


_Writer: TypeAlias = "Callable[[Results, Path], None]"
FORMATS: Mapping[str, _Writer] = {".csv": _csv, ".parquet": _parquet, ".npz": _npz, ".zarr": _zarr}


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Parquet needs pyarrow, which is not installed: pip install 'proofmap[export]'") from error
    return pyarrow, pyarrow.parquet


def _zarr_module() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise InputError("zarr is not installed: pip install 'proofmap[export]'") from error
    return zarr
