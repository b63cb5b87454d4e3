"""From a Gaussian logit to the moments of its probability."""

import numpy as np
from scipy.special import expit

from models.records import Floats

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def success_moments(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation [N] of sigmoid(f), f ~ N(mean, variance), by Gauss-Hermite quadrature."""
    spread = np.sqrt(np.maximum(variance, 0.0))
    first, second = np.zeros(len(mean)), np.zeros(len(mean))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        p = expit(mean + node * spread)
        first += weight * p
        second += weight * p**2
    return first, np.sqrt(np.maximum(second - first**2, 0.0))
