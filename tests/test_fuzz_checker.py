"""A share of the campaigns against the checker, the same at every run; and that they see what is broken on purpose."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import run
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from fuzz.checker import dossiers, draws, forgeries, judge, networks, oddities, properties, runtime, steps, wire
from fuzz.checker.campaign import CAMPAIGNS, Tally
from fuzz.checker.makers import SELDOM, USUAL
from fuzz.checker.sketch import Sketch
from fuzz.hunting.draw import Draw, Undrawn
from proofmap.proof import check as checker
from tests.proof.making import npy

SCRIPT = Path(__file__).parents[1] / "scripts" / "fuzz_checker.py"


def tried(name: str, seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(CAMPAIGNS[name](seed))
    return tally


def test_a_seed_draws_the_same_again() -> None:
    for seed in range(20):
        assert draws.drawn(seed) == draws.drawn(seed)


def test_every_operator_and_oddity_is_drawn() -> None:
    files = [draws.drawn(seed) for seed in range(2200)]
    assert {change for file in files for change in file.changes} > {*oddities.ODDITIES, *wire.CHANGES}
    said = " ".join(line for file in files for line in file.described)
    assert all(f'op_type: "{op}"' in said for op in {*USUAL, *SELDOM})


def test_every_change_of_a_certificate_is_drawn() -> None:
    assert {change for seed in range(150) for change in forgeries.forged(seed)[1]} == {*forgeries.CHANGES}


def test_every_change_of_a_property_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    one = properties.base(1)
    monkeypatch.setattr(properties, "base", lambda _: one)  # others take longer to find
    drawn = {change for seed in range(120) for change in properties.forged(seed)[1]}
    assert drawn == {*properties.CHANGES} - {"point_changed"}


def test_no_changed_property_is_accepted_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates that a property holds, and that one is violated."""
    held = [properties.base(number) for number in (0, 1, 2)]
    monkeypatch.setattr(properties, "base", lambda number: held[number % 3])
    tally = tried("properties", range(24))
    assert not tally.findings, "\n".join(map(str, tally.findings))
    assert tally.counts["accepted"] > 0


def test_an_answer_that_is_false_is_seen() -> None:
    """A property that is violated does not hold, and one that holds is not violated at a point of its box."""
    violated, held = properties.base(0), properties.base(1)
    assert "a point of a box is in a case" in properties.lie(violated, holds=True)
    assert not properties.lie(violated, holds=False)
    assert not properties.lie(held, holds=True)
    box = checker.PropertyFile.read(held.x).boxes[0]
    point = np.array([float(low + high) / 2 for low, high in zip(box.lower, box.upper, strict=True)])
    other = replace(held, members=[("point.npy", npy(point))])
    assert "violates nothing" in properties.lie(other, holds=False)


def test_what_the_fields_of_a_file_are_read_as_is_written_again() -> None:
    for seed in range(0, 60, 3):
        data = draws.drawn(seed).data
        assert wire.written(wire.read(data, onnx.ModelProto.DESCRIPTOR)) == data


NETWORKS = range(len(networks.KINDS))
WHOLE = {"files": 100_000, "networks": 10_000, "forgeries": 8_000, "dossiers": 2_000, "properties": 4_000}


def test_no_file_is_read_wrongly() -> None:
    tally = tried("files", range(300))
    assert not tally.findings, "\n".join(map(str, tally.findings))
    assert tally.counts["agreed"] > 40


def test_no_network_that_rounding_fools_is_accepted_wrongly() -> None:
    tally = tried("networks", NETWORKS)
    assert not tally.findings, "\n".join(map(str, tally.findings))
    assert tally.counts["accepted"] > len(NETWORKS) / 2
    assert tally.counts["fooled without rounding"] > 0


