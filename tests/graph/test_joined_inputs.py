"""Every public call takes several inputs: its results are those of the joined vector, and points keep their balls."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
import torch
from captum.attr import Saliency
from torch import Tensor

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.baselines import LIME, Baseline
from proofmap.explainers.factory import BASELINES
from tests.explainers.test_several_inputs import BALLS, CELLS, IMAGES, JOINED, ROWS, TOKENS, Network, Wrapped

BOTH = (IMAGES, ROWS)
UNIT = (0.0, 1.0)
# The domain of the joined vector, as a user would write it.
JOINED_DOMAIN = (torch.tensor([0.0] * 9 + [-inf] * 2), torch.tensor([1.0] * 9 + [inf] * 2))


# --- radii and curves ---


def test_radii_are_those_of_the_joined_vector() -> None:
    asked: Any = {"steps": 4, "progress": False}
    found = pm.radius(Network(), BOTH, domain=(UNIT, None), **asked)
    expected = pm.radius(Wrapped(), JOINED, domain=JOINED_DOMAIN, **asked)
    assert torch.allclose(found.proven, expected.proven)
    assert torch.allclose(found.refuted, expected.refuted)
    proven = pm.certified_radius(Network(), BOTH, domain=(UNIT, None), **asked)
    assert torch.allclose(proven, pm.certified_radius(Wrapped(), JOINED, domain=JOINED_DOMAIN, **asked))
    adversaries = found.inputs
    assert [tuple(part.shape) for part in adversaries] == [(2, 1, 3, 3), (2, 2)]
    assert bool((Network()(*adversaries).argmax(1) != Network()(*BOTH).argmax(1)).all())
    curve = pm.curve(Network(), BOTH, [0.1, 0.3], domain=(UNIT, None), **asked)
    assert torch.allclose(curve.upper, pm.curve(Wrapped(), JOINED, [0.1, 0.3], domain=JOINED_DOMAIN, **asked).upper)


def test_a_fixed_input_stays() -> None:
    """The picture is fixed: the adversary moves the row alone, by the distance that is reported, in each norm."""
    for norm in (inf, 2.0):
        found = pm.radius(Network(), {"image": IMAGES, "table": ROWS}, norm=norm, domain=("fixed", None), steps=6)
        image, row = found.inputs
        assert torch.equal(image, IMAGES)
        distance = torch.linalg.vector_norm(row - ROWS, norm, dim=1)
        met = found.refuted.isfinite()
        assert bool(met.any())
        assert torch.allclose(distance[met], found.refuted[met].to(distance), atol=1e-5)
        assert bool((found.proven <= found.refuted).all())


# --- pm.explain ---


@pytest.mark.parametrize("domain", ["auto", (UNIT, "fixed", None)], ids=str)
def test_explain(domain: Any) -> None:
    answer = pm.explain(Network(), (*BOTH, TOKENS), domain=domain, seconds=1.0, progress=False)
    moves = "fixed" if isinstance(domain, tuple) else "moves"
    assert answer.map.input_roles == {"image": "moves", "table": moves, "tokens": "constant"}
    assert answer.proof is not None
    assert answer.proof.input_roles == answer.map.input_roles
    assert [tuple(part.map.attributions.shape) for part in answer.inputs] == [(2, 1, 3, 3), (2, 2)]
    assert "'image' [0, 1]" in answer.said[2] or "'image' the given range" in answer.said[2]
    assert "'table' fixed" in answer.said[2] or "'table' no limits" in answer.said[2]
    for one in (answer, *answer.inputs):
        assert one.plot() is not None
    if moves == "fixed":
        assert float(answer.inputs[1].map.attributions.abs().max()) == 0.0


def test_the_proof_of_explain_contains_points() -> None:
    """Random points of the proven ball, of the user's module."""
    proof = pm.explain(Network(), BOTH, domain=(UNIT, None), seconds=2.0, progress=False).proof
    assert proof is not None
    eps = torch.as_tensor(proof.settings["eps"])
    generator = torch.Generator().manual_seed(0)
    for k in range(2):
        image = (IMAGES[k] + float(eps[k]) * (2 * torch.rand(400, 1, 3, 3, generator=generator) - 1)).clamp(0, 1)
        row = ROWS[k] + float(eps[k]) * (2 * torch.rand(400, 2, generator=generator) - 1)
        with torch.no_grad():
            logits = Network()(image, row)
        target = int(proof.target[k])
        others = logits.clone()
        others[:, target] = -inf
        assert float((others.amax(1) - logits[:, target]).max()) <= float(proof.overlap.full[k]) + 1e-6


