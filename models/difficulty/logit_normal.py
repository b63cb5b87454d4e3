"""The logit-normal: what a Gaussian belief about a prompt's logit says of its success probability, and learns of it."""

import numpy as np
from scipy.special import expit

from models.records import Floats, Ints

NODES = 24
"""Points of the Gauss-Hermite quadrature; with them both moments are within 1e-4 up to a logit's sd of 2."""
_STEPS, _CLOSE = 80, 1e-10
"""Steps to a mode at most, and the move after which no more are made."""
_LEAST = 1e-3
"""Least variance of a logit, in units of what the curvature at the mode says."""
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
    mode = _mode(mean, variance, successes, valid)
    p = expit(mode)
    weight = valid * p * (1.0 - p)
    return mode + (successes - valid * p) / weight, 1.0 / weight


def binomial_moments(mean: Floats, variance: Floats, successes: Ints, valid: Ints) -> tuple[Floats, Floats]:
    """[G] posterior mean and variance of a logit x ~ N(mean, variance) after s ~ Binomial(n, sigmoid(x)).

    By Gauss-Hermite quadrature about the mode, in units of the curvature there; up to a variance of 25 within .01
    standard deviations of the mean and 1.5 % of the variance.
    """
    mode = _mode(mean, variance, successes, valid)
    p = expit(mode)
    curved = 1.0 / (valid * p * (1.0 - p) + 1.0 / variance)
    at = mode + _POINTS[:, None] * np.sqrt(curved)
    density = successes * at - valid * np.logaddexp(0.0, at) - (at - mean) ** 2 / (2.0 * variance)
    density += _POINTS[:, None] ** 2 / 2.0
    weight = np.exp(density - density.max(axis=0)) * _WEIGHTS[:, None]
    weight /= weight.sum(axis=0)
    first = (weight * at).sum(axis=0)
    return first, np.maximum((weight * (at - first) ** 2).sum(axis=0), _LEAST * curved)


def _mode(mean: Floats, variance: Floats, successes: Ints, valid: Ints) -> Floats:
    """[G] mode of the posterior of such logits: Newton's method, and bisection where it would leap too far.

    At the mode x = m + v (s - n p), so it lies between m - v (n - s) and m + v s.
    """
    mode, low, high = mean.copy(), mean - variance * (valid - successes), mean + variance * successes
    for _ in range(_STEPS):
        p = expit(mode)
        slope = successes - valid * p - (mode - mean) / variance
        low, high = np.where(slope > 0, mode, low), np.where(slope > 0, high, mode)
        step = slope / (valid * p * (1.0 - p) + 1.0 / variance)
        found = np.where(np.abs(step) <= (high - low) / 2.0, mode + step, (low + high) / 2.0)
        if np.all(np.abs(found - mode) < _CLOSE):
            return found
        mode = found
    return mode
