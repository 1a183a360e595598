"""The tables of methods and metrics agree with the classes, and all lists of methods follow the tables."""

import json
import subprocess
import sys
from dataclasses import MISSING, fields

import pytest

from proofmap import metrics
from proofmap.explainers import BASELINES, EVA, Explainer, ProbableEVA
from proofmap.explainers.baselines import Baseline
from proofmap.metrics import METRICS, Metric
from proofmap.registry import COMPARED, EXPLAINER_ENTRIES, EXPLAINERS, METRIC_ENTRIES, READY, ExplainerEntry

every_method = pytest.mark.parametrize("name", EXPLAINER_ENTRIES)


@every_method
def test_the_table_of_explainers_agrees_with_the_classes(name: str) -> None:
    method = EXPLAINER_ENTRIES[name]
    kind = method.kind
    assert issubclass(kind, Explainer if method.ball else Baseline)
    assert method.target == getattr(kind, "signed", False)
    without = [f.name for f in fields(kind) if f.kw_only and f.default is MISSING and f.default_factory is MISSING]
    assert method.needs == tuple(without)
    assert (method.norm == 2) == (kind is ProbableEVA)


def test_no_explainer_is_forgotten() -> None:
    """Every concrete class is in the table."""

    def made(kind: type[Explainer] | type[Baseline]) -> set[type]:
        below = {found for other in kind.__subclasses__() for found in made(other)}
        ours = kind.__module__.startswith("proofmap.")
        return below | ({kind} if ours and not getattr(kind, "__abstractmethods__", None) else set())

    assert made(Explainer) | made(Baseline) == {method.kind for method in EXPLAINER_ENTRIES.values()}
    assert EXPLAINER_ENTRIES["eva"].kind is EVA


@pytest.mark.parametrize("name", METRIC_ENTRIES)
def test_the_table_of_metrics_agrees_with_the_classes(name: str) -> None:
    judge = METRIC_ENTRIES[name]
    assert judge.kind.name == name
    assert judge.maps == (judge.kind.subject not in ("overlap", "reason", "contrast"))


def test_no_metric_is_forgotten() -> None:
    """Every name that the package exports is in the table as well, except the base class and the one for functions."""
    of_package = {kind for kind in vars(metrics).values() if isinstance(kind, type) and issubclass(kind, Metric)}
    assert (
        of_package - {Metric, metrics.FunctionMetric}
        == {judge.kind for judge in METRIC_ENTRIES.values()}
        == set(METRICS.values())
    )


def test_derived_lists() -> None:
    assert [*BASELINES] == [*COMPARED] == [name for name in EXPLAINER_ENTRIES if name != "targeted"]
    assert [*READY] == [name for name in COMPARED if name not in ("hybrid", "probable")]
    assert "probable" in EXPLAINERS
    assert (
        {"eva", "targeted", "first-order"}
        <= {*EXPLAINERS}
        <= {name for name in EXPLAINER_ENTRIES if EXPLAINER_ENTRIES[name].ball}
    )
    assert "hybrid" not in EXPLAINERS


SCRIPT = """
import json
from pathlib import Path
from proofmap import registry as methods

source = Path(methods.__file__).read_text(encoding="utf-8")
line = "        'eva': ".replace("'", chr(34))
assert source.count(line) == 1
source = source.replace(line, "        'mine': ExplainerEntry('methods.eva:EVA', ball=True)," + line)
line = "        'deletion': ".replace("'", chr(34))
assert source.count(line) == 1
more = "        'also mine': MetricEntry('removal.deletion_insertion:Insertion'),"
exec(source.replace(line, more + line), vars(methods))

import proofmap as pm
from proofmap.bench.benchmark_file import MethodEntry
from proofmap.cli import COMMANDS
from proofmap.cli.options import option_bundles as bundles
from proofmap.explainers import BASELINES, as_attributor
from proofmap.metrics import METRICS
from proofmap.runs import Job

x = pm.data.digits()[0][:1]
ball = pm.Ball(0.01)
made = as_attributor("mine", pm.trace(pm.zoo.mnist_mlp(), x), ball=ball)
offered = {
    f"{command.__name__} {option.name}": "mine" in getattr(bundles.metadata(option)[0], "help", "")
    for command in COMMANDS
    for option in bundles.options(command)
    if option.name in ("method", "methods", "metrics")
}
print(json.dumps({
    "baselines": "mine" in BASELINES,
    "by name": type(made).__name__,
    "compare": offered["compare methods"],
    "run": offered["run method"] and Job("mine", ball=ball).method,
    "explain": offered["explain method"] and methods.EXPLAINER_ENTRIES["mine"].kind.__name__,
    "bench": MethodEntry("Mine", "mine", eps=0.1).name,
    "metrics": offered["compare metrics"] and "also mine" in METRICS,
}))
"""


@pytest.mark.slow
def test_an_added_method_appears_everywhere() -> None:
    """In a new process, with one more line in the table."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "baselines": True,
        "by name": "EVA",
        "compare": True,
        "run": "mine",
        "explain": "EVA",
        "bench": "mine",
        "metrics": True,
    }


def test_a_method_is_found_by_its_path() -> None:
    assert ExplainerEntry("methods.eva:EVA").kind is EVA
    with pytest.raises(AttributeError):
        assert ExplainerEntry("methods.eva:Other").kind
