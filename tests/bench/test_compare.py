"""pm.compare: methods, metrics, labels and seconds."""

from typing import Any

import numpy as np
import pytest
import torch
from captum import attr
from torch import Tensor, nn

import proofmap as pm
from proofmap.bench.compare import compare
from proofmap.errors import InputError
from proofmap.explainers.attribution.adapt import AnyMethod
from proofmap.metrics import Deletion, Insertion, Metric, Stability, Tightness
from tests.bench.clock import Clock

BALL = pm.Ball(0.015, domain=(0.0, 1.0))


def digits(count: int = 6) -> Tensor:
    return pm.data.digits()[0][:count]


def test_names_make_a_table() -> None:
    x = digits()
    table = compare(
        pm.zoo.mnist_mlp(), x, ["eva", "saliency", "first-order"], ["deletion", "insertion"], ball=BALL, progress=False
    )
    assert list(table.rows) == ["eva", "saliency", "first-order"]
    assert all(len(values) == len(x) for values in table.values["eva"].values())
    assert table.markdown().startswith("| | Deletion ↓ | Insertion ↑ | seconds |")
    assert str(table).startswith("Sequential, 6 samples\n")
    maps = pm.EVA(pm.zoo.mnist_mlp(), BALL).attribute(x)
    expected = Deletion()(pm.zoo.mnist_mlp(), x, None, maps)
    torch.testing.assert_close(torch.from_numpy(table.values["eva"]["deletion"]), expected.double())


def test_the_opposite_of_a_map_is_worse() -> None:
    """EVA is significantly better than its reversed map on both metrics."""
    x, model = digits(20), pm.zoo.mnist_mlp()
    maps = pm.EVA(model, BALL).attribute(x)
    table = compare(model, x, {"map": maps, "reverse": -maps}, [Deletion(), Insertion()], progress=False)
    assert {cell.mark for cell in table.rows["map"].values()} == {"best"}
    assert {cell.mark for cell in table.rows["reverse"].values()} == {"second"}


def test_functions_and_metrics_of_other_subjects() -> None:
    x, model = digits(2), pm.zoo.mnist_mlp()

    def constant(z: Tensor, target: Tensor) -> Tensor:
        return torch.ones_like(z)

    eva = pm.EVA(model, BALL, groups=pm.groups.grid(4), progress=False)
    methods: dict[str, AnyMethod] = {"constant": constant, "eva": eva}
    metrics: list[Metric[Any]] = [Stability(0.05, samples=3, domain=(0.0, 1.0)), Tightness(BALL)]
    table = compare(model, x, methods, metrics, progress=False)
    assert table.values["constant"]["stability"].tolist() == [0.0, 0.0]
    assert "tightness" not in table.values["constant"]
    full = pm.overlap(model, x, BALL).full
    torch.testing.assert_close(torch.from_numpy(table.values["eva"]["tightness"]).float(), full, rtol=1e-4, atol=1e-4)


def test_stability_by_name_does_not_depend_on_the_scale_of_a_map() -> None:
    """It is relative to the norm of the map. Stability itself grows with the scale, and is not ranked."""
    x, model = digits(3), pm.zoo.mnist_mlp()
    first_order = pm.explainers.FirstOrder(model, BALL, progress=False)

    def smaller(z: Tensor, target: Tensor) -> Tensor:
        return first_order.attribute(z, target=target) / 100

    methods: dict[str, AnyMethod] = {"map": first_order, "smaller": smaller}
    table = compare(model, x, methods, ["stability"], ball=BALL, progress=False)
    np.testing.assert_allclose(table.values["map"]["stability"], table.values["smaller"]["stability"], rtol=1e-4)
    assert table.columns[0].settings["relative"] is True
    assert {row["stability"].mark for row in table.rows.values()} == {"best", "tied"}
    raw = compare(model, x, methods, [Stability(0.015, domain=(0.0, 1.0))], progress=False)
    np.testing.assert_allclose(raw.values["map"]["stability"], 100 * raw.values["smaller"]["stability"], rtol=1e-4)
    assert not raw.columns[0].ranked
    assert {row["stability"].mark for row in raw.rows.values()} == {""}
    assert "Stability has no marks, because it grows with the scale of a map" in raw.legend()


