"""Means, intervals and marks of the published tables, derived again from the stored values by numpy and scipy alone.

Nothing here calls the package, except to read which rows a table has. The formulas are those that the page states.
"""

import json
import re
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from proofmap.bench.benchmark_file import read, slug

DOCS = Path(__file__).parents[2] / "docs"
VALUES = DOCS / "results" / "values"
TABLES = sorted(path.name for path in VALUES.iterdir() if path.is_dir())
HIGHER = {"deletion": False, "insertion": True, "mu-fidelity": True, "robustness-sr": False, "tightness": False}
CELL = re.compile(r"(\*\*|<u>)?(-?\d+\.\d{3})(\*\*|</u>)?( ≈)? \[(-?\d+\.\d{3}), (-?\d+\.\d{3})\]")
SIGNS = {("", ""): "", ("**", ""): "best", ("", " ≈"): "tied", ("<u>", ""): "second", ("<u>", " ≈"): "tied second"}
RESAMPLES = 4000
Array = NDArray[np.float64]


def shown(part: str) -> dict[str, list[str]]:
    """Return the cells of each row of a part of the page, by its label."""
    return {first: cells for first, *cells in lines_of(part)}


def lines_of(part: str) -> list[list[str]]:
    """Return the cells of each line below the head of a table of the page."""
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition(f"<!-- {part} -->")[2].partition("<!-- end -->")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return cells[1:]


def without_samples(label: str) -> str:
    return re.sub(r" \(\d+ samples?[^()]*\)$", "", label)


@cache
def stored(table: str, metric: str) -> dict[str, Array]:
    """Return the values of each row, in the order of the table; rows may have fewer samples."""
    files = {entry.label: VALUES / table / slug(entry.label) / f"{metric}.npy" for entry in read(table).entries}
    return {label: np.load(file).astype(np.float64) for label, file in files.items()}


def resampled_ends(values: Array) -> tuple[float, float]:
    """Return the percentiles of resampled means, with draws of our own."""
    drawn = np.random.default_rng(2026).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


@pytest.mark.parametrize("table", TABLES)
def test_intervals(table: str) -> None:
    """From 30 samples on, a bootstrap: equal up to the chance of resampling. Else Student's t: equal in each digit."""
    students = 0
    for at, metric in enumerate(read(table).metrics):
        values = stored(table, metric)
        for label, cells in shown(f"{table}/table.md").items():
            each = values[without_samples(label)]
            found = CELL.search(cells[at])
            assert found is not None, (label, metric)
            assert found[2] == f"{each.mean():.3f}"
            low, high = float(found[5]), float(found[6])
            error = each.std(ddof=1) / np.sqrt(len(each))
            if len(each) < 30:
                students += 1
                assert label.endswith(f"({len(each)} samples, Student's t)")
                ends = stats.t.interval(0.95, len(each) - 1, each.mean(), error)
                assert (found[5], found[6]) == tuple(f"{end:.3f}" for end in ends)
            else:
                ends = resampled_ends(each)
                assert (low, high) == pytest.approx(ends, abs=0.0005 + 0.25 * error), (label, metric)
                assert low < each.mean() + 0.0005
                assert high > each.mean() - 0.0005
    assert (students > 0) == (table in ("table1-cifar10", "table2-vpa"))


def significant(values: dict[str, Array]) -> set[tuple[str, str]]:
    """Return the pairs that differ by two-sided paired t tests on the common samples, with Holm's correction.

    Values within 2^-18 of their size count as equal.
    """
    tested = {}
    for one, other in combinations(values, 2):
        common = min(len(values[one]), len(values[other]))
        a, b = values[one][:common], values[other][:common]
        close = np.abs(a - b) <= 2.0**-18 * np.maximum(np.abs(a), np.abs(b))  # they differ by rounding
        tested[one, other] = float(stats.ttest_1samp(np.where(close, 0.0, a - b), 0.0).pvalue)
    return rejected(tested)


def rejected(tested: dict[tuple[str, str], float]) -> set[tuple[str, str]]:
    """Return the pairs that differ in both orders: the k-th smallest p of m is compared with 5 % / (m + 1 - k)."""
    ordered = sorted((1.0 if np.isnan(p) else p, pair) for pair, p in tested.items())
    pairs = set()
    for k, (p, (one, other)) in enumerate(ordered):
        if p > 0.05 / (len(ordered) - k):
            break
        pairs |= {(one, other), (other, one)}
    return pairs


