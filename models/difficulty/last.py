"""The success rate of a prompt's last visit: the first baseline that a forecast must beat.

With s successes of n rollouts the forecast is the Beta posterior of that visit
alone, (s + alpha) / (n + alpha + beta), which is never 0 or 1; a prompt without
a visit has the prior's alpha / (alpha + beta).
"""

import numpy as np

from models.difficulty.base import State, encode_ids, match_ids, take_over
from models.difficulty.beta import beta_moments
from models.difficulty.tokens import TokenForecaster
from models.records import Forecast, Ints, Observation, Pool
from models.settings import LastSettings


class Last:
    """The latest group of each prompt."""

    def __init__(self, settings: LastSettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._successes = np.zeros(len(pool), np.int64)
        self._valid = np.zeros(len(pool), np.int64)
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """The shrunk rate, and the doubt that so many rollouts leave; draws nothing."""
        successes, valid = self._successes[rows], self._valid[rows]
        alpha = self._settings.prior_alpha + successes.astype(np.float64)
        beta = self._settings.prior_beta + (valid - successes).astype(np.float64)
        return Forecast(*beta_moments(alpha, beta), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Remember the visits, in place of earlier ones; there is no loss."""
        self._successes[observation.rows] = observation.successes
        self._valid[observation.rows] = observation.valid
        self._tokens.observe(observation.rows, observation.mean_tokens)
        return {}

    def state_dict(self) -> State:
        """The last visit of every prompt."""
        visits = {"successes": self._successes.copy(), "valid": self._valid.copy()}
        return {"prompt_ids": encode_ids(self._pool), **visits, **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Take over the visits of the prompts that are in this pool; its other prompts are unvisited."""
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        take_over(self._successes, 0, state["successes"], theirs, ours)
        take_over(self._valid, 0, state["valid"], theirs, ours)
        self._tokens.load(state, theirs, ours)