def test_the_seed_is_that_of_the_whole_comparison() -> None:
    """It is the seed of methods and metrics given by name, and of the intervals. Objects keep theirs."""
    x, model = digits(2), pm.zoo.mnist_mlp()
    methods: dict[str, AnyMethod] = {"drawn": "smoothgrad", "own": pm.explainers.as_attributor("smoothgrad", model)}
    metrics: list[str | Metric[Any]] = ["deletion", Insertion(steps=10, draws=2)]
    tables = [compare(model, x, methods, metrics, seed=seed, progress=False) for seed in (0, 0, 1)]
    by_name, own = (column.name for column in tables[0].columns)
    for method in methods:
        for name in (by_name, own):
            assert tables[0].values[method][name].tolist() == tables[1].values[method][name].tolist()
        assert tables[0].values[method][by_name].tolist() != tables[2].values[method][by_name].tolist()
    assert tables[0].values["drawn"][own].tolist() != tables[2].values["drawn"][own].tolist()  # the maps are others
    assert tables[0].values["own"][own].tolist() == tables[2].values["own"][own].tolist()
    settings = [{column.name: column.settings["seed"] for column in table.columns} for table in (tables[0], tables[2])]
    assert settings == [{by_name: 0, own: 0}, {by_name: 1, own: 0}]
    assert [table.seed for table in tables] == [0, 0, 1]


def test_metrics_of_one_name_have_distinct_labels() -> None:
    """Labels contain the presets or the differing settings, and each column has its own values."""
    x, model = digits(2), pm.zoo.mnist_mlp()
    maps = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    metrics: list[Metric[Any]] = [Deletion(), Deletion("xplique"), Insertion(), Deletion("quantus")]
    table = compare(model, x, {"map": maps}, metrics, progress=False)
    labels = ["Deletion (paper)", "Deletion (xplique)", "Insertion", "Deletion (quantus)"]
    assert [column.label for column in table.columns] == labels
    assert len({column.name for column in table.columns}) == 4
    for column, metric in zip(table.columns, metrics, strict=True):
        expected = metric(model, x, None, maps).double()
        torch.testing.assert_close(torch.from_numpy(table.values["map"][column.name]), expected)
    more: list[str | Metric[Any]] = ["deletion", Deletion(steps=7), Deletion("xplique")]
    table = compare(model, x, {"map": maps}, more, progress=False)
    assert table.columns[1].label.startswith("Deletion (preset paper, baseline Uniform(low=0.0, high=1.0), steps 7, ")
    assert len({column.label for column in table.columns}) == 3
    for same in (Deletion(), "deletion"):
        with pytest.raises(InputError, match="got the metric 'deletion' twice with the same settings, expected"):
            compare(model, x, {"map": maps}, [same, "deletion"])


def test_the_table_has_the_settings_of_its_metrics() -> None:
    x, model = digits(1), pm.zoo.mnist_mlp()
    metric = Deletion("xplique", steps=3, seed=7)
    (column,) = compare(model, x, ["saliency"], [metric], progress=False).columns
    assert column.settings == metric.settings()


def test_only_proven_overlaps_have_a_tightness() -> None:
    """Bounds that are sampled, linearised, of another objective or towards one class have no value."""
    x, model = digits(2), pm.zoo.mnist_mlp()
    methods: dict[str, AnyMethod] = {
        "eva": pm.EVA(model, BALL, progress=False),
        "apart": pm.EVA(model, BALL, objective="apart", sharing="one-pass", progress=False),
        "class": pm.EVA(model, BALL, objective="class", progress=False),
        "mean": pm.EVA(model, BALL, objective="mean", progress=False),
        "first-order": pm.explainers.FirstOrder(model, BALL, progress=False),
        "empirical": pm.EmpiricalEVA(model, BALL, samples=2, groups=pm.groups.grid(2), progress=False),
    }
    table = compare(model, x, methods, [Tightness(BALL)], target=3, progress=False)
    assert [label for label, row in table.rows.items() if "tightness" in row] == ["eva", "apart"]
    assert str(table).count("n/a") == 4


