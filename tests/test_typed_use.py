"""Typical uses from the documentation: they run, and type checkers accept them in strict mode.

In `make lint`, pyright and mypy check this file. `assert_type` fails if a type checker infers another type.
"""

# pyright: strict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import assert_type

import proofmap as pm
from proofmap import bench
from proofmap.bench import Table
from proofmap.bench.compare import AnyMetric
from proofmap.explainers import Explainer
from proofmap.explainers.explainer import Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.graph.classes import margins
from proofmap.plots.figure_page import Picture
from proofmap.proof.certificate import Certificate
from proofmap.runs import Job, Results, Totals, run
from proofmap.sources import open_samples, read_model

MODEL = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
ROWS: NDArray[np.float32] = np.random.default_rng(0).random((2, 4), dtype=np.float32)
BENCHMARK = """
title = "One method"
data = "mnist"
count = 2
model = "mnist_mlp"
metrics = ["deletion"]

[[method]]
label = "Saliency"
name = "saliency"
"""


@pytest.mark.slow
def test_the_first_lines_of_the_readme(tmp_path: Path) -> None:
    images, labels = pm.data.digits()
    eva = pm.EVA(pm.zoo.mnist_mlp(), pm.Ball(eps=0.015, domain=(0.0, 1.0)), groups=pm.groups.grid(4))
    explanation = eva.explain(images[labels == 4][:2])
    assert_type(explanation, pm.Explanation)
    assert_type(explanation.plot(), Picture)
    explanation.plot().savefig(tmp_path / "fours.png")


def test_figures_in_the_width_of_a_paper(tmp_path: Path) -> None:
    explanation = pm.EVA(MODEL, pm.Ball(0.05)).explain(ROWS)
    explanation.plot(ax=Figure().subplots(1, 2), cmap="cividis", title=["a", "b"], panels="scores")
    with pm.plots.paper(columns=2):
        assert_type(explanation.plot(panels=["scores"]), Picture)
    explanation.summary(title="rows", panels=["samples"]).savefig(tmp_path / "rows.pdf")


@pytest.mark.slow
def test_the_steps_of_the_tutorial(tmp_path: Path) -> None:
    model = pm.zoo.mnist_mlp()
    images, labels = pm.data.digits()
    x = images[labels == 4][:1]
    ball = pm.Ball(eps=0.005, domain=(0.0, 1.0))
    assert_type(pm.overlap(model, x, ball), pm.Overlap)
    assert_type(pm.compare_models(model, model, x, ball), pm.ModelComparison)
    found = pm.radius(model, x, domain=(0.0, 1.0), steps=4)
    assert_type(found, pm.Radius)
    assert_type(found.proven, Tensor)
    cells = pm.groups.grid(2)
    explanation = pm.EVA(model, ball, groups=cells).explain(x)
    exact = pm.EVA(model, ball, groups=cells, bounds=pm.bounds.Exact(seconds=2)).explain(x)
    assert_type(exact.top(1).nonzero()[:, 1], Tensor)
    pm.TargetedEVA(model, ball, groups=cells).explain(x, target=9).plot().savefig(tmp_path / "nine.png")
    assert_type(explanation.certificate(), Certificate)
    assert_type(explanation.certificate().save(tmp_path / "four.proof"), tuple[Path, Path, Path])
    answer = pm.explain(model, x, seconds=0.2, progress=False)
    assert_type(answer, pm.explainers.Answer)
    assert_type(answer.proof, pm.Explanation | None)
    answer.plot().savefig(tmp_path / "answer.png")