def test_explain_with_groups_and_one_input_by_keyword() -> None:
    answer = pm.explain(Network(), BOTH, groups=(CELLS, None), seconds=1.0, progress=False)
    assert answer.map.scores.shape == (2, 5)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 3))
    one = pm.explain(model, {"input": IMAGES}, seconds=1.0, progress=False)
    assert one.map.attributions.shape == IMAGES.shape
    assert one.inputs == (one,)


# --- baselines, metrics and comparisons ---

OF_VECTORS = [name for name, kind in BASELINES.items() if issubclass(kind, Baseline)]
OF_PICTURES = {"grad-cam": "choose another method, such as saliency", "grad-cam++": "saliency", "rise": "saliency"}


@pytest.mark.parametrize("name", OF_VECTORS)
def test_baselines(name: str) -> None:
    """The maps are those of the joined vector, and integers have none. A method that refuses names another."""
    baseline: Any = BASELINES[name](Network())
    if name in OF_PICTURES:
        with pytest.raises(InputError, match=OF_PICTURES[name]):
            baseline.attribute(BOTH)
        return
    maps = baseline.attribute((*BOTH, TOKENS))
    assert [tuple(each.shape) for each in maps] == [(2, 1, 3, 3), (2, 2), (2, 2)]
    assert not maps[2].any()
    by_name = baseline.attribute({"image": IMAGES, "table": ROWS})
    expected: Tensor = BASELINES[name](Wrapped()).attribute(JOINED)
    assert torch.allclose(torch.cat([by_name["image"].flatten(1), by_name["table"]], 1), expected, atol=1e-5)


def test_groups_of_baselines() -> None:
    found = LIME(Network(), groups=(CELLS, torch.tensor([0, 0]))).attribute(BOTH)
    assert torch.equal(found[0][:, 0, 0], found[0][:, 0, 1])
    assert torch.equal(found[1][:, 0], found[1][:, 1])


def test_comparisons_are_those_of_the_joined_vector() -> None:
    names, metrics = ["saliency", "smoothgrad", "eva"], ["deletion", "mu-fidelity", "robustness-sr", "stability"]
    asked: Any = {"ball": (pm.Ball(0.1, domain=UNIT), pm.Ball(0.1)), "progress": False}
    found = pm.compare(Network(), BOTH, names, metrics, **asked)
    assert found.model == "Network"
    ball = pm.Ball(0.1, domain=JOINED_DOMAIN)
    spans = (torch.cat([torch.zeros(9), ROWS.amin().expand(2)]), torch.cat([torch.ones(9), ROWS.amax().expand(2)]))
    smooth = BASELINES["smoothgrad"](Wrapped(), domain=spans)  # type: ignore[call-arg]
    expected = pm.compare(
        Wrapped(),
        JOINED,
        {"saliency": "saliency", "smoothgrad": smooth, "eva": "eva"},
        metrics,
        ball=ball,
        progress=False,
    )
    for name in names:
        for metric, values in expected.values[name].items():
            assert found.values[name][metric] == pytest.approx(values, rel=1e-3, abs=1e-5), (name, metric)