def test_the_default_domain_is_the_range_of_x() -> None:
    """Digits have black and white pixels, so the default domain is [0, 1]."""
    x, model = digits(2), pm.zoo.mnist_mlp()
    table = compare(model, x, ["eva"], ["deletion"], progress=False)
    stated = compare(model, x, ["eva"], ["deletion"], ball=pm.Ball("auto", domain=(0.0, 1.0)), progress=False)
    assert table.values["eva"]["deletion"].tolist() == stated.values["eva"]["deletion"].tolist()
    assert list(compare(model, torch.full_like(x, 0.5), ["saliency"], progress=False).rows) == ["saliency"]


def test_a_name_alone_is_one_method_or_metric() -> None:
    table = compare(pm.zoo.mnist_mlp(), digits(1), "saliency", "insertion", progress=False)
    assert {label: list(row) for label, row in table.rows.items()} == {"saliency": ["insertion"]}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("count", [1, 3])
def test_seconds_do_not_depend_on_the_order_of_methods(
    order: tuple[str, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call, which loads more, is not counted."""
    clock = Clock()
    clock.rule(monkeypatch)
    slow = {"a": clock.map_after(1.0), "b": clock.map_after(2.0)}
    x, model = digits(count), pm.zoo.mnist_mlp()
    assert compare(model, x, {label: slow[label] for label in order}, progress=False).seconds == {"a": 1.0, "b": 2.0}


def test_methods_without_a_label_get_their_name() -> None:
    """Objects are named by their class, functions by their name, and equal names are numbered."""
    x, model = digits(1), pm.zoo.mnist_mlp()

    def constant(z: Tensor, target: Tensor) -> Tensor:
        return torch.ones_like(z)

    eva = pm.EVA(model, BALL, groups=pm.groups.grid(2), progress=False)
    first, second = attr.Saliency(model), attr.Saliency(model)
    methods = ["saliency", first, constant, attr.InputXGradient(model), eva, second, x.clone(), np.ones(x.shape)]
    table = compare(model, x, methods, progress=False)
    labels = ["saliency", "Saliency 1", "constant", "InputXGradient", "EVA", "Saliency 2", "map 1", "map 2"]
    assert list(table.rows) == labels
    assert table.values["Saliency 1"]["deletion"] == table.values["saliency"]["deletion"]
    assert list(compare(model, x, first, progress=False).rows) == ["Saliency"]
    assert list(compare(model, x, lambda z, target: z, progress=False).rows) == ["function"]


def test_incomparable_methods_are_refused() -> None:
    x, model = digits(1), pm.zoo.mnist_mlp()
    with pytest.raises(InputError, match="got no method"):
        compare(model, x, [])
    with pytest.raises(InputError, match="got the method 'saliency' twice, expected it once"):
        compare(model, x, ["saliency", "eva", "saliency"])
    with pytest.raises(InputError, match="got methods of type int, expected names such as"):
        compare(model, x, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got a metric of type int, expected one of deletion"):
        compare(model, x, "saliency", 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got a class, Deletion, expected one of deletion"):
        compare(model, x, "saliency", [Deletion])  # type: ignore[list-item]
    with pytest.raises(InputError, match="got the metric 'beauty', expected one of deletion"):
        compare(model, x, ["saliency"], ["beauty"])
    with pytest.raises(InputError, match=r"no radius for it, expected pm.metrics.Tightness\(...\), or ball=pm.Ball"):
        compare(model, x, ["eva"], ["tightness"])
    with pytest.raises(InputError, match=r"no radius for it, expected pm.metrics.Stability\(...\), or ball=pm.Ball"):
        compare(model, x, ["eva"], ["stability"])
    with pytest.raises(InputError, match="got the method 'nothing'"):
        compare(model, x, ["nothing"])
    with pytest.raises(InputError, match=r"shape \(3,\), expected a class number, or one for each of 1 samples"):
        compare(model, x, ["saliency"], target=torch.tensor([1, 2, 3]))
    with pytest.raises(InputError, match="got target 10, expected a class from 0 to 9"):
        compare(model, x, ["saliency"], target=10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ball": 0.1}, r"got ball=0\.1, expected a pm.Ball such as"),
        ({"seed": "0"}, "compare got seed='0', expected a whole number of at least 0"),
        ({"groups": "grid:3"}, "compare got groups='grid:3', expected a grouping such as"),
        ({"progress": "yes"}, "compare got progress='yes', expected True or False"),
    ],
)
def test_options_of_another_kind_are_refused_before_any_work(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(nn.Identity(), digits(1), ["saliency", "smoothgrad"], **given)


def test_a_function_of_another_signature_is_refused_before_any_work() -> None:
    """It is refused beside valid methods too, and before the model is used."""
    x, seen = digits(1), []

    class Watched(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            seen.append(z)
            return z.flatten(1)[:, :3]

    def one(z: Tensor) -> Tensor:
        return z

    methods: list[Any] = ["saliency", one]
    with pytest.raises(InputError, match=r"the function one takes \(z\), expected \(x, target\)"):
        compare(Watched(), x, methods, progress=False)
    with pytest.raises(InputError, match=r"Occlusion.attribute\(x, target=...\): missing a required argument: 'sli"):
        compare(Watched(), x, ["saliency", attr.Occlusion(Watched())], progress=False)
    assert not seen


def test_stored_maps_have_no_seconds() -> None:
    x, model = digits(1), pm.zoo.mnist_mlp()
    table = compare(model, x, {"map": torch.rand_like(x), "saliency": "saliency"}, progress=False)
    assert table.seconds["map"] is None
    assert table.seconds["saliency"] is not None


def test_metrics_by_name_take_the_radius_of_the_ball() -> None:
    x, model = digits(2), pm.zoo.mnist_mlp()
    methods = {"eva": pm.EVA(model, BALL, groups=pm.groups.grid(2), progress=False)}
    table = compare(model, x, methods, ["stability", "tightness"], ball=BALL, progress=False)
    stated: list[Metric[Any]] = [Stability(0.015, relative=True, domain=(0.0, 1.0)), Tightness(BALL)]
    expected = compare(model, x, methods, stated, progress=False)
    for name in ("stability", "tightness"):
        np.testing.assert_array_equal(table.values["eva"][name], expected.values["eva"][name])


def test_radii_for_each_sample_suit_tightness_alone() -> None:
    x, model = digits(2), pm.zoo.mnist_mlp()
    ball = pm.Ball(torch.tensor([0.01, 0.02]), domain=(0.0, 1.0))
    table = compare(model, x, ["eva"], ["tightness"], ball=ball, groups=pm.groups.grid(2), progress=False)
    full = pm.overlap(model, x, ball).full
    torch.testing.assert_close(torch.from_numpy(table.values["eva"]["tightness"]).float(), full, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match=r"got the metric 'stability' with eps=tensor\(.*, expected a number"):
        compare(model, x, ["eva"], ["stability"], ball=ball)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("randomisation", "applies to none of the methods: it explains networks with other weights, and a function"),
        (Tightness(BALL), "applies to none of the methods: it measures the proven overlap of a ball: add 'eva'"),
    ],
)
def test_a_metric_without_any_method_is_refused_before_any_work(metric: Any, message: str) -> None:
    """The advice works: with a method that it applies to, the others have no value."""
    x, model = digits(2), pm.zoo.mnist_mlp()
    calls = []

    def constant(z: Tensor, target: Tensor) -> Tensor:
        calls.append(z)
        return torch.rand(z.shape, generator=torch.Generator().manual_seed(0))

    with pytest.raises(InputError, match=message):
        compare(model, x, [constant, x.clone()], ["deletion", metric], progress=False)
    assert not calls
    table = compare(model, x, {"f": constant, "e": "eva"}, metric, ball=BALL, groups=pm.groups.grid(4), progress=False)
    assert table.count == 2
    assert [list(row) for row in table.rows.values()] == [[], [table.columns[0].name]]
