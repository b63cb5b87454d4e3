"""Forecasts response lengths from features, for prompts seen and unseen, and from a prompt's own visits."""

import numpy as np
from numpy.typing import NDArray

from models.difficulty.base import State, take_over
from models.difficulty.tokens import TokenForecaster
from models.records import Floats, Ints, Pool

KEEP = 0.98
"""Share of the evidence that one step leaves of the steps before."""
PENALTY = 3.0
LEAST = 1.0
PAST_GROUPS = 256.0
"""Groups of a run that all groups of past runs together are worth, at most: another policy writes at another length."""


class FeatureTokens:
    """Ridge regression of group means on features, with forgetting; own visits are shrunk towards it.

    With features x_i, whose first is 1, and lengths y_i in tokens,
    A <- KEEP A + sum x x', b <- KEEP b + sum x y, and w = (A + PENALTY diag(0, 1, ..., 1))^-1 b.
    """

    def __init__(self, pool: Pool, features: NDArray[np.float32]) -> None:
        self._features = features
        width = features.shape[1]
        self._square, self._product = np.zeros((width, width)), np.zeros(width)
        self._rest = TokenForecaster(pool)
        self._lengths = np.zeros(len(pool))
        if pool.past is not None:
            self._begin(pool.past.row, pool.past.mean_tokens)

    def forecast(self, rows: Ints) -> Floats:
        """[N] expected response tokens, at least 1; NaN before any length is known, of past runs or this one."""
        if not self._square.any():
            return np.full(len(rows), np.nan)
        apart = np.nan_to_num(self._rest.forecast(rows), nan=0.0)  # NaN where no visit of this run had a length yet
        return np.maximum(self._shared(rows) + apart, LEAST)

    def observe(self, rows: Ints, mean_tokens: Floats) -> None:
        """Learn the lengths of one step's groups, but of those whose length is not known (NaN)."""
        rows, mean_tokens = rows[~np.isnan(mean_tokens)], mean_tokens[~np.isnan(mean_tokens)]
        features = self._features[rows].astype(np.float64)
        self._square = KEEP * self._square + features.T @ features
        self._product = KEEP * self._product + features.T @ mean_tokens
        self._rest.observe(rows, mean_tokens - self._shared(rows))
        np.add.at(self._lengths, rows, mean_tokens)

    def state(self) -> State:
        """Sums of the regression, and in row order the visits with their residuals and their whole lengths."""
        return {
            "token_square": self._square.copy(),
            "token_product": self._product.copy(),
            "visit_lengths": self._lengths.copy(),
            **self._rest.state(),
        }

    def load(self, state: State, theirs: Ints, ours: Ints, *, same_features: bool) -> None:
        """Take over the visits of known rows; other features are fitted to the whole lengths of these anew."""
        take_over(self._lengths, 0.0, state["visit_lengths"], theirs, ours)
        self._rest.load(state, theirs, ours)
        if same_features:
            self._square[:], self._product[:] = state["token_square"], state["token_product"]
            return
        features, visits = self._features[ours].astype(np.float64), state["visits"][theirs]
        self._square = features.T @ (visits[:, None] * features)
        self._product = features.T @ self._lengths[ours]
        residuals = self._lengths[ours] - visits * self._shared(ours)
        self._rest.load({"visits": visits, "visit_tokens": residuals}, np.arange(len(ours)), ours)

    def _begin(self, rows: Ints, mean_tokens: Floats) -> None:
        """Fit the weights to the lengths of past runs."""
        rows, mean_tokens = rows[~np.isnan(mean_tokens)], mean_tokens[~np.isnan(mean_tokens)]
        features = self._features[rows].astype(np.float64)
        worth = min(1.0, PAST_GROUPS / max(len(rows), 1))
        self._square, self._product = worth * (features.T @ features), worth * (features.T @ mean_tokens)

    def _shared(self, rows: Ints) -> Floats:
        ridge = np.full(len(self._product), PENALTY)
        ridge[0] = 1e-6
        weights = np.linalg.solve(self._square + np.diag(ridge), self._product)
        shared: Floats = (self._features[rows] @ weights.astype(np.float32)).astype(np.float64)
        return shared
