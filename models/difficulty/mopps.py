"""MoPPS: a Beta posterior for each prompt, with forgetting (KDD 2026).

At each visit with s successes of n rollouts,

    alpha <- lambda * alpha + (1 - lambda) * alpha_0 + s
    beta  <- lambda * beta  + (1 - lambda) * beta_0  + n - s

Prompts that are not visited keep their counts.
"""

import numpy as np

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.tokens import TokenForecaster
from models.records import Forecast, Ints, Observation, Pool
from models.settings import MoppsSettings


class Mopps:
    """Independent Beta posteriors over the prompts of a pool."""

    def __init__(self, settings: MoppsSettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._alpha = np.full(len(pool), settings.prior_alpha, np.float64)
        self._beta = np.full(len(pool), settings.prior_beta, np.float64)
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Mean and standard deviation of each posterior; draws nothing."""
        alpha, beta = self._alpha[rows], self._beta[rows]
        total = alpha + beta
        mean = alpha / total
        return Forecast(mean, np.sqrt(mean * (1.0 - mean) / (total + 1.0)), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Update the posteriors of the visited prompts; there is no loss."""
        keep, rows = self._settings.decay, observation.rows
        successes, failures = observation.successes, observation.valid - observation.successes
        self._alpha[rows] = keep * self._alpha[rows] + (1.0 - keep) * self._settings.prior_alpha + successes
        self._beta[rows] = keep * self._beta[rows] + (1.0 - keep) * self._settings.prior_beta + failures
        self._tokens.observe(rows, observation.mean_tokens)
        return {}

    def state_dict(self) -> State:
        """Counts of every prompt."""
        counts = {"alpha": self._alpha.copy(), "beta": self._beta.copy()}
        return {"prompt_ids": encode_ids(self._pool), **counts, **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Take over the counts of the prompts that are in this pool; its other prompts have the prior's."""
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        self._alpha[:] = self._settings.prior_alpha
        self._beta[:] = self._settings.prior_beta
        self._alpha[ours] = state["alpha"][theirs]
        self._beta[ours] = state["beta"][theirs]
        self._tokens.load(state, theirs, ours)
