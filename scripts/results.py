"""Put the tables and figures of benchmark runs into docs/results.md.

    python scripts/results.py OUT
    python scripts/results.py OUT --stored
    python scripts/results.py OUT --measure NAME --data FOLDER [--device cuda] [--rows LABEL ...]

OUT contains a folder for each benchmark: `proofmap bench NAME --out OUT/NAME` writes it, and for the trials with known
ground truth, `python benchmarks/ground_truth.py --out OUT/ground-truth`. In the page, the text between
`<!-- NAME/FILE -->` and `<!-- end -->` is replaced by that file. Its figures, `results/NAME-FILE.png`, are copied.
Parts without a file in OUT stay unchanged.

--stored makes the tables of docs/results/values again, from the stored value of every sample: means, intervals, marks
and differences. It also compares them with docs/results/draws, the earlier values of one draw of noise. It needs no
data and no model.

--measure measures a table of docs/results/values: rows without values, and metrics whose stored values have other
settings than now, for instance fewer draws. Then it stores the new values. Maps stay in OUT, so that a call that was
interrupted continues. With --rows it measures these rows alone; a row with other draws than most rows has no mark.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # `scripts` is a folder of the repository

DOCS = Path(__file__).parents[1] / "docs"
PAGE_FILE, VALUES, DRAWS = DOCS / "results.md", DOCS / "results" / "values", DOCS / "results" / "draws"
DRAWN = ("deletion", "insertion")  # the metrics whose noise is drawn several times
TRIALS = DOCS / "results" / "ground-truth.npz"  # the values of the trials with known ground truth
_PART = re.compile(r"(<!-- (?P<file>[\w.-]+/[\w.-]+) -->\n)(?:(?!<!--).)*(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"\(results/(?P<name>[\w-]+)-(?P<file>\w+\.png)\)")


def main() -> None:
    """Make what is asked for, and update the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of the benchmark runs")
    parser.add_argument("--stored", action="store_true", help="make the tables again from the stored values")
    parser.add_argument("--measure", metavar="NAME", help="measure this table, where its stored values are old")
    parser.add_argument("--data", type=Path, help="the folder of its data set")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", nargs="+", metavar="LABEL", help="measure these rows alone")
    args = parser.parse_args()
    if args.measure is not None:
        measure(args.measure, args.out, args.data, args.device, args.rows)
    if args.stored:
        for folder in sorted(path for path in VALUES.iterdir() if path.is_dir()):
            from_stored_values(folder.name, args.out)
        compare_draws(args.out)
    fill(args.out)


def from_stored_values(name: str, out: Path) -> None:
    """Write the table of a benchmark into OUT from the stored values."""
    from proofmap.bench.benchmark_file import read
    from scripts.stored_results import stored_table

    shutil.rmtree(out / name, ignore_errors=True)
    shutil.copytree(VALUES / name, out / name)
    stored_table(read(name), out / name)


def compare_draws(out: Path) -> None:
    """Write OUT/draws/changes.md and marks.md: the tables with one draw of noise beside those with several draws."""
    from proofmap.bench.benchmark_file import read, slug
    from proofmap.bench.marks import marks
    from proofmap.metrics import METRICS

    heads = ["table", "metric", "largest change of a mean", "deviation of a sample's difference", "changed marks"]
    lines, changed = [f"| {' | '.join(heads)} |", "| --- | --- | ---: | ---: | ---: |"], []
    for table in sorted(path.stem for path in DRAWS.glob("*.npz")):
        spec = read(table)
        draws = draws_of(table)
        several_draws = [entry for entry in spec.entries if draws[slug(entry.label)] > 1]
        if not several_draws:
            continue
        stored = np.load(DRAWS / f"{table}.npz")
        for name in DRAWN:
            one = {entry.label: stored[f"{slug(entry.label)}/{name}"] for entry in several_draws}
            files = {entry.label: VALUES / table / slug(entry.label) / f"{name}.npy" for entry in several_draws}
            several = {label: np.load(file).astype(np.float64) for label, file in files.items()}
            ends = {label: each.mean() - one[label].mean() for label, each in several.items()}
            largest = max(ends, key=lambda label: abs(ends[label]))
            spread = [float((each - one[label]).std(ddof=1)) for label, each in several.items()]
            higher = METRICS[name].higher_is_better
            before, after = (marks(_same_length(each), higher=higher) for each in (one, several))
            moved = [label for label in before if before[label] != after[label]]
            title, label = spec.title.removeprefix("Table 1, "), METRICS[name].label
            cells = [f"{ends[largest]:+.4f} ({largest})", f"{min(spread):.3f} to {max(spread):.3f}", str(len(moved))]
            lines.append(f"| {title} | {label} | {' | '.join(cells)} |")
            changed += [f"- {title}, {label}, {row}: {_word(before[row])}, now {_word(after[row])}" for row in moved]
    for file, text in (("changes.md", lines), ("marks.md", changed or ["No mark has changed."])):
        (out / "draws").mkdir(parents=True, exist_ok=True)
        (out / "draws" / file).write_text("\n".join(text) + "\n", encoding="utf-8")


