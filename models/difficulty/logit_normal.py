"""The logit-normal: what a Gaussian belief about a prompt's logit says of its success probability."""

import numpy as np
from scipy.special import expit

from models.records import Floats, Ints

NODES = 24
"""Points of the Gauss-Hermite quadrature; with them both moments are within 1e-4 up to a logit's sd of 2."""
_NEWTON_STEPS = 30
_LONGEST_STEP = 2.0
"""Newton's method may leap too far where the likelihood is flat."""
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(NODES)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def success_moments(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """[N] mean and standard deviation of sigmoid(x) with x ~ N(mean, variance)."""
    spread, middle = np.sqrt(np.maximum(variance, 0.0)), expit(mean)  # rounding may leave -1e-17
    first, second = np.zeros(len(mean)), np.zeros(len(mean))
    for point, weight in zip(_POINTS, _WEIGHTS, strict=True):
        beyond = expit(mean + point * spread) - middle
        first += weight * beyond
        second += weight * beyond**2
    return middle + first, np.sqrt(np.maximum(second - first**2, 0.0))


def linearised(mean: Floats, variance: Floats, successes: Ints, valid: Ints) -> tuple[Floats, Floats]:
    """[G] the Gaussian observation z of a logit, and its error variance, that stand for s successes of n rollouts.

    With the belief N(m, v) before, they leave the mode x of the exact posterior,
    (s - n p) = (x - m) / v with p = sigmoid(x), and the curvature there:

        W = n p (1 - p)        z = x + (s - n p) / W        error variance 1 / W
    """
    mode = mean.copy()
    for _ in range(_NEWTON_STEPS):
        p = expit(mode)
        slope = successes - valid * p - (mode - mean) / variance
        mode += np.clip(slope / (valid * p * (1.0 - p) + 1.0 / variance), -_LONGEST_STEP, _LONGEST_STEP)
    p = expit(mode)
    weight = valid * p * (1.0 - p)
    return mode + (successes - valid * p) / weight, 1.0 / weight
