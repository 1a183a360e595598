"""Means, intervals and marks of a table."""

import csv
import io
import sys
from dataclasses import replace
from html.parser import HTMLParser
from math import sqrt

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import stats

from proofmap.bench.marks import Values
from proofmap.bench.statistics import Column, Table, interval, tabulate
from proofmap.errors import InputError

LOW = Column("deletion", "Deletion", higher=False)
HIGH = Column("insertion", "Insertion", higher=True)


def drawn(mean: float, seed: int, count: int = 400) -> Values:
    return mean + 0.1 * np.random.default_rng(seed).standard_normal(count)


def test_the_interval_is_that_of_the_mean() -> None:
    """Many samples of known spread have the interval mean ± 1.96 σ / sqrt(n)."""
    values = drawn(0.5, 1, 500)
    low, high = interval(values)
    half = 1.96 * float(values.std()) / sqrt(500)
    assert low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.05 * half)
    assert interval(values) == (low, high)
    assert interval(values, seed=1) != (low, high)


def test_intervals_cover_as_often_as_they_say() -> None:
    covered = sum(low <= 0.5 <= high for low, high in (interval(drawn(0.5, seed, 100)) for seed in range(200)))
    assert 180 <= covered <= 198


def test_best_second_and_tied() -> None:
    noise = drawn(0.0, 0)
    values = {
        "good": {"deletion": noise + 0.1, "insertion": noise + 0.9},
        "close": {"deletion": noise + 0.1 + 0.01 * drawn(0.0, 1), "insertion": noise + 0.8},
        "bad": {"deletion": noise + 0.5},
    }
    table = tabulate("t", [LOW, HIGH], values, {"good": 1.0, "close": 2.0, "bad": 3.0})
    marks = {method: {name: cell.mark for name, cell in cells.items()} for method, cells in table.rows.items()}
    low = {method: cell["deletion"] for method, cell in marks.items()}
    assert (sorted(low.values()), low["bad"]) == (["best", "second", "tied"], "second")
    assert (marks["good"]["insertion"], marks["close"]["insertion"]) == ("best", "second")
    assert "insertion" not in table.rows["bad"]


def test_paired_differences_remove_common_variation() -> None:
    """The intervals overlap, but all samples agree, so the difference is significant."""
    hard = 10 * drawn(0.0, 3, 50)
    table = tabulate("t", [LOW], {"a": {"deletion": hard}, "b": {"deletion": hard + 0.01}}, {"a": 0.0, "b": 0.0})
    a, b = table.rows["a"]["deletion"], table.rows["b"]["deletion"]
    assert b.low < a.high
    assert (a.mark, b.mark) == ("best", "second")


def test_a_method_with_fewer_samples_is_compared_on_those() -> None:
    rising = np.arange(100.0)
    few = np.where(np.arange(100) < 10, rising - 1, np.nan)
    table = tabulate("t", [LOW], {"all": {"deletion": rising}, "few": {"deletion": few}}, {"all": 0.0, "few": 0.0})
    assert table.rows["few"]["deletion"].count == 10
    assert table.rows["few"]["deletion"].mean == pytest.approx(3.5)
    assert table.rows["few"]["deletion"].mark == "best"
    assert table.rows["all"]["deletion"].mark == "second"


def test_a_method_with_few_samples_is_not_tied_with_the_best() -> None:
    """With ten samples the difference is not significant, but the method is not marked as tied."""
    best, worse = drawn(0.0, 0, 100), drawn(0.5, 1, 100)
    few = np.where(np.arange(100) < 10, drawn(0.4, 2, 100), np.nan)
    values = {"best": {"deletion": best}, "worse": {"deletion": worse}, "few": {"deletion": few}}
    table = tabulate("t", [LOW], values, dict.fromkeys(values, 0.0))
    assert [table.rows[method]["deletion"].mark for method in values] == ["best", "second", ""]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 12, 29])
def test_the_interval_of_few_samples_is_students(count: int) -> None:
    """It is exact for normal samples, from two on. A bootstrap of two covers the mean half as often as stated."""
    values = drawn(0.5, count, count)
    half = stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / sqrt(count)
    assert interval(values) == pytest.approx((values.mean() - half, values.mean() + half), abs=1e-6)
    tries = [interval(drawn(0.5, 100 + seed, count)) for seed in range(300)]
    assert 0.91 <= np.mean([low <= 0.5 <= high for low, high in tries]) <= 0.99