def draws_of(table: str) -> dict[str, int]:
    """Return the number of draws of each row of a table, by its folder."""
    found = {}
    for row in sorted(path for path in (VALUES / table).iterdir() if path.is_dir()):
        draws = {json.loads((row / f"{name}.json").read_text())["draws"] for name in DRAWN}
        if len(draws) != 1:
            raise SystemExit(
                f"the metrics of {row} have {sorted(draws)} draws, expected one number: measure the others"
            )
        found[row.name] = int(draws.pop())
    return found


def _same_length(rows: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Return the values of fewer samples with NaN for the others."""
    most = max(map(len, rows.values()))
    return {label: np.pad(each, (0, most - len(each)), constant_values=np.nan) for label, each in rows.items()}


def _word(mark: str) -> str:
    return mark or "no mark"


def measure(name: str, out: Path, data: Path | None, device: str, labels: list[str] | None = None) -> None:
    """Measure what is missing or old in the stored values of a table or of some of its rows, and store it."""
    from proofmap.bench.benchmark_file import read, slug
    from proofmap.bench.benchmark_run import run

    spec = read(name)
    if labels is not None:
        spec = replace(spec, entries=tuple(entry for entry in spec.entries if entry.label in labels), against=())
    for entry in spec.entries:
        source, target = VALUES / name / slug(entry.label), out / name / slug(entry.label)
        if source.exists() and not target.exists():
            shutil.copytree(source, target)
            drop_old_values(target)
    run(spec, out / name, data, device=device)
    for entry in spec.entries:
        target = VALUES / name / slug(entry.label)
        seconds = target / "seconds.json"
        kept = seconds.read_bytes() if seconds.exists() else None  # the times of the first measurement
        shutil.copytree(out / name / slug(entry.label), target, dirs_exist_ok=True, ignore=_is_map)
        if kept is not None:
            seconds.write_bytes(kept)


def drop_old_values(folder: Path) -> None:
    """Delete the values of a row that were measured with other settings than those of the metric now."""
    from proofmap.metrics import METRICS

    for name, kind in METRICS.items():
        file = folder / f"{name}.json"
        if kind.needs_radius or not file.exists():  # with a radius, settings depend on the row
            continue
        if json.loads(file.read_text()) != json.loads(json.dumps(kind().settings())):
            file.unlink()
            (folder / f"{name}.npy").unlink(missing_ok=True)


def _is_map(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name.startswith("maps-")}


def fill(out: Path) -> None:
    """Copy the parts and figures of the page from OUT."""

    def fresh(part: re.Match[str]) -> str:
        file = out / part["file"]
        print(("filled  " if file.exists() else "left    ") + part["file"])
        return f"{part[1]}\n{file.read_text(encoding='utf-8')}\n{part[3]}" if file.exists() else part[0]

    text = _PART.sub(fresh, PAGE_FILE.read_text(encoding="utf-8"))
    PAGE_FILE.write_text(text, encoding="utf-8")
    for figure in _FIGURE.finditer(text):
        source, target = out / figure["name"] / figure["file"], PAGE_FILE.parent / figure[0][1:-1]
        if source.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(source, target)
            print(f"copied  {target.relative_to(PAGE_FILE.parent)}")
    if (out / "ground-truth" / "values.npz").exists():
        shutil.copyfile(out / "ground-truth" / "values.npz", TRIALS)
        print(f"copied  {TRIALS.relative_to(PAGE_FILE.parent)}")


if __name__ == "__main__":
    main()
