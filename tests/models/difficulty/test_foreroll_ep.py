import numpy as np
from scipy.special import expit
from scipy.stats import binom

from models.difficulty.foreroll_ep import match_moments


def test_groups_without_rollouts_tell_nothing() -> None:
    prior = np.array([[2.0, 0.5], [0.5, 1.0]])
    gradient, precision = match_moments(np.array([1.0, -1.0]), prior, np.zeros(2, int), np.zeros(2, int))
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    np.testing.assert_allclose(precision, 0.0, atol=1e-5)


def test_correlated_logits_have_the_moments_of_their_joint_posterior() -> None:
    """Against a million weighed draws of the prior; the mode lies .25 from two of the three means."""
    rng = np.random.default_rng(0)
    prior, mean = 2.0 * np.eye(3) + 1.5, np.array([0.5, 0.0, -0.5])
    successes, valid = np.array([8, 8, 0]), np.full(3, 8)
    gradient, precision = match_moments(mean, prior, successes, valid)
    drawn = rng.multivariate_normal(mean, prior, 1_000_000)
    weight = binom.pmf(successes, valid, expit(drawn)).prod(axis=1)
    weight /= weight.sum()
    expected = weight @ drawn
    np.testing.assert_allclose(mean + prior @ gradient, expected, atol=0.04)
    spread = (drawn - expected).T @ (weight[:, None] * (drawn - expected))
    np.testing.assert_allclose(prior - prior @ precision @ prior, spread, atol=0.1)
