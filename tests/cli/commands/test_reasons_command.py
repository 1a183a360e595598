"""proofmap reasons: the groups that decide, their files, and errors in one sentence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import proofmap as pm
from tests.cli.invoke import answer, called

MODULE = """
import torch

def make():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).eval()
"""
COLUMNS = ("age", "income", "height", "weight", "pulse", "pressure")
ROWS = np.random.default_rng(0).random((3, 6)).astype(np.float32)


@pytest.fixture
def words(tmp_path: Path) -> list[object]:
    (tmp_path / "net.py").write_text(MODULE)
    header = ",".join(COLUMNS) + "\n"
    (tmp_path / "rows.csv").write_text(header + "\n".join(",".join(map(str, row)) for row in ROWS.tolist()) + "\n")
    ball = ["--eps", "0.3", "--domain", "0,1", "--groups", "columns", "--out", tmp_path / "out"]
    return ["reasons", f"{tmp_path / 'net.py'}:make", tmp_path / "rows.csv", *ball]


def expected(order: torch.Tensor | None = None) -> pm.Explanation:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).eval()
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    return pm.Sufficient(model, ball, groups=pm.groups.columns(), order=order, progress=False).explain(
        torch.tensor(ROWS)
    )


def test_a_line_for_each_input_and_its_files(words: list[object], tmp_path: Path) -> None:
    done = called(*words)
    assert done.exit_code == 0, done.output
    e = expected()
    lines = done.stdout.splitlines()
    for k in range(3):
        size = int(e.kept[k].sum())
        assert f"proven: {size} of 6 columns decide" in lines[k].replace("decides", "decide")
        assert "in L∞, values within [0, 1])" in lines[k]
    assert lines[-1] == f"wrote 3 sufficient sets to {tmp_path / 'out'}"
    files = sorted((tmp_path / "out").glob("*.proofmap"))
    again = pm.Explanation.load(files[0])
    assert again.reason is not None
    assert torch.equal(again.kept, e.kept[:1])
    with Image.open(next((tmp_path / "out").glob("*.map.png"))) as picture:
        assert picture.size > (100, 100)


def test_json_has_the_groups_and_the_sentences(words: list[object]) -> None:
    found, e = answer(*words), expected()
    assert (found["method"], len(found["inputs"])) == ("sufficient", 3)
    for k, one in enumerate(found["inputs"]):
        assert one["kept"] == e.kept[k].nonzero().flatten().tolist()
        assert one["necessary"] == e.necessary[k].nonzero().flatten().tolist()
        assert one["undecided"] == []
        assert (one["size"], one["subset_minimal"], one["groups"]) == (len(one["kept"]), True, 6)
        assert one["smallest"] == (one["no_set_smaller_than"] >= one["size"])
        assert one["free_upper_proven"] < one["limit"]
        assert one["where"] == [
            ["age", "income", "height", "weight", "pulse", "pressure"][group] for group in one["kept"]
        ]
        assert one["said"][0].startswith("Of 6 columns, ")
        assert one["seconds"] > 0


def test_groups_are_freed_in_the_order_of_a_method(words: list[object]) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).eval()
    maps = pm.explainers.as_attributor("saliency", model).attribute(torch.tensor(ROWS))
    e = expected(maps)
    found = answer(*words, "--order", "saliency")
    assert [one["kept"] for one in found["inputs"]] == [row.nonzero().flatten().tolist() for row in e.kept]


def test_the_change_of_an_output_stays_below_a_limit(words: list[object]) -> None:
    done = called(*words, "--output", "0", "--within", "0.1", "--unit", "mmHg", "--limit", "1")
    assert done.exit_code == 0, done.output
    assert "output 0 = " in done.stdout
    found = answer(*words, "--output", "0", "--within", "0.1", "--unit", "mmHg", "--limit", "1")["inputs"][0]
    assert found["limit"] == 0.1
    assert found["free_upper_proven"] < 0.1
    assert any("output 0 by 0.1 mmHg or more" in one for one in found["said"])


def test_explain_leads_with_the_set_too(words: list[object]) -> None:
    done = called("explain", *words[1:], "--method", "sufficient", "--limit", "1")
    assert done.exit_code == 0, done.output
    assert "1 of 6 columns decides over the ball" in done.stdout
    assert "undecided: neither proven" not in done.stdout
    record = answer("explain", *words[1:], "--method", "sufficient", "--limit", "1")["inputs"][0]
    assert record["reason"]["kept"] == expected().kept[0].nonzero().flatten().tolist()


def changes(target: int | None = None, sets: int = 1) -> pm.Explanation:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).eval()
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    method = pm.Contrastive(model, ball, groups=pm.groups.columns(), sets=sets, progress=False)
    return method.explain(torch.tensor(ROWS), target)


def test_contrastive_sets_have_lines_files_and_records(words: list[object], tmp_path: Path) -> None:
    done, e = called(*words, "--contrastive"), changes()
    assert done.exit_code == 0, done.output
    assert e.contrast is not None
    assert bool(e.contrast.found.all())
    lines = done.stdout.splitlines()
    for k in range(3):
        size = int(e.contrast.size[k])
        assert f"changing {size} of 6 columns can change the decision to " in lines[k]
        assert "no smaller set can" in lines[k]
    assert lines[-1] == f"wrote 3 contrastive sets to {tmp_path / 'out'}"
    again = pm.Explanation.load(sorted((tmp_path / "out").glob("*.proofmap"))[0])
    assert again.contrast is not None
    assert torch.equal(again.contrast.moved, e.contrast.moved[:1])
    found, several = answer(*words, "--contrastive", "--sets", "2"), changes(sets=2).contrast
    assert found["method"] == "contrastive"
    assert several is not None
    for k, one in enumerate(found["inputs"]):
        own = [groups.nonzero().flatten().tolist() for groups in several.sets[several.owner == k]]
        assert [entry["changed"] for entry in one["sets"]] == own
        assert one["sets"][0]["where"] == [COLUMNS[group] for group in own[0]]
        assert one["sets"][0]["class"] == int(several.reached[k])
        assert (one["smallest"], one["no_set_possible"]) == (True, False)
        assert one["said"][0].startswith("Changing th")


def test_a_contrastive_set_changes_to_a_class(words: list[object]) -> None:
    e = changes(2).contrast
    assert e is not None
    found = answer(*words, "--contrastive", "--to", "2")["inputs"]
    for k, one in enumerate(found):
        assert one["target"] == 2
        assert one["found"] == bool(e.found[k])
        assert {entry["class"] for entry in one["sets"]} <= {2}
        assert one["no_set_possible"] == bool(e.impossible[k])
    line = called("explain", *words[1:], "--method", "contrastive", "--limit", "1").stdout.splitlines()[0]
    assert "can change the decision to" in line
    assert "AO" not in line


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--contrastive", "--eps", "auto"], "within the largest proven radius no set changes the decision"),
        (["--contrastive", "--target", "1"], "got --target with --contrastive, expected the class that the predicted"),
        (["--contrastive", "--order", "eva"], "got --order eva with --contrastive, expected one of them"),
        (["--contrastive", "--to", "mine"], "got --to mine, expected a class number"),
        (["--contrastive", "--output", "0", "--within", "1", "--to", "1"], "got --to with --output, expected one"),
        (["--to", "1"], "got --to without --contrastive, expected both: --contrastive --to 3"),
        (["--sets", "3"], "got --sets without --contrastive, expected both: --contrastive --sets 3"),
        (["--target", "2"], "the decision does not hold at the input itself"),
        (["--eps", "0"], "nothing is left to free: no value of sample 0 can move in the ball"),
        (["--eps", "auto"], "got --eps auto, expected a number: within the largest proven radius every value may move"),
        (["--within", "0.5"], "got --within without --output, expected the output that may change by this"),
        (["--output", "0"], "got --output without --within, expected the change that is allowed: --within 0.5"),
        (["--output", "0", "--within", "1", "--target", "1"], "got --target with --output"),
        (["--output", "0", "--within", "1", "--order", "eva"], "got --order eva with --output"),
        (["--seconds", "0"], "got --seconds 0, expected a number above 0"),
        (["--order", "mine"], "got --order mine, expected one of saliency"),
        (["--bounds", "mine"], "got bounds 'mine', expected names among"),
    ],
)
def test_wrong_input_is_one_sentence(words: list[object], more: list[str], said: str) -> None:
    done = called(*words, *more)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_radius_is_needed(words: list[object]) -> None:
    at = words.index("--eps")
    done = called(*words[:at], *words[at + 2 :])
    assert done.exit_code == 2
    assert "got no --eps, expected the radius of the ball" in done.stderr
