"""Mends forecasts by the groups that were drawn at random from what the rule passed over.

A rule chooses prompts by their forecasts, and what their groups teach carries
over to the prompts passed over only as far as the shared model is right. The
exploration slice shows how far. With the mean m of a logit, and q the share of
its own variance that visits have left, the logit is forecast as

    m + q (a + b m)

and a and b are learned from the explored groups alone, each group as a
measurement of its logit by the moments of its exact posterior. They are used as
if they were known. That groups of one batch err alike in the weights is left
out, and where the exploration is by forecast, as a retention test's is, they are
unbiased only as far as a line will do.
"""

import numpy as np

from models.difficulty.foreroll_wandering import Wandering
from models.difficulty.logit_normal import binomial_moments
from models.records import Floats, Ints

LEVEL_SD = 0.2
"""Stationary standard deviation of a, in logits."""
SLOPE_SD = 0.1
"""Of b."""
LEAST_SLOPE = -0.9
"""Of b: no group turns the order of forecasts round."""


class Calibration(Wandering):
    """What is to be added to the logits of prompts, the less the more is known of themselves."""

    def __init__(self) -> None:
        super().__init__("calibration", LEVEL_SD, SLOPE_SD)

    def mended(self, mean: Floats, left: Floats) -> Floats:
        """[N] means of logits; `left` is q."""
        level, slope = self.mean
        mended: Floats = mean + left * (level + slope * mean)
        return mended

    def learn(self, mean: Floats, variance: Floats, left: Floats, successes: Ints, valid: Ints) -> None:
        """Take in explored groups, whose logits had this mean and variance before, all [G]."""
        expected = self.mended(mean, left)
        first, second = binomial_moments(expected, variance, successes, valid)
        along = left[:, None] * np.stack([np.ones(len(mean)), mean], axis=1)
        precision = np.maximum(1.0 - second / variance, 0.0) / variance
        self.take_in(along.T @ ((first - expected) / variance), (along * precision[:, None]).T @ along)
        self.mean[1] = max(self.mean[1], LEAST_SLOPE)

    def metrics(self) -> dict[str, float]:
        """a and b."""
        level, slope = self.mean
        return {"calibration_level": float(level), "calibration_slope": float(slope)}