def test_every_way_of_computing_is_close_to_the_exact_one() -> None:
    """And onnxruntime computes one of them, nearly."""
    for seed in range(len(networks.KINDS)):
        one = networks.drawn(seed)
        if one.kind in ("dense", "normed", "convolved", "pruned", "scaled"):
            data = steps.write(one.steps, one.shape, Sketch(Draw(seed), 13, one.shape), softmax=False)
            exact = np.array([float(v) for v in steps.exactly(one.steps, one.x)])
            (value,) = runtime.values(runtime.session(data, "as written"), one.x.reshape(1, *one.shape))
            form = np.eye(one.classes)[0]
            for found in (value, steps.computed(one.steps, one.x, form), steps.computed(one.steps, one.x, -form)):
                assert found == pytest.approx(exact, rel=1e-3, abs=1e-3 * np.abs(exact).max())


SLOW = {
    "files": range(300, 900),
    "networks": range(22, 33),
    "forgeries": range(150, 300),
    "dossiers": range(40),
    "properties": range(60, 100),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_nothing_of_more_is_accepted_wrongly(name: str) -> None:
    tally = tried(name, SLOW[name])
    assert not tally.findings, "\n".join(map(str, tally.findings))
    assert tally.counts["accepted"] + tally.counts["agreed"] > 0


@pytest.mark.whole
@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_accepted_wrongly(name: str, tmp_path: Path) -> None:
    """In processes of their own: onnxruntime may crash."""
    command = [sys.executable, str(SCRIPT), name, "--count", str(WHOLE[name]), "--findings", str(tmp_path)]
    done = run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert json.loads(done.stdout.splitlines()[-1])["findings"] == 0


CRASH = """
import os, sys
sys.argv = ["fuzz_checker.py", "files", "--count", "9", "--seed", "1", "--share", "1/2"]
sys.path.insert(0, "scripts")
import fuzz_checker
from fuzz.checker.trial import Trial
fuzz_checker.CAMPAIGNS["files"] = lambda seed: os.abort() if seed == 5 else Trial({"files": 1})
fuzz_checker.main()
"""


@pytest.mark.slow
def test_a_crash_is_a_finding_and_the_campaign_goes_on() -> None:
    done = run([sys.executable, "-c", CRASH], cwd=SCRIPT.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert {**counts, "seconds": 0} == {
        "campaign": "files",
        "first": 1,
        "last": 9,
        "every": 2,
        "seconds": 0,
        "files": 4,
        "crashed": 1,
        "findings": 1,
    }
    assert "seed 5: crashed: the process ends with -6" in done.stdout


# --- what is broken on purpose is seen ---


def seen(words: str, seeds: range) -> bool:
    return any(words in str(finding) for finding in tried("files", seeds).findings)


def broken(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """A reader whose networks are changed before anyone sees them."""
    whole = checker.read_network

    def read(*args: Any) -> checker.Network:
        network = whole(*args)
        change(network)
        return network

    monkeypatch.setattr(checker, "read_network", read)


def test_a_bias_that_is_off_by_a_thousandth_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(network: Any) -> None:
        for node in network.nodes:
            if node.op == "linear":
                node.bias = node.bias + 1e-3

    broken(monkeypatch, moved)
    assert seen("differs", range(60))


def test_a_file_that_does_not_run_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime is given one byte less than the reader."""
    run = runtime.session
    monkeypatch.setattr(runtime, "session", lambda data, level: run(data[:-1], level))
    assert seen("does not run", range(60))


def test_a_softmax_is_compared_by_what_it_says_of_logits() -> None:
    logits = np.array([1.0, -2.0, 0.5])
    p = np.exp(logits) / np.exp(logits).sum()
    ends, margin = (logits - 1e-6, logits + 1e-6), 2.0**-16
    assert not judge.misses(p, *ends, margin)
    assert "ahead" in judge.misses(p[::-1].copy(), *ends, margin)
    assert "further apart" in judge.misses(p**1.01 / (p**1.01).sum(), *ends, margin)
    assert "vanishes" in judge.misses(np.array([1.0, 0, 0]), *ends, margin)
    assert "no probabilities" in judge.misses(logits, *ends, margin)


def test_a_change_that_does_not_fit_leaves_the_draw() -> None:
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], []))
    with pytest.raises(Undrawn):
        oddities.no_attribute(Draw(0), model)


def test_a_bound_over_a_ball_that_is_too_small_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = checker.Prover.derive
    monkeypatch.setattr(checker.Prover, "derive", lambda self, proof: whole(self, proof) - 10.0)
    assert seen("over a ball", range(0, 60, 2))


def test_a_checker_that_believes_everything_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "check", lambda *_: "")
    found = [str(finding) for finding in tried("forgeries", range(150)).findings]
    assert sum("upper ends" in one for one in found) > 5
    assert sum("lower ends" in one for one in found) > 1


def test_a_checker_that_forgets_the_centre_of_an_output_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker.OutputLimit, "measured", lambda self, ends, rows, side=1: ends)
    forgeries.base.cache_clear()
    try:
        found = [str(finding) for finding in tried("forgeries", range(300)).findings]
    finally:
        forgeries.base.cache_clear()
    assert any("upper ends" in one for one in found)


def accepted_lies(
    count: int, first: int = forgeries.STATED, change: forgeries.Change = forgeries.other_sets
) -> Iterator[str]:
    """Yield the first words of all that is false in accepted certificates of other sufficient or contrastive sets."""
    for seed in range(count):
        one = forgeries.base(first + seed % len(forgeries.SETS))
        with suppress(checker.Rejected, Undrawn):
            one = change(Draw("sets", seed), one)
            checker.check(one.proof(), one.model, one.x)
            if lie := forgeries.lie(one):
                yield " ".join(lie.split()[:2])


def test_a_checker_that_believes_sufficient_sets_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets the ball and the groups that a point may move, the value at the point, or the free groups."""
    assert not list(accepted_lies(120))
    forgotten: list[tuple[Any, str, Any, str]] = [
        (checker.Question, "inside", lambda _, points, members: np.ones(len(points), bool), "the point"),
        (checker.Held, "breaks", lambda _, reached, margin=0.0: reached > -np.inf, "the point"),
        (checker.Prover, "derive", lambda prover, proof: np.full((2, 1), -9.0), "the free"),
    ]
    for owner, name, wrong, words in forgotten:
        with monkeypatch.context() as one:
            one.setattr(owner, name, wrong)
            assert words in accepted_lies(240), name


def test_a_checker_that_believes_contrastive_sets_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets the ball and the set of a point, the value at the point, or the number of groups."""
    assert len(forgeries.CONTRASTS) == len(forgeries.SETS)
    which: tuple[int, Any] = (forgeries.FREED, forgeries.other_changes)
    assert not list(accepted_lies(60, *which))
    forgotten: list[tuple[Any, str, Any, str]] = [
        (checker.Question, "inside", lambda _, points, members: np.ones(len(points), bool), "the point"),
        (checker.Held, "breaks", lambda _, reached, margin=0.0: reached > -np.inf, "the point"),
        (checker.Question, "of_few", lambda _, sizes, most=None: sizes.min(0, keepdims=True), "fewer than"),
    ]
    for owner, name, wrong, words in forgotten:
        with monkeypatch.context() as one:
            one.setattr(owner, name, wrong)
            assert words in accepted_lies(60, *which), name


@pytest.mark.slow
def test_a_prover_without_rounding_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds over the reals in the place of those for float32."""
    whole = checker.Prover.derive
    monkeypatch.setattr(checker.Prover, "derive", lambda self, proof: whole(self, proof)[[1, 1]])
    assert "unsound" in {finding.outcome for finding in tried("networks", NETWORKS).findings}


@pytest.mark.slow
def test_a_dossier_whose_tables_are_not_compared_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = checker.derive_members

    def believed(model: str, words: Any, samples: Any, claims: Any, members: dict[str, bytes]) -> dict[str, bytes]:
        return {name: members.get(name, made) for name, made in whole(model, words, samples, claims, members).items()}

    monkeypatch.setattr(checker, "derive_members", believed)
    assert {change for seed in range(60) for change in dossiers.forged(seed)[1]} == {*dossiers.CHANGES}
    found = " ".join(str(finding) for finding in tried("dossiers", range(60)).findings)
    assert "differs, and nothing says" in found or "decisions proven" in found