def test_bounds() -> None:
    x, ball = torch.rand(2, 4), pm.Ball(eps=0.05, norm=2, domain=(0.0, 1.0))
    bounds = pm.bounds.IBP() & pm.bounds.Forward() & pm.bounds.Backward()
    assert_type(bounds, pm.bounds.Intersection)
    over = pm.overlap(MODEL, x, ball, groups=pm.groups.columns(), bounds=bounds, sharing="one-pass", rigorous=True)
    assert_type(over.full, Tensor)
    assert_type(over.frozen <= 0, Tensor)
    assert_type(over.certified, bool)
    assert_type(over.points, Tensor | None)
    curve = pm.curve(MODEL, ROWS, [0.01, 0.1], domain=(0.0, 1.0), steps=2, progress=False)
    assert_type(curve, pm.OverlapCurve)
    assert_type(curve.upper, Tensor)
    assert_type(curve[0].radius, pm.Radius)
    assert_type(pm.certified_radius(MODEL, ROWS, norm=float("inf"), domain=(0.0, 1.0)), Tensor)
    assert_type(ball.at(x), pm.Family)
    assert_type(pm.trace(MODEL, x), pm.Graph)


def test_explanations(tmp_path: Path) -> None:
    x, ball = torch.rand(2, 4), pm.Ball(0.05, domain=(0.0, 1.0))
    eva = pm.EVA(MODEL, ball, bounds=pm.bounds.named("crown-ibp"))
    explanation = eva.explain(ROWS, target=np.array([0, 1]))
    assert_type(explanation.scores, Tensor)
    assert_type(explanation.intervals, Tensor)
    assert_type(explanation.order(), Tensor)
    assert_type(explanation.overlap, pm.Overlap)
    assert_type(explanation[0], pm.Explanation)
    assert_type([one.method for one in explanation], list[str])
    for part in (
        explanation[[1, 0]],
        explanation[[True, False]],
        explanation[explanation.predicted >= 0],
        explanation[:1],
    ):
        assert_type(part, pm.Explanation)
    assert_type(explanation[np.array([0])], pm.Explanation)
    assert_type(pm.concat([explanation[:1], explanation[1:]]), pm.Explanation)
    assert list(explanation.to_frame().columns)[:2] == ["sample", "group"]
    explanation.save(tmp_path / "rows.proofmap")
    assert_type(pm.Explanation.load(tmp_path / "rows.proofmap"), pm.Explanation)
    assert_type(eva.attribute(x, target=[0, 1], feature_mask=torch.arange(4)[None]), Tensor)
    assert_type(eva.attribute((x,), target=0), tuple[Tensor, ...])


def test_types_of_table_columns(tmp_path: Path) -> None:
    x = torch.rand(3, 4)
    domain = pm.Domain.from_data(x, names=["a", "b", "c", "d"]).including(ROWS)
    assert_type(domain, pm.Domain)
    assert_type(domain.eps(0.1, fixed=["a"]), Tensor)
    ball = pm.Ball(domain.eps(0.1), domain=domain)
    pm.EVA(MODEL, ball, groups=domain.groups).explain(x).summary(columns=domain.names).savefig(tmp_path / "s.png")


def test_methods_and_metrics(tmp_path: Path) -> None:
    x, ball = torch.rand(2, 1, 2, 2), pm.Ball(0.1, domain=(0.0, 1.0))

    def mine(inputs: Tensor, target: Tensor) -> Tensor:
        return inputs * target.view(-1, 1, 1, 1)

    def largest(model: pm.Graph, inputs: Tensor, target: Tensor, attributions: Tensor) -> Tensor:
        return attributions.flatten(1).amax(1) * model(inputs)[:, 0]

    metrics: list[AnyMetric] = ["deletion", largest, pm.metrics.FunctionMetric(largest, title="Largest", higher=False)]
    table = pm.compare(MODEL, x, ["saliency", pm.EVA(MODEL, ball), mine], metrics, ball=ball, progress=False)
    assert_type(table.to_latex(), str)
    assert list(table.sample_frame().columns)[:2] == ["method", "metric"]
    assert_type(table, Table)
    assert_type(table.markdown(), str)
    assert_type(table.values["saliency"]["deletion"], NDArray[np.float64])
    assert list(table.to_frame().columns)[:2] == ["method", "metric"]
    table.plot().savefig(tmp_path / "methods.png")
    attributor = pm.explainers.as_attributor("rise", MODEL, settings={"masks": 8})
    assert_type(attributor, pm.explainers.Attributor)
    maps = attributor.attribute(x)
    assert_type(pm.metrics.Deletion()(MODEL, x, None, maps), Tensor)
    assert_type(pm.metrics.RobustnessSr(steps=2).both(MODEL, x, None, maps), tuple[Tensor, Tensor])


