"""Images of tetrominoes: they follow the formulas, and only the pixels of the patterns depend on the class."""

import pytest
import torch

from benchmarks.trials.tetrominoes import ALPHA, IMAGE_SIDE, Background, Scenario, draw

SCENARIOS: tuple[Scenario, ...] = ("linear", "multiplicative", "translations", "xor")
NOISES: tuple[Background, ...] = ("white", "correlated")


@pytest.mark.parametrize(("scenario", "noise"), ALPHA)
def test_images_are_bounded_balanced_and_drawn_from_the_seed(scenario: Scenario, noise: Background) -> None:
    images, again, other = (draw(scenario, noise, 40, seed) for seed in (0, 0, 1))
    assert images.x.shape == (40, 1, IMAGE_SIDE, IMAGE_SIDE)
    assert (float(images.x.abs().max()), float(images.labels.sum())) == (1, 20)
    assert torch.equal(images.x, again.x)
    assert not torch.equal(images.x, other.x)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_four_pixels_of_a_pattern_or_eight_of_both_matter(scenario: Scenario) -> None:
    truth = draw(scenario, "white", 20, 0).truth
    assert truth.unique().tolist() == [0, 1]
    assert truth.sum((1, 2)).unique().tolist() == [4 if scenario == "translations" else 8]


def test_translations_go_everywhere() -> None:
    assert bool((draw("translations", "white", 400, 0).truth.sum(0) > 0).all())


def about(scenario: Scenario, noise: Background) -> list[float]:
    """Return the largest differences between the classes outside the patterns: of means, variances and products."""
    images = draw(scenario, noise, 20_000, 3)
    flat, truth = images.x.flatten(1), images.truth[0].flatten() > 0
    first, second = flat[images.labels == 0], flat[images.labels == 1]
    mean = (first.mean(0) - second.mean(0)).abs() / flat.std(0)
    spread = (first.var(0) / second.var(0)).log().abs()
    corner = truth.nonzero()[0, 0]
    product = (first * first[:, corner, None]).mean(0) - (second * second[:, corner, None]).mean(0)
    return [float(one[~truth].max()) for one in (mean, spread, product.abs() / flat.var(0))]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scenario", ["linear", "multiplicative", "xor"])
def test_pixels_outside_the_patterns_are_independent_of_the_class(scenario: Scenario, noise: Background) -> None:
    """Means, variances and, in white noise, products with a pixel of a pattern are equal for both classes."""
    mean, spread, product = about(scenario, noise)
    assert mean < 0.06
    assert spread < 0.1
    assert product < 0.06 or noise == "correlated"


def test_pixels_of_the_patterns_determine_the_class() -> None:
    """Classes differ in means (linear), in variances (multiplicative), or in the product of both patterns (XOR)."""
    for scenario in ("linear", "multiplicative", "xor"):
        images = draw(scenario, "white", 20_000, 3)
        flat, truth = images.x.flatten(1), images.truth[0].flatten() > 0
        first, second = (flat[images.labels == label][:, truth] for label in (0, 1))
        if scenario == "linear":
            assert bool(((first.mean(0) - second.mean(0)).abs() / flat.std() > 0.3).all())
        elif scenario == "multiplicative":
            assert bool(((first.var(0) / second.var(0)).log().abs() > 1).all())
        else:
            assert bool(((first.mean(0) - second.mean(0)).abs() / flat.std() < 0.06).all())
            assert float((first[:, 0] * first[:, -1]).mean()) > 0.2 * float(flat.var())
            assert float((second[:, 0] * second[:, -1]).mean()) < -0.2 * float(flat.var())


def test_smoothed_noise_is_correlated() -> None:
    """Neighbouring pixels of smoothed noise are correlated, so they are suppressors. Those of white noise are not."""
    for noise, least, most in (("white", -0.1, 0.1), ("correlated", 0.9, 1.0)):
        x = draw("linear", noise, 5000, 0).x[:, 0]  # type: ignore[arg-type]
        assert least < float(torch.corrcoef(torch.stack([x[:, 7, 0], x[:, 7, 1]]))[0, 1]) <= most
