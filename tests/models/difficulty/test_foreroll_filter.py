import numpy as np
from scipy.special import expit

from models.difficulty.foreroll_filter import Belief, laplace
from models.difficulty.logit_normal import success_moments


def test_laplace_finds_the_mode_of_the_posterior() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    prior, mean = root @ root.T + 0.5 * np.eye(5), rng.normal(size=5)
    successes, valid = np.array([0, 8, 3, 1, 5]), np.full(5, 8)
    gradient, precision = laplace(mean, prior, successes, valid)
    mode = mean + prior @ gradient
    p = expit(mode)
    np.testing.assert_allclose(successes - valid * p, gradient, atol=1e-8)
    hessian = np.linalg.inv(prior) + np.diag(valid * p * (1 - p))
    np.testing.assert_allclose(prior - prior @ precision @ prior, np.linalg.inv(hessian), atol=1e-6)


def test_one_group_moves_weights_and_own_effect_as_the_joint_gaussian_says() -> None:
    x, cov, own_var = np.array([1.0, 2.0]), np.array([[0.5, 0.1], [0.1, 0.3]]), 0.8
    belief = Belief(np.array([0.2, -0.1]), cov.copy(), np.zeros(3), np.full(3, own_var))
    belief.learn(x[None].astype(np.float32), np.array([1]), np.array([7]), np.array([8]))
    joint = np.block([[cov, np.zeros((2, 1))], [np.zeros((1, 2)), np.full((1, 1), own_var)]])
    mean, direction = np.array([0.2, -0.1, 0.0]), np.r_[x, 1.0]
    found = mean.copy()
    for _ in range(200):
        p = expit(direction @ found)
        hessian = np.linalg.inv(joint) + 8 * p * (1 - p) * np.outer(direction, direction)
        found += np.linalg.solve(hessian, direction * (7 - 8 * p) - np.linalg.solve(joint, found - mean))
    np.testing.assert_allclose([*belief.mean, belief.own[1]], found, atol=1e-8)
    posterior = np.linalg.inv(hessian)
    np.testing.assert_allclose(belief.cov, posterior[:2, :2], atol=1e-8)
    np.testing.assert_allclose(belief.own_var, [own_var, posterior[2, 2], own_var], atol=1e-8)


def test_logits_have_the_mean_and_variance_of_their_sum() -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    belief = Belief(rng.normal(size=3), root @ root.T, rng.normal(size=4), rng.uniform(0.1, 1.0, 4))
    features, rows = rng.normal(size=(2, 3)), np.array([3, 0])
    mean, variance = belief.logits(features.astype(np.float32), rows)
    np.testing.assert_allclose(mean, features @ belief.mean + belief.own[rows], rtol=1e-5)
    np.testing.assert_allclose(variance, [x @ belief.cov @ x for x in features] + belief.own_var[rows], rtol=1e-5)


def test_moments_of_a_probability_agree_with_draws() -> None:
    draws = np.random.default_rng(2).standard_normal(200_000)
    mean, variance = np.array([0.0, 2.0, -4.0]), np.array([1.0, 0.0, 4.0])
    p_success, p_sd = success_moments(mean, variance)
    drawn = expit(mean[:, None] + np.sqrt(variance)[:, None] * draws)
    np.testing.assert_allclose(p_success, drawn.mean(axis=1), atol=2e-3)
    np.testing.assert_allclose(p_sd, drawn.std(axis=1), atol=2e-3)