def test_samples_from_a_loader() -> None:
    x, labels, ball = torch.rand(3, 4), torch.tensor([0, 1, 2]), pm.Ball(0.1, domain=(0.0, 1.0))
    loader = DataLoader(TensorDataset(x, labels), batch_size=2)
    eva = pm.EVA(MODEL, ball)
    assert_type(eva.explain(loader, labels), pm.Explanation)
    assert_type(pm.overlap(MODEL, loader, ball), pm.Overlap)
    assert_type(pm.certified_radius(MODEL, loader), Tensor)
    assert_type(pm.compare(MODEL, loader, "saliency", "sparseness", progress=False), Table)
    clamped = pm.explainers.ClampedInputs(eva)
    assert_type(clamped.attribute(x), Tensor)
    assert_type(clamped.attribute((x,)), tuple[Tensor, ...])
    assert_type(
        pm.explainers.explain_func(pm.explainers.as_attributor("saliency", MODEL))(MODEL, ROWS, 0), NDArray[Any]
    )
    assert_type(pm.explainers.explain_func(clamped)(MODEL, ROWS, np.array([0, 1])), NDArray[Any])


def test_a_benchmark(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(BENCHMARK)
    spec = bench.read(tmp_path / "mine.toml")
    assert_type(spec, bench.Spec)
    assert_type(bench.run(spec, tmp_path / "out", quick=True, progress=False), Table)
    assert_type(bench.names(), list[str])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OnePoint(Explainer):
    """A user's own explainer with settings: AO at one point of each ball."""

    guarantee: ClassVar[Guarantee] = "sampled"
    shrink: float = 1.0
    seed: int = 0

    def _measure(self, task: Task) -> Measured:
        assert_type(task.family, pm.Family)
        delta = self.shrink * task.sample(1)[0]
        nominal = margins(task.graph(task.x), task.target)
        kept = [delta, *(delta * (task.mask != group) for group in range(task.family.groups))]
        with torch.no_grad():
            reached = [torch.maximum(margins(task.graph(task.x + step), task.target), nominal) for step in kept]
        return Measured.of(pm.Overlap.estimated(torch.stack(reached, dim=1), nominal, task.target))


def test_a_users_explainer() -> None:
    mine = OnePoint(MODEL, pm.Ball(0.1), groups=pm.groups.columns(), shrink=0.5, seed=3)
    assert_type(mine.seed, int)
    assert_type(mine.explain(ROWS), pm.Explanation)
    explainers: list[pm.explainers.Explainer] = [mine, pm.EVA(MODEL)]
    assert_type([one.seed for one in explainers], list[int | None])
    assert [one.seed for one in explainers] == [3, None]


def test_a_data_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "digits.npz", images=np.zeros((2, 1, 28, 28), np.float32))
    model = read_model("zoo:mnist_mlp")
    samples = open_samples([tmp_path / "digits.npz"], model.preparation)
    job = Job(method="eva", ball=pm.Ball(0.01, domain=(0.0, 1.0)), groups=pm.groups.grid(2))
    assert_type(run(samples, model, job, tmp_path / "out", progress=False), Totals)
    results = Results.open(tmp_path / "out")
    assert_type(results["scores"], NDArray[Any])
    assert_type(results.samples, list[str])
    assert list(results.to_frame().columns)[:1] == ["name"]


def test_errors() -> None:
    with pytest.raises(pm.ProofmapError) as refused:
        pm.overlap(MODEL, torch.zeros(1, 3), pm.Ball(0.1))
    assert_type(refused.value, pm.ProofmapError)
    assert_type(pm.UnsupportedError([("sort", "aten.sort")]).nodes, tuple[tuple[str, str], ...])
