"""The Beta distribution as a belief about a success probability."""

import numpy as np

from models.records import Floats


def beta_moments(alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    """Mean alpha / (alpha + beta) and standard deviation, elementwise."""
    total = alpha + beta
    mean = alpha / total
    return mean, np.sqrt(mean * (1.0 - mean) / (total + 1.0))
