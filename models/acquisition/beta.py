"""The Beta distribution that a forecast's mean and standard deviation stand for."""

import numpy as np

from models.records import Floats, Forecast

_EDGE = 1e-6
_STRENGTH = (1e-3, 1e6)


def beta_parameters(forecast: Forecast) -> tuple[Floats, Floats]:
    """Alpha and beta of the Beta distribution with the forecast's mean and standard deviation.

    Kept within what can be drawn from: means within 1e-6 of 0 or 1 and
    strengths outside [1e-3, 1e6] are moved to those limits.
    """
    mean = np.clip(forecast.p_success, _EDGE, 1.0 - _EDGE)
    with np.errstate(divide="ignore"):
        strength = np.clip(mean * (1.0 - mean) / forecast.p_sd**2 - 1.0, *_STRENGTH)
    return mean * strength, (1.0 - mean) * strength


def expected_spread(forecast: Forecast) -> Floats:
    """[N] E[p (1 - p)], p the probability of success: p_success (1 - p_success) - p_sd^2, whatever its distribution."""
    spread: Floats = np.maximum(forecast.p_success * (1.0 - forecast.p_success) - forecast.p_sd**2, 0.0)
    return spread