def test_two_samples_have_an_interval_and_marks() -> None:
    """A method that is ahead by the same amount at both is the best; others are tied."""
    values = {"a": {"deletion": np.array([0.1, 0.2])}, "b": {"deletion": np.array([0.6, 0.7])}}
    values["c"] = {"deletion": np.array([0.3, 0.1])}
    table = tabulate("t", [LOW], values, dict.fromkeys(values, 0.0))
    assert [row["deletion"].mark for row in table.rows.values()] == ["best", "second", "tied"]
    assert table.rows["a"]["deletion"].low < -0.4
    assert "| a | **0.150** [-0.485, 0.785] | 0 |" in table.markdown()


def test_one_sample_has_no_interval_and_wins_nothing() -> None:
    table = tabulate("t", [LOW], {"a": {"deletion": np.zeros(1)}, "b": {"deletion": np.ones(1)}}, {"a": 0.0, "b": 0.0})
    assert [row["deletion"].mark for row in table.rows.values()] == ["", ""]
    assert "| a | 0.000 | 0 |" in table.markdown()
    assert "One sample: no intervals and no marks." in str(table)


def test_both_texts_hold_the_same_numbers() -> None:
    values = {"eva": {"deletion": drawn(0.1, 0), "insertion": drawn(0.8, 1)}, "rise": {"deletion": drawn(0.3, 2)}}
    table = tabulate("t", [LOW, HIGH], values, {"eva": 0.5, "rise": 12.0}, paper={"eva": {"deletion": 0.089}})
    lines = table.markdown().splitlines()
    assert lines[0] == "| | Deletion ↓ | Insertion ↑ | seconds |"
    assert "/ 0.089" in lines[2]
    assert "n/a" in lines[3]
    read = list(csv.DictReader(io.StringIO(table.csv())))
    assert [(row["method"], row["metric"]) for row in read] == [
        ("eva", "deletion"),
        ("eva", "insertion"),
        ("rise", "deletion"),
    ]
    cell = table.rows["eva"]["deletion"]
    assert float(read[0]["mean"]) == pytest.approx(cell.mean, rel=1e-5)
    assert f"**{cell.mean:.3f}**" in lines[2]
    assert read[0]["paper"] == "0.089"
    frame = table.to_frame()
    assert list(frame.columns) == list(read[0])
    assert frame["mean"].tolist() == [one.mean for row in table.rows.values() for one in row.values()]
    assert frame["paper"].isna().tolist() == [False, True, True]


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = tabulate("t", [LOW], {"eva": {"deletion": drawn(0.1, 0)}}, {"eva": 0.5})
    with pytest.raises(InputError, match="pandas, which is not installed: pip install 'proofmap\\[export\\]'"):
        table.to_frame()


def test_means_over_other_samples_are_not_ranked() -> None:
    """A method with easy samples alone has the lowest mean, but is no better on these samples."""
    easy, hard = np.full(5, 0.1), np.full(5, 0.9)
    values = {
        "few": {"deletion": np.concatenate([easy, np.full(5, np.nan)])},
        "all": {"deletion": np.concatenate([easy, hard])},
        "worse": {"deletion": np.concatenate([easy + 0.2, hard + 0.05])},
    }
    rows = tabulate("", [Column("deletion", "Deletion", False)], values, dict.fromkeys(values)).rows
    assert {method: cells["deletion"].mark for method, cells in rows.items()} == {
        "few": "",
        "all": "best",
        "worse": "second",
    }


def shown() -> Table:
    noise = drawn(0.0, 0)
    values = {
        "eva": {"deletion": noise + 0.1, "insertion": noise + 0.9},
        "a|b": {"deletion": noise + 0.1 + 0.01 * drawn(0.0, 1), "insertion": noise + 0.8},
        "<b onload=x>": {"deletion": noise + 0.5},
    }
    found = tabulate("", [LOW, HIGH], values, {"eva": 0.5, "a|b": 12.0, "<b onload=x>": None})
    return replace(found, model="zoo:mnist_mlp", data="<digits>.npz")