def expected_marks(values: dict[str, Array], *, higher: bool) -> dict[str, str]:
    """Return the marks of rows (N,), some of which may have fewer samples."""
    differ, sign = significant(values), 1 if higher else -1
    most = max(map(len, values.values()))
    ranked = sorted(
        (label for label in values if len(values[label]) == most), key=lambda row: -sign * values[row].mean()
    )
    best = ranked[0]
    for label in set(values) - set(ranked):  # fewer samples: the best only if it is ahead of the best on its own
        ahead = sign * (values[label] - values[best][: len(values[label])]).mean() > 0
        assert not (ahead and (label, best) in differ)
    return dict.fromkeys(values, "") | in_order(ranked, differ)


def in_order(ranked: list[str], differ: set[tuple[str, str]]) -> dict[str, str]:
    """Return the marks of rows in the order of their merit."""
    best, *others = ranked
    behind = [label for label in others if (best, label) in differ]
    found = dict.fromkeys(others, "tied") | dict.fromkeys(behind, "") | {best: "best"}
    if behind:
        level = [label for label in behind[1:] if (behind[0], label) not in differ]
        found |= dict.fromkeys(level, "tied second") | {behind[0]: "second"}
    return found


@pytest.mark.parametrize("table", TABLES)
def test_marks(table: str) -> None:
    kinds = set()
    for at, metric in enumerate(read(table).metrics):
        every = stored(table, metric)
        draws = {label: draws_of(table, label, metric) for label in every}
        usual = max(draws.values(), key=list(draws.values()).count)
        ranked = {label: each for label, each in every.items() if draws[label] == usual}
        expected = dict.fromkeys(every, "") | expected_marks(ranked, higher=HIGHER[metric])
        for label, cells in shown(f"{table}/table.md").items():
            found = CELL.search(cells[at])
            assert found is not None
            mark = SIGNS[found[1] or "", found[4] or ""]
            assert mark == expected[without_samples(label)], (label, metric)
            kinds.add(mark)
    assert {"best", "second", "tied second", ""} <= kinds or not table.startswith("table1")


@pytest.mark.parametrize("table", ["table1-mnist", "table1-cifar10"])
def test_paired_differences(table: str) -> None:
    """The differences to first-order overlap, with their own intervals."""
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition(f"<!-- {table}/against.md -->")[2].partition("<!-- end -->")[0]
    rival, compared = "", 0
    for line in text.splitlines():
        head = re.match(r"\| ahead of (.*) by \|", line)
        rival = head[1] if head else rival
        if head or not line.startswith("| ") or "---" in line:
            continue
        label, *cells = line.strip("| ").split(" | ")
        for metric, cell in zip(read(table).metrics, cells, strict=True):
            values = stored(table, metric)
            ahead = (1 if HIGHER[metric] else -1) * (values[label] - values[rival])
            mean, low, high = map(float, re.findall(r"-?\d+\.\d{4}", cell))
            error = ahead.std(ddof=1) / np.sqrt(len(ahead))
            assert mean == pytest.approx(ahead.mean(), abs=0.000051)
            assert (low, high) == pytest.approx(resampled_ends(ahead), abs=0.00005 + 0.25 * error)
            compared += 1
    assert compared == 2 * 4 * 4


def draws_of(table: str, label: str, metric: str) -> int:
    draws: int = json.loads((VALUES / table / slug(label) / f"{metric}.json").read_text()).get("draws", 0)
    return draws


def test_one_draw_and_several() -> None:
    """The changes of means and marks from one draw of noise to eight."""
    marks = []
    for title, metric, largest, spread, changed in lines_of("draws/changes.md"):
        table, name = f"table1-{title.partition(',')[0].lower().replace('-', '')}", metric.lower()
        kept = np.load(VALUES.parent / "draws" / f"{table}.npz")
        after = {label: each for label, each in stored(table, name).items() if draws_of(table, label, name) == 8}
        before = {label: kept[f"{slug(label)}/{name}"] for label in after}
        ends = {label: after[label].mean() - before[label].mean() for label in after}
        row = max(ends, key=lambda label: abs(ends[label]))
        assert largest == f"{ends[row]:+.4f} ({row})"
        each = [float(np.std(after[label] - before[label], ddof=1)) for label in after]
        assert spread == f"{min(each):.3f} to {max(each):.3f}"
        old, new = (expected_marks(values, higher=HIGHER[name]) for values in (before, after))
        moved = [label for label in after if old[label] != new[label]]
        assert changed == str(len(moved))
        words = {label: [mark or "no mark" for mark in (old[label], new[label])] for label in moved}
        marks += [f"- {title}, {metric}, {label}: {one}, now {two}" for label, (one, two) in words.items()]
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition("<!-- draws/marks.md -->")[2].partition("<!-- end -->")[0].strip()
    assert text.splitlines() == (marks or ["No mark has changed."])
    with_draws = [
        t
        for t in TABLES
        if t.startswith("table1") and any(draws_of(t, e.label, "deletion") == 8 for e in read(t).entries)
    ]
    assert len(lines_of("draws/changes.md")) == 2 * len(with_draws) > 0


