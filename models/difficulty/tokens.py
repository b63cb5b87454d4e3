"""Forecasts how long the responses to a prompt will be, from how long they were."""

import numpy as np

from models.difficulty.base import State
from models.records import Floats, Ints, Pool

SHRINKAGE = 1.0
"""Weight of the mean over all prompts, in visits, against a prompt's own visits."""


class TokenForecaster:
    """Mean response length of each prompt's visits, shrunk towards the mean over all prompts."""

    def __init__(self, pool: Pool) -> None:
        self._visits = np.zeros(len(pool))
        self._tokens = np.zeros(len(pool))

    def forecast(self, rows: Ints) -> Floats:
        """[N] expected response tokens; NaN before anything was observed."""
        total = self._visits.sum()
        if total == 0:
            return np.full(len(rows), np.nan)
        overall = self._tokens.sum() / total
        expected: Floats = (self._tokens[rows] + SHRINKAGE * overall) / (self._visits[rows] + SHRINKAGE)
        return expected

    def observe(self, rows: Ints, mean_tokens: Floats) -> None:
        """Add one visit of each row, but of those whose length is not known (NaN)."""
        known = ~np.isnan(mean_tokens)
        np.add.at(self._visits, rows[known], 1.0)
        np.add.at(self._tokens, rows[known], mean_tokens[known])

    def state(self) -> State:
        """Arrays in row order."""
        return {"visits": self._visits.copy(), "visit_tokens": self._tokens.copy()}

    def load(self, state: State, theirs: Ints, ours: Ints) -> None:
        """Take over the entries `theirs` of a state as our rows `ours`; other rows are unvisited."""
        self._visits[:] = 0.0
        self._tokens[:] = 0.0
        self._visits[ours] = state["visits"][theirs]
        self._tokens[ours] = state["visit_tokens"][theirs]
