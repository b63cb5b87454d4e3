"""Expectation propagation: the Gaussian that has the moments of a posterior of correlated logits.

Each group's likelihood is replaced by a Gaussian in its logit, exp(nu f - tau f^2 / 2),
such that under all the other groups (its cavity) both give f the same mean and
variance. A Gaussian at the mode (Laplace) is too near to the prior where few
rollouts all end alike: there the likelihood is skewed.
Minka, Expectation propagation for approximate Bayesian inference, 2001.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit

from models.records import Floats, Ints

SWEEPS = 8
"""Parallel updates of all groups; batches of the simulator move by less than 1e-12 after as many."""
NODES = 24
"""Points of the Gauss-Hermite quadrature about each mode."""
_NEWTON_STEPS = 20
_LONGEST_STEP = 3.0
_LEAST = 1e-6
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(NODES)


def match_moments(mean: Floats, prior: Floats, successes: Ints, valid: Ints) -> tuple[Floats, Floats]:
    """K^-1 (E f - m), [G], and (K + diag(1 / tau))^-1, [G, G].

    Args:
        mean: [G] m of the logits before the batch.
        prior: [G, G] their covariance K.
    """
    tau, nu = np.zeros(len(mean)), np.zeros(len(mean))
    found, spread = mean, np.diag(prior)
    for _ in range(SWEEPS):
        cavity = 1.0 / np.maximum(1.0 / spread - tau, _LEAST)
        centre = cavity * (found / spread - nu)
        first, second = binomial_moments(centre, cavity, successes, valid)
        tau = np.maximum(1.0 / second - 1.0 / cavity, _LEAST)
        nu = first / second - centre / cavity
        factor = cho_factor(prior + np.diag(1.0 / tau), lower=True)
        gradient = cho_solve(factor, nu / tau - mean)
        found = mean + prior @ gradient
        half = solve_triangular(factor[0], prior, lower=True)
        spread = np.diag(prior) - (half**2).sum(axis=0)
    return gradient, cho_solve(factor, np.eye(len(mean)))


def binomial_moments(mean: Floats, variance: Floats, successes: Ints, valid: Ints) -> tuple[Floats, Floats]:
    """[G] posterior mean and variance of f ~ N(mean, variance), alone, after s ~ Binomial(n, sigmoid(f))."""
    mode = mean
    for _ in range(_NEWTON_STEPS):
        p = expit(mode)
        slope = successes - valid * p - (mode - mean) / variance
        mode = mode + np.clip(slope / (valid * p * (1.0 - p) + 1.0 / variance), -_LONGEST_STEP, _LONGEST_STEP)
    p = expit(mode)
    at = mode + _POINTS[:, None] / np.sqrt(valid * p * (1.0 - p) + 1.0 / variance)
    density = successes * at - valid * np.logaddexp(0.0, at) - (at - mean) ** 2 / (2.0 * variance)
    density += _POINTS[:, None] ** 2 / 2.0
    weight = np.exp(density - density.max(axis=0)) * _WEIGHTS[:, None]
    weight /= weight.sum(axis=0)
    first = (weight * at).sum(axis=0)
    return first, (weight * (at - first) ** 2).sum(axis=0)
