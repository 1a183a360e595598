"""Random draws depend on the seed and the sample: not on the batch, the other samples or their order."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.explainers import BASELINES, Explainer
from proofmap.explainers.baselines import Baseline
from proofmap.explainers.explainer import Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.graph.classes import margins

CELLS = pm.groups.grid(2)
SETTINGS: dict[str, dict[str, Any]] = {
    "hybrid": {"split": "2", "samples": 6, "attacked": 2},
    "empirical": {"samples": 6},
    "smooth": {"samples": 6},
    "noise": {"samples": 6},
    "blend": {"samples": 6},
    "probable": {"samples": 4000},
    "greedy-as": {"subsets": 6, "step": 0.5, "rounds": 1},
    "greedy-ao": {"subsets": 6, "step": 0.5},
    "rise": {"masks": 20},
    "lime": {"samples": 40},
    "kernel-shap": {"samples": 40},
}
SEEDED = [name for name, kind in BASELINES.items() if "seed" in {f.name for f in fields(kind) if f.init}]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)).double().eval()


def samples() -> Tensor:
    return torch.rand(5, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def maps_of(name: str, norm: float, **settings: Any) -> Callable[[Tensor], Tensor]:
    ball = pm.Ball(0.2, norm=norm, domain=None if norm == 2 else (0.0, 1.0))
    kind = BASELINES[name]
    known = {f.name for f in fields(kind) if f.init}
    settings = {"progress": False, **SETTINGS.get(name, {}), **settings}
    settings = {key: value for key, value in settings.items() if key in known}
    method = pm.explainers.as_attributor(name, network(), ball=ball, groups=CELLS, settings=settings)
    assert isinstance(method, Explainer | Baseline)
    return method.attribute


def test_the_list_is_not_empty() -> None:
    assert {"empirical", "hybrid", "greedy-as", "smooth", "noise", "probable", "rise", "lime"} <= set(SEEDED)


@pytest.mark.parametrize("name", [*SEEDED, "path", "nested"])
def test_maps_are_the_same_for_any_batch(name: str) -> None:
    """Also one sample alone, in another order, and with little memory. Another seed gives other maps."""
    x, norm = samples(), 2.0 if name in ("probable", "empirical") else float("inf")
    whole = maps_of(name, norm)(x)
    little = 1 if name in ("smooth", "path", "nested") else 2**16
    for settings in ({"batch": 1}, {"batch": 2}, {"memory": little}):
        torch.testing.assert_close(maps_of(name, norm, **settings)(x), whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(maps_of(name, norm)(x[3:4]), whole[3:4], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(maps_of(name, norm)(x.flip(0)), whole.flip(0), rtol=1e-9, atol=1e-9)
    if name in {*SEEDED} - {"greedy-as", "greedy-ao", "kernel-shap"}:  # ranks, and all of a few subsets
        assert not torch.allclose(maps_of(name, norm, seed=7)(x), whole)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OnePoint(Explainer):
    """AO at one random point of each ball; `shared`: with draws that go on from batch to batch."""

    guarantee: ClassVar[Guarantee] = "sampled"
    shared: bool = False
    seed: int = 0

    def _measure(self, task: Task) -> Measured:
        delta = task.family.sample(2, task.generator)[1] if self.shared else task.sample(2)[1]
        nominal = margins(task.graph(task.x), task.target)
        kept = [delta, *(delta * (task.mask != group) for group in range(task.family.groups))]
        with torch.no_grad():
            reached = [torch.maximum(margins(task.graph(task.x + step), task.target), nominal) for step in kept]
        return Measured.of(pm.Overlap.estimated(torch.stack(reached, dim=1), nominal, task.target))


def test_the_draws_of_a_task() -> None:
    """`sample` and `seeded` do not depend on the batch; `generator` does, so the test can fail."""
    x, model = samples(), network()

    def scores(**settings: Any) -> Tensor:
        return OnePoint(model, pm.Ball(0.5), groups=CELLS, progress=False, **settings).explain(x).overlap.full

    for batch in (1, 2, 5):
        torch.testing.assert_close(scores(batch=batch, seed=3), scores(seed=3))
    assert not torch.allclose(scores(seed=4), scores(seed=3))
    assert not torch.allclose(scores(batch=1, shared=True), scores(batch=2, shared=True))


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_the_points_of_a_task_lie_in_its_balls(norm: float) -> None:
    seen: list[tuple[Task, Tensor]] = []

    class Seen(OnePoint):
        def _measure(self, task: Task) -> Measured:
            seen.append((task, task.sample(50)))
            return super()._measure(task)

    radii = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])
    Seen(network(), pm.Ball(radii, norm, (0.0, 1.0)), groups=CELLS, batch=3, progress=False).explain(samples())
    for task, delta in seen:
        assert delta.shape == (50, *task.x.shape)
        assert bool(task.family.contains(delta).all())
        reach = delta.flatten(2).norm(norm, dim=2).amax(0)  # (n,)
        torch.testing.assert_close(reach, torch.as_tensor(task.ball.eps).to(reach), rtol=0.25, atol=0.0)
