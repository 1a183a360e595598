"""A report with a finding of every kind, created once for all tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.bench.compare import compare
from proofmap.bench.statistics import Table
from proofmap.explainers import Explanation
from proofmap.report import report
from proofmap.runs import Job, Results, run
from proofmap.sources import open_samples, read_model
from proofmap.verify.overlap import Overlap

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SAMPLES = 12  # samples of the run


def tabular() -> tuple[nn.Module, Explanation]:
    """A small network on 12 columns, and its explanation."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3)).eval()
    return model, pm.EVA(model, pm.Ball(0.1), progress=False).explain(torch.rand(1, 12))


def searched(e: Explanation, gap: float) -> Explanation:
    """Add lower bounds as a search finds them: below each upper bound by the gap, for the ball by a quarter of it."""

    def closer(over: Overlap) -> Overlap:
        lower = torch.maximum(over.frozen - gap, over.nominal[:, None])
        return replace(over, full_lower=over.full - gap / 4, frozen_lower=lower)

    return replace(e, overlap=closer(e.overlap), opposite=None if e.opposite is None else closer(e.opposite))


@pytest.fixture(scope="package")
def findings() -> list[tuple[str, Explanation]]:
    """Proven, open and refuted decisions; targeted, sampled, estimated and other objectives; several of one input."""
    model = pm.zoo.mnist_mlp()
    images, labels = pm.data.digits()
    four = images[labels == 4][:1]
    ball, grid = pm.Ball(0.015, domain=(0.0, 1.0)), pm.groups.grid(7)
    wide = pm.Ball(0.06, domain=(0.0, 1.0))
    return [
        ("digits", pm.EVA(model, ball, progress=False).explain(images[:2])),
        ("wide", pm.EVA(model, wide, groups=grid, progress=False).explain(images[5:7])),
        ("four", pm.EVA(model, ball, groups=grid, progress=False).explain(four)),
        ("nine", pm.TargetedEVA(model, ball, groups=grid, progress=False).explain(four, target=9)),
        ("seen", pm.EmpiricalEVA(model, ball, samples=9, groups=grid, progress=False).explain(four)),
        ("part", pm.HybridEVA(model, ball, split="2", samples=9, groups=grid, progress=False).explain(four)),
        ("mean", pm.EVA(model, ball, groups=grid, objective="mean", progress=False).explain(four)),
        ("likely", pm.ProbableEVA(model, pm.Ball(0.1, norm=2), groups=grid, samples=64, progress=False).explain(four)),
        ("sides", searched(pm.EVA(model, ball, groups=grid, progress=False).explain(images[8:9]), 0.02)),
        ("eight", searched(pm.TargetedEVA(model, ball, groups=grid, progress=False).explain(four, target=8), 0.02)),
        ("auto", pm.EVA(model, pm.Ball("auto", domain=(0.0, 1.0)), groups=grid, progress=False).explain(images[7:8])),
    ]


@pytest.fixture(scope="package")
def table() -> Table:
    images, _ = pm.data.digits()
    return compare(
        pm.zoo.mnist_mlp(), images[:4], ["first-order", "saliency"], ["deletion", "insertion"], progress=False
    )


@pytest.fixture(scope="package")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over digits; one of them contains NaN."""
    here = tmp_path_factory.mktemp("run")
    images, labels = pm.data.digits()
    values = images[:SAMPLES].numpy().copy()
    values[3] = np.nan
    np.savez(here / "digits.npz", images=values, labels=labels[:SAMPLES].numpy())
    model = read_model("zoo:mnist_mlp")
    job = Job(ball=pm.Ball(0.015, domain=(0.0, 1.0)), groups=pm.groups.grid(7))
    run(open_samples([here / "digits.npz"], model.preparation), model, job, here / "digits", progress=False)
    return here / "digits"


@pytest.fixture(scope="package")
def page(
    findings: list[tuple[str, Explanation]], table: Table, ran: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A report with all panels."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    runs = [("run", Results.open(ran))]
    report(out, findings, classes=CLASSES, table=table, model=pm.zoo.mnist_mlp(), runs=runs)
    return out
