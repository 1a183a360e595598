"""LaTeX and per-sample frames of tables."""

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

import proofmap as pm
from proofmap.bench import table_text
from proofmap.bench.marks import Mark
from proofmap.bench.statistics import Column, Table, tabulate
from proofmap.storage.exported_tables import latex_text

LOW, HIGH = Column("deletion", "Deletion", False), Column("f_1", "F_1 at 50%", True)


def table() -> Table:
    noise = np.random.default_rng(0).normal(0.0, 0.01, 40)
    values = {
        "eva": {"deletion": noise - 0.5, "f_1": noise + 0.9},
        "[a] & b_2": {"deletion": noise - 0.5 + 0.001 * noise[::-1], "f_1": np.where(noise > 0, noise, np.nan)},
        "ε \\ {x}": {"deletion": noise + 0.5},
    }
    found = tabulate("", [LOW, HIGH], values, {"eva": 0.5, "[a] & b_2": 12.0, "ε \\ {x}": None})
    return replace(found, model="zoo:mnist_mlp", data="digits\n50%.npz")


def test_latex_has_the_numbers_and_marks_of_the_table() -> None:
    found = table()
    lines = found.to_latex().splitlines()
    begin = lines.index(r"\begin{tabular}{lrrr}")
    assert all(line.startswith("% ") for line in lines[:begin])
    assert lines[0] == "% zoo:mnist_mlp on digits 50%.npz, 40 samples"
    assert lines[begin + 1 :: len(lines)] == [r"\toprule"]
    assert lines[begin + 2] == r" & Deletion $\downarrow$ & F\_1 at 50\% $\uparrow$ & seconds \\"
    assert (lines[begin + 3], lines[-2:]) == (r"\midrule", [r"\bottomrule", r"\end{tabular}"])
    rows = lines[begin + 4 : -2]
    assert len(rows) == 3
    cell = found.rows["eva"]["deletion"]
    low, high = (f"$-${-end:.3f}" for end in (cell.low, cell.high))
    assert rows[0].startswith(rf"eva & $-${-cell.mean:.3f} $\approx$ [{low}, {high}] & \textbf{{0.")
    assert rows[1].startswith(r"{[}a] \& b\_2 & \textbf{$-$0.")
    assert rows[2].startswith(r"$\varepsilon$ \textbackslash{} \{x\} & \underline{0.")
    assert rows[2].endswith(r" & n/a & n/a \\")


def test_every_row_has_a_cell_for_each_column() -> None:
    """The unescaped & separates cells and nothing else, and all braces are closed."""
    for line in table().to_latex().splitlines()[3:]:
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == 3
        bare = re.sub(r"\\[{}]", "", line)
        assert bare.count("{") == bare.count("}")
        assert line.count("$") % 2 == 0


def test_every_mark_has_a_form() -> None:
    assert set(table_text._LATEX) == set(get_args(Mark))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 50% #1 $x$ {y}", r"a\_b \& 50\% \#1 \$x\$ \{y\}"),
        (r"C:\new~^", r"C:\textbackslash{}new\textasciitilde{}\textasciicircum{}"),
        ("<b>|", r"\textless{}b\textgreater{}\textbar{}"),
        ("*star", "{*}star"),
        ("two\nlines", "two lines"),
        ("μFidelity ≤ ∞", r"$\mu$Fidelity $\leq$ $\infty$"),
        ("", ""),
    ],
)
def test_texts_are_escaped(text: str, expected: str) -> None:
    assert latex_text(text) == expected


def test_seconds_keep_their_exponent() -> None:
    assert r"& 1.2e-05 \\" in tabulate("", [LOW], {"a": {"deletion": np.zeros(2)}}, {"a": 0.00001234}).to_latex()


def test_a_frame_with_every_sample() -> None:
    found = table()
    frame = found.sample_frame()
    assert list(frame.columns) == ["method", "metric", "sample", "value"]
    assert len(frame) == 5 * 40
    for (method, metric), part in frame.groupby(["method", "metric"]):
        assert part["sample"].tolist() == list(range(40))
        np.testing.assert_array_equal(part["value"], found.values[method][metric])
    wide = frame.pivot_table(index="sample", columns=["method", "metric"], values="value")
    paired = wide[("eva", "deletion")] - wide[("ε \\ {x}", "deletion")]
    assert paired.mean() == pytest.approx(-1.0)


def test_a_frame_of_a_comparison() -> None:
    x, model = pm.data.digits()[0][:3], pm.zoo.mnist_mlp()
    found = pm.compare(model, x, ["saliency"], ["deletion"], progress=False)
    assert found.sample_frame()["value"].tolist() == found.values["saliency"]["deletion"].tolist()
