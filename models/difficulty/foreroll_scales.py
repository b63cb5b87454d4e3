"""A scale of variances, learned from the evidence of the groups that are forecast with it."""

from dataclasses import dataclass

import numpy as np

from models.records import Floats

KEEP = 0.97
"""Share that one step leaves of the information beyond that of the beginning."""
BEGIN = 100.0
"""Information with which a scale begins; a group that settles its effect brings 1/2."""
MOST_EXCESS = 20.0
"""Most that v (g^2 - C) of one group counts: a single outlier tells no scale."""
LONGEST = 0.3
"""The scale's logarithm moves at most this far in one step."""
LEAST, MOST = 0.02, 20.0
"""Bounds of the scale."""


@dataclass
class Scale:
    """Follows the gradient of the log evidence.

    With the part v of an effect's variance that the scale multiplies, and g and C of the filter,
    d log Z / d log v = v (g^2 - C) / 2, which is 0 on average when v is right, however skewed outcomes are. Its
    information is taken as (v C)^2 / 2, that of a Gaussian measurement.
    """

    value: float = 1.0
    information: float = BEGIN

    def learn(self, variance: Floats, gradient: Floats, precision: Floats) -> float:
        """Take in v, g, and the diagonal of C of one batch, [G]; returns the scale's factor."""
        told = 0.5 * float(((variance * precision) ** 2).sum())
        self.information = KEEP * self.information + (1.0 - KEEP) * BEGIN + told
        score = 0.5 * float(np.minimum(variance * (gradient**2 - precision), MOST_EXCESS).sum())
        before = self.value
        step = np.clip(score / self.information, -LONGEST, LONGEST)
        self.value = float(np.clip(before * np.exp(step), LEAST, MOST))
        return self.value / before
