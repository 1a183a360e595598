"""`pm.concat`: the parts of a call give the call again; explanations that do not fit together are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.origin import Origin, Source
from tests.explainers.making import content, make, make_signed
from tests.plots.reasons.reasoned import reasoned

RADII = torch.tensor([0.01, 0.02, 0.03, 0.04])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double().eval()


def samples() -> Tensor:
    return torch.rand(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def joined(*parts: Explanation) -> dict[str, Any]:
    return {**content(pm.concat(parts)), "seconds": None}


@pytest.mark.parametrize("made", [make, make_signed])
def test_slices_give_the_whole_again(made: Any) -> None:
    e = made((4, 1, 4, 4), errors=torch.rand(4, 5), settings={"eps": [0.1, 0.2, 0.3, 0.4], "domain": [0.0, 1.0]})
    expected = {**content(e), "seconds": None}
    assert joined(e[:1], e[1:]) == expected
    assert joined(*e) == expected
    assert joined(e) == expected
    assert joined(e[[2, 3]], e[[0]]) == {**content(e[[2, 3, 0]]), "seconds": None}


@pytest.mark.parametrize("eps", [0.02, RADII, RADII[:, None], torch.full((1, 6), 0.01), "auto"])
@pytest.mark.parametrize("domain", [None, (0.0, 1.0), (torch.zeros(4, 6), torch.linspace(1, 2, 24).view(4, 6))])
def test_the_parts_of_a_call_give_the_call(eps: Any, domain: Any, tmp_path: Path) -> None:
    """Also after files, which do not hold the ball itself; the ball and the record are those of all samples."""
    whole = pm.EVA(network(), pm.Ball(eps, domain=domain), groups=torch.arange(6) // 2, progress=False).explain(
        samples()
    )
    parts = [whole[:1], whole[[1, 2]], whole[3:]]
    found = pm.concat(parts)
    assert {**content(found), "seconds": None, "settings": None} == {
        **content(whole),
        "seconds": None,
        "settings": None,
    }
    if not isinstance(domain, tuple) or isinstance(domain[0], float):
        assert found.settings == whole.settings
    assert found.made_from is not None
    assert whole.made_from is not None
    family, expected = (e.made_from[1].at(samples()) for e in (found, whole) if e.made_from is not None)
    assert torch.equal(family.lower, expected.lower)
    assert torch.equal(family.upper, expected.upper)
    assert found.seconds == pytest.approx(sum(part.seconds for part in parts))
    for k, part in enumerate(parts):
        part.save(tmp_path / f"{k}.proofmap")
    read = pm.concat(Explanation.load(tmp_path / f"{k}.proofmap") for k in range(3))
    assert read.made_from is None
    assert torch.equal(read.overlap.full, whole.overlap.full)
    if domain is None:
        assert read.settings == whole.settings


def test_a_certificate_of_a_joined_sample_is_about_its_own_ball() -> None:
    whole = pm.EVA(network().float(), pm.Ball(RADII), progress=False).explain(samples().float())
    found = pm.concat([whole[2:], whole[:2]])
    own, expected = (e.certificate(k, leaves=0, progress=False) for e, k in ((found, 1), (whole, 3)))
    assert float.fromhex(own.claim["ball"]["eps"]) == pytest.approx(0.04)
    assert own.claim["ball"] == expected.claim["ball"]
    assert own.full == expected.full


def test_groups_of_their_own_get_a_mask_for_each_sample() -> None:
    """A group that a part does not have gets the score 0 there, as in one call."""
    masks = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1], [1, 1, 1, 0, 0, 0]])

    def explained(which: slice) -> Explanation:
        eva = pm.EVA(network(), pm.Ball(0.02), groups=masks[which], progress=False)
        return replace(eva.explain(samples()[which]), settings={"eps": 0.02})

    whole = explained(slice(0, 4))
    found = pm.concat([explained(slice(0, 1)), explained(slice(1, 4))])
    assert found.mask.shape == (4, 6)
    assert torch.equal(found.mask, masks)
    torch.testing.assert_close(found.scores, whole.scores)
    torch.testing.assert_close(found.overlap.frozen, whole.overlap.frozen)
    assert torch.equal(found.scores[1:, 2], torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(found.intervals, whole.intervals)


def test_masks_that_differ_are_kept_for_each_sample() -> None:
    one, two = make((1, 4), 4), make((2, 4), 4, mask=torch.tensor([[3, 2, 1, 0]]))
    found = pm.concat([one, two])
    assert found.mask.tolist() == [[0, 1, 2, 3], [3, 2, 1, 0], [3, 2, 1, 0]]
    assert torch.equal(found.attributions, torch.cat([one.attributions, two.attributions]))


def test_origins_are_joined() -> None:
    def origin(name: str, label: int | None, **more: Any) -> Origin:
        return Origin(Source("net"), (Source(name),), labels=None if label is None else (label,), **more)

    one, two = make((1, 4)), make((1, 4))
    known = [replace(one, origin=origin("a", 3)), replace(two, origin=origin("b", None))]
    found = pm.concat(known)
    assert found.origin is not None
    assert [source.name for source in found.origin.samples] == ["a", "b"]
    assert [found.label(k) for k in (0, 1)] == [3, None]
    assert pm.concat([known[0], two]).origin is None
    with pytest.raises(InputError, match="concat got the names of the classes None in explanation 0"):
        pm.concat([known[0], replace(two, origin=origin("b", 1, classes=("cat", "dog")))])


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"method": "SmoothEVA"}, "the method 'EVA' in explanation 0 and 'SmoothEVA' in explanation 1"),
    ({"guarantee": "sampled"}, "the guarantee 'certified' in explanation 0 and 'sampled'"),
    ({"model_hash": "1" * 64}, "the model with the hash"),
    ({"seed": 3}, "the seed None in explanation 0 and 3"),
    ({"versions": {"torch": "1.0"}}, "the versions"),
    ({"signed": True}, "signed False in explanation 0 and True"),
    ({"errors": torch.rand(3, 5)}, "standard errors False"),
    (
        {"settings": {"eps": 0.02, "norm": "inf", "domain": [0.0, 1.0], "name": "δ ≤ ε"}},
        "eps 0.01 in explanation 0 and",
    ),
    ({"settings": {"eps": 0.01, "norm": 2.0, "domain": [0.0, 1.0], "name": "δ ≤ ε"}}, "the setting norm 'inf'"),
    ({"settings": {"eps": 0.01, "norm": "inf", "domain": [0.0, 2.0], "name": "δ ≤ ε"}}, "the domain 1.0"),
    ({"settings": {"eps": 0.01, "norm": "inf", "domain": None, "name": "δ ≤ ε"}}, "a domain True"),
    ({"settings": {"eps": 0.01, "norm": "inf", "domain": [0.0, 1.0]}}, "the setting name 'δ ≤ ε' in .* None in"),
]


@pytest.mark.parametrize(("changes", "message"), CHANGES, ids=[message for _, message in CHANGES])
def test_explanations_that_do_not_fit_are_refused_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^concat got {message}") as refused:
        pm.concat([make(), make(**changes)])
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith("join explanations that one explainer made of one model")


def test_samples_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"concat got samples of shape \(1, 4, 4\) in explanation 0 and \(2, 4\)"):
        pm.concat([make(), make((3, 2, 4))])
    with pytest.raises(InputError, match=r"concat got samples of type torch\.float32 in .* and torch\.float64"):
        pm.concat([make(), make(dtype=torch.float64)])
    rigorous = replace(make(), overlap=replace(make().overlap, rigorous=True))
    with pytest.raises(InputError, match="concat got bounds of the kinds"):
        pm.concat([make(), rigorous])


def test_equal_numbers_of_another_meaning_are_refused() -> None:
    """Four numbers are a radius for each of four samples, and a radius for each variable of three samples."""
    four, three = make((4, 4), settings={"eps": [0.1] * 4}), make((3, 4), settings={"eps": [0.1] * 4})
    for parts in ([four, three], [three, four]):
        with pytest.raises(InputError, match="concat got eps with one entry per sample in some explanations only"):
            pm.concat(parts)


def test_the_hash_of_a_large_ball_is_refused() -> None:
    hashed = make(settings={"eps": "tensor (3, 1, 40, 40) sha256 00"})
    with pytest.raises(InputError, match="only the hash of a large ball: join them before saving"):
        pm.concat([hashed, hashed])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "concat got no explanation, expected at least one"),
        ([make(), 3], "concat got a list with int, expected explanations only"),
        (make(), "concat got one explanation, expected a list of them"),
        (3, "concat got int, expected a list of explanations"),
    ],
)
def test_other_arguments_are_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pm.concat(given)


def test_sufficient_sets_are_joined_and_chosen() -> None:
    e = reasoned()
    assert joined(e[0], e[1]) == {**content(e), "seconds": None}
    assert joined(e[1], e[0]) == {**content(e[[1, 0]]), "seconds": None}
    swapped = e[[1, 0]].reason
    assert swapped is not None
    assert swapped.point_of.tolist() == [[1, 1], [1, 3]]
    assert swapped.necessary.tolist() == e.necessary.flip(0).tolist()
