"""How far point forecasts may be off, for predictors whose method gives none."""

import numpy as np

from models.difficulty.base import State
from models.records import Floats, Ints

DECAY = 0.9
"""Weight of everything before the latest batch."""
START_GROUPS = 16.0
"""Groups that the spread before any outcome counts for: that of a uniform p, sd² = p(1 - p) / 3."""
LEAST = 0.01
"""Smallest share of p(1 - p): no forecast is ever certain."""


class Spread:
    """p_sd² = c p(1 - p), as of Beta distributions of one concentration 1/c - 1, with c from earlier errors.

    For a group of success rate r = s/n and true probability g,
    E[(r - p)² - r(1 - r) / (n - 1)] = (g - p)², so that with sums over the groups observed so far,
    recent ones weighing more,

        c = sum [(r - p)² - r(1 - r) / (n - 1)]  /  sum p(1 - p)
    """

    def __init__(self) -> None:
        self._sums = START_GROUPS * np.array([1.0 / 12.0, 1.0 / 4.0])

    def p_sd(self, p_success: Floats) -> Floats:
        """[N] standard deviations."""
        error, variance = self._sums
        share = np.clip(error / variance, LEAST, 1.0)
        deviation: Floats = np.sqrt(share * p_success * (1.0 - p_success))
        return deviation

    def observe(self, p_success: Floats, successes: Ints, valid: Ints) -> None:
        """Add G forecasts and what came of them; groups of one rollout say nothing of g and are left out."""
        told = valid > 1
        p, n = p_success[told], valid[told]
        rate = successes[told] / n
        error = (rate - p) ** 2 - rate * (1.0 - rate) / (n - 1)
        self._sums = DECAY * self._sums + np.array([error.sum(), (p * (1.0 - p)).sum()])

    def state(self) -> State:
        """The two sums."""
        return {"spread": self._sums.copy()}

    def load(self, state: State) -> None:
        """Go on from those sums."""
        self._sums = state["spread"].copy()
