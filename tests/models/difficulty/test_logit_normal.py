"""The logit-normal against numerical integration, and the linearised likelihood against its exact posterior."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import binom, norm

from models.difficulty.logit_normal import binomial_moments, linearised, success_moments


@pytest.mark.parametrize("mean", [-4.0, -1.0, 0.0, 0.3, 2.5])
@pytest.mark.parametrize("sd", [0.0, 0.05, 0.5, 1.0, 2.0])
def test_moments_are_those_of_the_integral(mean: float, sd: float) -> None:
    found, spread = success_moments(np.array([mean]), np.array([sd**2]))
    if sd == 0.0:
        assert found == pytest.approx([expit(mean)]) and spread == pytest.approx([0.0], abs=1e-8)
        return
    first, second = (
        quad(lambda x, power=power: expit(x) ** power * norm.pdf(x, mean, sd), mean - 12 * sd, mean + 12 * sd)[0]
        for power in (1, 2)
    )
    assert found == pytest.approx([first], abs=1e-4)
    assert spread == pytest.approx([np.sqrt(second - first**2)], abs=1e-4)


@pytest.mark.parametrize(("successes", "valid"), [(0, 1), (1, 1), (0, 8), (3, 8), (8, 8), (64, 64), (1, 64)])
@pytest.mark.parametrize(("mean", "sd"), [(0.0, 2.0), (3.0, 0.3), (-6.0, 1.0), (0.0, 6.0)])
def test_linearised_observation_leaves_mode_and_curvature_of_the_posterior(
    successes: int, valid: int, mean: float, sd: float
) -> None:
    def loss(x: float) -> float:
        binomial = successes * np.log(expit(x)) + (valid - successes) * np.log(expit(-x))
        return float(-binomial + (x - mean) ** 2 / (2 * sd**2))

    z, error = linearised(np.array([mean]), np.array([sd**2]), np.array([successes]), np.array([valid]))
    gain = sd**2 / (sd**2 + error)
    mode = minimize_scalar(loss, bounds=(mean - 10 * sd, mean + 10 * sd), method="bounded", options={"xatol": 1e-9}).x
    assert mean + gain * (z - mean) == pytest.approx([mode], abs=1e-5)
    curvature = (loss(mode + 1e-3) - 2 * loss(mode) + loss(mode - 1e-3)) / 1e-6
    assert (1 - gain) * sd**2 == pytest.approx([1 / curvature], rel=1e-3)


def test_moments_of_one_logit_are_those_of_its_posterior() -> None:
    """Against a fine grid, where all rollouts end alike and where many tell much."""
    mean, variance = np.array([0.0, -3.0, 1.0, 4.0, 0.5]), np.array([4.0, 5.0, 0.2, 9.0, 2.0])
    successes, valid = np.array([8, 0, 3, 1, 300]), np.array([8, 8, 8, 8, 400])
    first, second = binomial_moments(mean, variance, successes, valid)
    logit = np.linspace(-40.0, 40.0, 400_001)
    for group in range(len(mean)):
        log_density = binom.logpmf(successes[group], valid[group], expit(logit))
        log_density -= (logit - mean[group]) ** 2 / (2.0 * variance[group])
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        expected = density @ logit
        np.testing.assert_allclose(first[group], expected, atol=2e-3)
        np.testing.assert_allclose(second[group], density @ (logit - expected) ** 2, rtol=5e-3)
