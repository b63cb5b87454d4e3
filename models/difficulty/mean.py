"""The mean success rate of a prompt's visits: of all of them, or of the latest few.

Rollouts of the visits are counted together, S of N, and the forecast is their
Beta posterior (S + alpha) / (N + alpha + beta).
"""

import numpy as np

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.beta import beta_moments
from models.difficulty.tokens import TokenForecaster
from models.records import Forecast, Ints, Observation, Pool
from models.settings import MeanSettings


class Mean:
    """The latest `window` groups of each prompt, or the sum of all its groups."""

    def __init__(self, settings: MeanSettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        shape = (len(pool), max(settings.window, 1))
        self._successes = np.zeros(shape, np.int32)
        self._valid = np.zeros(shape, np.int32)
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """The shrunk rate, and the doubt that so many rollouts leave; draws nothing."""
        successes, valid = self._successes[rows].sum(axis=1), self._valid[rows].sum(axis=1)
        alpha = self._settings.prior_alpha + successes
        beta = self._settings.prior_beta + valid - successes
        return Forecast(*beta_moments(alpha, beta), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Add the visits; there is no loss."""
        rows = observation.rows
        for visits, new in ((self._successes, observation.successes), (self._valid, observation.valid)):
            if self._settings.window:
                visits[rows, 1:] = visits[rows, :-1]
                visits[rows, 0] = new
            else:
                visits[rows, 0] += new.astype(np.int32)
        self._tokens.observe(rows, observation.mean_tokens)
        return {}

    def state_dict(self) -> State:
        """The visits of every prompt, latest first."""
        visits = {"successes": self._successes.copy(), "valid": self._valid.copy()}
        return {"prompt_ids": encode_ids(self._pool), **visits, **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Take over the prompts that are in this pool; of a longer window, the visits that fit."""
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        kept = min(self._valid.shape[1], state["valid"].shape[1])
        for visits, name in ((self._successes, "successes"), (self._valid, "valid")):
            visits[:] = 0
            visits[ours, :kept] = state[name][theirs, :kept]
        self._tokens.load(state, theirs, ours)