def trials_of(title: str) -> list[str]:
    """Return the trials of a section of the page, from the head of its table."""
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    head = re.search(rf"^### {title}: \d+ trials\n\n\| [^|]*\| (.*) \|$", page, re.MULTILINE)
    assert head is not None
    return head[1].split(" | ")


def mean_ranks_of(trials: list[str]) -> dict[str, list[Array]]:
    """Return the ranks over the metrics of each trial, for the methods with values in all of them."""
    kept = np.load(VALUES.parent / "ground-truth.npz")
    of_trials = [[kept[name].astype(np.float64) for name in kept.files if name.startswith(f"{t}/")] for t in trials]
    whole = np.all([np.isfinite(each).all(axis=1) for metrics in of_trials for each in metrics], axis=0)
    ranks = [np.mean([stats.rankdata(-each[whole], axis=0) for each in metrics], axis=0) for metrics in of_trials]
    rows = [str(label) for label in kept["methods"][whole]]
    return {label: [each[k] for each in ranks] for k, label in enumerate(rows)}


def strata_p(differences: list[Array]) -> float:
    """Return the p value of Welch's test that the sum of the means of independent strata is 0."""
    errors = np.array([each.var(ddof=1) / len(each) for each in differences])
    total = sum(each.mean() for each in differences)
    if not errors.any():
        return float(total == 0)
    freedom = errors.sum() ** 2 / sum(e**2 / (len(d) - 1) for e, d in zip(errors, differences, strict=True))
    return float(2 * stats.t.sf(abs(total) / np.sqrt(errors.sum()), freedom))


def test_marks_of_the_trials_with_known_ground_truth() -> None:
    """Mean ranks, their intervals and their marks: the trials of a section are strata of equal weight."""
    titles = ["By hand", "Tetrominoes, dense", "Tetrominoes, convolutional"]
    sections = {title: trials_of(title) for title in titles}
    sections["All"] = [trial for title in titles for trial in sections[title]]
    page = (DOCS / "results.md").read_text(encoding="utf-8").partition("### Mean ranks")[2].partition("### ")[0]
    rows = {
        without_samples(label): cells
        for label, *cells in (line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| "))
        if len(cells) == 5 and "---" not in cells[0]
    }
    kinds = set()
    for at, trials in enumerate(sections.values()):
        ranks = mean_ranks_of(trials)
        means = {label: float(np.mean([each.mean() for each in of])) for label, of in ranks.items()}
        tested = {
            (one, other): strata_p([a - b for a, b in zip(ranks[one], ranks[other], strict=True)])
            for one, other in combinations(ranks, 2)
        }
        expected = in_order(sorted(means, key=lambda label: means[label]), rejected(tested))
        for label, cells in rows.items():
            if label not in ranks:
                assert cells[at] == "n/a"
                continue
            found = CELL.search(cells[at])
            assert found is not None
            assert found[2] == f"{means[label]:.3f}"
            assert SIGNS[found[1] or "", found[4] or ""] == expected[label], (label, at)
            kinds.add(expected[label])
            error = np.sqrt(sum(each.var(ddof=1) / len(each) for each in ranks[label])) / len(trials)
            assert (float(found[5]), float(found[6])) == pytest.approx(
                (means[label] - 1.96 * error, means[label] + 1.96 * error), abs=0.0006 + 0.25 * error
            )
    assert {"best", "second", ""} <= kinds


@pytest.mark.filterwarnings("ignore:Precision loss occurred")  # differences that are constant up to rounding
@pytest.mark.slow
def test_the_list_of_lost_trials() -> None:
    """A metric of a trial is lost if none of our methods is best or tied with the best."""
    kept = np.load(VALUES.parent / "ground-truth.npz")
    labels = [str(label) for label in kept["methods"]]
    ours = ("eva", "empirical", "smooth", "path", "nested", "noise", "blend", "probable")
    lost = set()
    for name in (file for file in kept.files if "/" in file):
        values = {label: each.astype(np.float64) for label, each in zip(labels, kept[name], strict=True)}
        marks = expected_marks({m: each for m, each in values.items() if np.isfinite(each).all()}, higher=True)
        if not any(marks.get(m) in ("best", "tied") for m in labels if m.partition(",")[0] in ours):
            lost.add(tuple(name.split("/")))
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition("### Where our methods lose")[2].partition("### ")[0]
    named = re.findall(r"^- .*, ([\w-]+), (\w+): ", text, re.MULTILINE)
    assert {(trial, metric.lower()) for trial, metric in named} == lost
    assert f"By {len(lost)} of {len(kept.files) - 1} metrics" in text