def test_a_terminal_sees_columns_and_words() -> None:
    """The text has no markup, aligned columns and a legend."""
    head, columns, words = str(shown()).split("\n\n")
    columns, *rows = columns.splitlines()
    legend = " ".join(words.split())
    assert head == "zoo:mnist_mlp on <digits>.npz, 400 samples"
    assert columns.split() == ["Deletion", "↓", "Insertion", "↑", "seconds"]
    assert [row.split()[0] for row in rows] == ["eva", "a|b", "<b"]
    assert len({len(line) for line in (columns, *rows)}) == 1
    assert rows[0].endswith("] best        0.5")
    assert "] ≈ " in rows[0]
    assert "] best " in rows[1]
    assert "] second " in rows[1]
    assert rows[2].split()[-2:] == ["n/a", "n/a"]
    assert not any(sign in str(shown()) for sign in ("**", "<u>", "---"))
    for word in (
        "Mean over samples",
        "95 % interval",
        "≈",
        "not significantly different from the best",
        "↓: lower is better",
        "seconds",
    ):
        assert word in legend
    assert repr(shown()) == str(shown())


def test_a_label_cannot_break_the_markdown() -> None:
    lines = shown().markdown().splitlines()
    assert {line.replace("\\|", "").count("|") for line in lines} == {5}
    assert "&lt;b onload=x&gt;" in lines[-1]


class Reader(HTMLParser):
    """A parser that collects the tags of a page and the text of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Attributes have no script in them."""
        assert not any(name.startswith("on") for name, _ in attrs)
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Tags end in the order in which they began."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text as it is read."""
        self.text.append(data)


def test_a_notebook_sees_a_table() -> None:
    """The HTML is complete, and names are escaped."""
    page = Reader(shown()._repr_html_())
    assert page.open == []
    assert set(page.tags) == {"table", "caption", "thead", "tbody", "tr", "th", "td", "b", "u", "div", "p"}
    assert (page.tags.count("b"), page.tags.count("u")) == (2, 2)
    assert page.tags.count("tr") == 4
    assert "<b onload=x>" in page.text
    assert "zoo:mnist_mlp on <digits>.npz, 400 samples" in page.text
    assert any("not significantly different from the best" in text for text in page.text)


def test_a_table_is_drawn() -> None:
    """Each metric has a panel, dollar signs are plain text, and one sample is a point."""
    figure = shown().plot()
    assert [axes.get_title() for axes in figure.axes] == ["Deletion ↓", "Insertion ↑"]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["eva", "a|b", "<b onload=x>"]
    assert figure.get_suptitle() == "zoo:mnist_mlp on <digits>.npz, 400 samples"
    assert figure._repr_png_().startswith(b"\x89PNG")
    one = tabulate("", [LOW], {"$a$": {"deletion": np.ones(1)}}, {"$a$": 1.0}).plot()
    assert one._repr_png_().startswith(b"\x89PNG")


def test_a_table_is_drawn_into_given_axes() -> None:
    """The panels are metrics, in the given order, and a colour map gives the two colours."""
    figure = Figure()
    panels = figure.subplots(1, 2)
    assert shown().plot(ax=panels, panels=["insertion", "deletion"], title=["a", "b"]) is figure
    assert [panel.get_title() for panel in panels] == ["a", "b"]
    assert [tick.get_text() for tick in panels[1].get_yticklabels()] == ["", "", ""]
    whole = shown().plot(panels="deletion", cmap="viridis", title="mine")
    assert [axes.get_title() for axes in whole.axes] == ["Deletion ↓"]
    assert whole.get_suptitle() == "mine"
    used = {to_hex(line.get_color()) for line in whole.axes[0].lines}
    assert used <= {to_hex(colormaps["viridis"](place)) for place in (0.2, 0.75)} | {"#777777"}


def test_the_heading_says_what_is_known() -> None:
    table = shown()
    assert replace(table, title="Table 1").heading() == "Table 1: zoo:mnist_mlp on <digits>.npz, 400 samples"
    assert replace(table, data="").heading() == "zoo:mnist_mlp, 400 samples"
    assert replace(table, model="").heading() == "<digits>.npz, 400 samples"
    assert tabulate("", [LOW], {"a": {"deletion": np.ones(1)}}, {"a": 1.0}).heading() == "1 sample"