def test_objects_are_compared() -> None:
    model = Network()
    maps = pm.explainers.as_attributor("saliency", model).attribute(BOTH)  # type: ignore[arg-type]
    methods: dict[str, Any] = {
        "name": "saliency",
        "baseline": BASELINES["saliency"](model),
        "captum": Saliency(model),
        "function": lambda x, target: Saliency(model).attribute(x, target=target),
        "stored": maps,
        "explainer": pm.EVA(model, (*BALLS, None), groups=(CELLS, None, None)),
    }
    del methods["explainer"]  # takes three inputs
    found = pm.compare(model, BOTH, {**methods, "eva": pm.EVA(model, BALLS)}, progress=False)
    for label in methods:
        assert found.values[label]["deletion"] == pytest.approx(found.values["name"]["deletion"], abs=1e-6), label
    assert found.values["eva"]["deletion"].shape == (2,)
    with pytest.raises(InputError, match="got one map for 2 inputs, expected a tuple with a map for each"):
        pm.compare(model, BOTH, {"one": JOINED}, progress=False)


def test_metrics() -> None:
    model, eva = Network(), pm.EVA(Network(), (pm.Ball(0.1), pm.Ball(0.1)))
    maps = eva.attribute(BOTH)
    joined = torch.cat([maps[0].flatten(1), maps[1]], 1)
    assert torch.equal(
        pm.metrics.Deletion()(model, BOTH, None, maps), pm.metrics.Deletion()(Wrapped(), JOINED, None, joined)
    )
    found = pm.metrics.Stability(0.1, samples=3)(model, BOTH, None, eva.attribute)
    assert bool((found > 0).all())


def test_two_models() -> None:
    found = pm.compare_models(Network(), Network(), BOTH, (BALLS[0], None))
    assert found.related
    assert float(found.largest_difference.max()) < 1e-12
    alone = pm.overlap(Network(), BOTH, (BALLS[0], None))
    assert torch.allclose(found.first.full, alone.full)


def test_sufficient_sets() -> None:
    """A reason has a part for each input: its free and kept groups, and points in its own shape."""
    found = pm.Sufficient(Network(), (BALLS[0], pm.Ball(0.5)), groups=(CELLS, None)).explain(BOTH)
    assert found.reason is not None
    parts = [part.reason for part in found.inputs]
    assert torch.equal(torch.cat([part.free for part in parts if part is not None], 1), found.reason.free)
    for part, shape in zip(parts, ((1, 3, 3), (2,)), strict=True):
        assert part is not None
        assert tuple(part.points.shape[1:]) == shape
        assert len(part.points) == int(part.necessary.sum())


# --- refusals, whose advice works ---

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "one domain": (lambda: pm.radius(Network(), BOTH, domain=UNIT), r"got the domain 0.0 of an input, expected \(low"),
    "three domains": (lambda: pm.radius(Network(), BOTH, domain=(UNIT, None, None)), "got 3 domains for 2 inputs"),
    "all fixed": (lambda: pm.explain(Network(), BOTH, domain=("fixed", "fixed")), "a pm.Ball for at least one input"),
    "one ball": (lambda: pm.compare(Network(), BOTH, "eva", ball=pm.Ball(0.1)), "got one of the balls for 2 inputs"),
    "balls": (lambda: pm.compare(Wrapped(), JOINED, "eva", ball=BALLS), "got 2 balls for one input"),
    "groups": (lambda: pm.explain(Wrapped(), JOINED, groups=(CELLS, None)), "got 2 groups for one input"),
    "a word": (lambda: pm.explain(Wrapped(), JOINED, domain="fixed"), "got domain='fixed', expected"),
    "maps": (lambda: pm.metrics.Deletion()(Network(), BOTH, None, (IMAGES,)), "got 1 maps for 2 inputs"),
    "shapes": (lambda: pm.metrics.Deletion()(Network(), BOTH, None, (ROWS, IMAGES)), "got a map of shape"),
    "moving integers": (
        lambda: pm.radius(Network(), (*BOTH, TOKENS), domain=(UNIT, None, UNIT)),
        "got domains for the input 'tokens' of torch.int64, expected None: integers stay fixed; to move token ids",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_fits_not_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
