"""Export of results: CSV and Parquet tables with one row per sample; npz and zarr with arrays.

The name of a column states its guarantee: a proven upper bound, a lower bound attained at an input, or an estimate.
Parquet and zarr need the extra `proofmap[export]`. Tables and zarr are written chunk by chunk, to limit the memory.
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
from proofmap.runs.chunk import ARRAYS, FULL_BALL_OF, SCORE_BOUNDS, Array, with_missing_groups
from proofmap.storage.exported_tables import csv_cell, escape_surrogates
from proofmap.storage.records import atomic_path
from proofmap.text.wording import bound_name, quantity_name, reached_name

if TYPE_CHECKING:
    from proofmap.runs.results import Results

_SCORES = {
    "scores": "score_{}",
    "errors": "score_{}_standard_error",
    "score_lower": "score_{}_lower_proven",
    "score_upper": "score_{}_upper_proven",
}


def export(results: Results, out: Path) -> None:
    """Write the results of a run in the format of the suffix of `out`."""
    suffix = out.suffix.lower()
    if suffix not in WRITERS:
        raise InputError(f"got the name {out}, expected one that ends in {', '.join(WRITERS)}")
    if suffix == ".zarr" and out.exists():
        raise FileError(f"{out} is there already, expected a new folder: remove it, or choose another name")
    with atomic_path(out) as beside:
        WRITERS[suffix](results, beside)


def _names(results: Results) -> dict[str, str]:
    """Return the column names that depend on the guarantee and the objective, by array."""
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
        "reason_bound": f"free_{bound_name(results.guarantee, objective)}",
        "reason_limit": f"free_{quantity_name(objective)}_limit",
        "reason_least": "reason_no_set_smaller_than",
        "contrast_least": "contrast_no_set_smaller_than",
        "contrast_counted": "contrast_counted_by_solver",
        "contrast_limit": f"contrast_{quantity_name(objective)}_limit",
        "score_lower": "score_lower_proven",
        "score_upper": "score_upper_proven",
    }


def _same(results: Results) -> dict[str, str]:
    """Return the columns that are equal in every row, so that each row states its guarantee by itself."""
    ball = results.about["job"]["ball"]
    around = {} if ball is None else {"norm": str(ball["norm"]), "domain": json.dumps(ball["domain"])}
    level = {"level": str(results.about["job"]["settings"]["level"])} if results.guarantee == "probable" else {}
    return {"guarantee": results.guarantee, **level, **around}


def _parts(results: Results) -> Iterator[tuple[list[str], list[str], dict[str, Array]]]:
    """Yield names, reasons ("" if explained) and arrays of each chunk, with the same columns in all chunks."""
    names = [name for name in results.names if name not in ("mask", "attributions")]
    wide = [name for name in names if name in SCORE_BOUNDS or (name in ARRAYS and ARRAYS[name][2] == 2)]
    groups = {name: max(part[name].shape[1] for part in results.parts) for name in wide}
    for part in results.parts:
        arrays = {name: part[name] for name in names}
        for name, count in groups.items():
            whole = arrays[FULL_BALL_OF[name]] if name in FULL_BALL_OF else None
            arrays[name] = with_missing_groups(arrays[name], count, whole, part.explained)
        failed = part.texts.reasons
        reasons = [failed.get(row, "") for row in range(len(part))]
        yield list(part.texts.names), reasons, arrays


def _csv(results: Results, out: Path) -> None:
    """Write one number per column: score_0, score_1 and so on, then their intervals; unknown numbers are empty.

    `csv_cell` writes the texts.
    """
    with out.open("x", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        for row in rows(results):
            table.writerow(["" if value != value else csv_cell(value) for value in row])


def rows(results: Results) -> Iterator[list[Any]]:
    """Yield the column names, then one row per sample; unknown numbers are NaN."""
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
    """Write scores and frozen overlaps as lists."""
    arrow, parquet = _pyarrow()
    called, same, files = _names(results), _same(results), iter(results.files)
    writer = None
    try:
        for names, reasons, arrays in _parts(results):
            texts = {
                "name": [escape_surrogates(name) for name in names],
                "file_sha256": list(islice(files, len(names))),
            }
            texts |= {column: [value] * len(names) for column, value in same.items()}
            columns = {column: arrow.array(values, arrow.string()) for column, values in texts.items()}
            for name, values in arrays.items():
                held = arrow.array(values.ravel())
                columns[called.get(name, name)] = held if values.ndim == 1 else _lists(arrow, held, *values.shape)
            columns["reason"] = arrow.array([escape_surrogates(reason) or None for reason in reasons], arrow.string())
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
    """Write all arrays and names, with the whole run in memory. `full_is` is the table's name of the array `full`."""
    arrays = {name: results[name] for name in results.names if name != "attributions"}
    failed, files = results.reasons, [file or "" for file in results.files]
    reasons = [escape_surrogates(failed.get(k, "")) for k in range(len(results))]
    texts = {"name": _samples(results), "reason": reasons, "file_sha256": files, **_same(results)}
    texts |= {f"{name}_is": called for name, called in _names(results).items() if name in arrays}
    with out.open("xb") as file:
        np.savez(file, allow_pickle=False, **{name: np.array(text) for name, text in texts.items()}, **arrays)


def _samples(results: Results) -> list[str]:
    return [escape_surrogates(name) for name in results.samples]


def _zarr(results: Results, out: Path) -> None:
    """Write a group of arrays, with one zarr chunk per chunk; names, reasons and kinds of bounds are attributes."""
    group = _zarr_module().open_group(str(out), mode="w")
    reasons = {str(k): escape_surrogates(reason) for k, reason in results.reasons.items()}
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
WRITERS: Mapping[str, _Writer] = {".csv": _csv, ".parquet": _parquet, ".npz": _npz, ".zarr": _zarr}


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
