"""KGPS: a Kalman filter on the logit of each prompt's success (arXiv 2607.27610).

The logit x of a prompt does a random walk while the policy changes. A visit
after d steps, whose outcome is linearised to a logit z with error variance R,
does

    v' = min(v + q d, v_0)        gain = v' / (v' + R)
    m <- m + gain (z - m)         v <- (1 - gain) v'

How far an update moved the policy is not observed here, so steps stand for it.
A prompt that rested long is doubted as much as one that was never seen, and not
more. Forecasts are the moments of sigmoid(x), x ~ N(m, v').
"""

import numpy as np

from models.difficulty.base import State, encode_ids, match_ids, take_over
from models.difficulty.logit_normal import linearised, success_moments
from models.difficulty.tokens import TokenForecaster
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import KalmanSettings


class Kalman:
    """Independent filters over the prompts of a pool."""

    def __init__(self, settings: KalmanSettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._mean = np.full(len(pool), settings.prior_mean, np.float64)
        self._variance = np.full(len(pool), settings.prior_sd**2, np.float64)
        self._visited = np.zeros(len(pool), np.int64)
        self._step = 0
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Moments of each prompt's success, one step after the last that was observed; draws nothing."""
        moments = success_moments(self._mean[rows], self._variance_at(rows, self._step + 1))
        return Forecast(*moments, self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """One step: filter the visited prompts. The loss part is the mean squared innovation, in its own variance."""
        self._step += 1
        rows = observation.rows
        before = self._variance_at(rows, self._step)
        seen, error = linearised(self._mean[rows], before, observation.successes, observation.valid)
        innovation, gain = seen - self._mean[rows], before / (before + error)
        self._mean[rows] += gain * innovation
        self._variance[rows] = (1.0 - gain) * before
        self._visited[rows] = self._step
        self._tokens.observe(rows, observation.mean_tokens)
        return {"innovation": float(np.mean(innovation**2 / (before + error)))} if len(rows) else {}

    def state_dict(self) -> State:
        """Belief and last visit of every prompt."""
        beliefs = {"mean": self._mean.copy(), "variance": self._variance.copy(), "visited": self._visited.copy()}
        return {"prompt_ids": encode_ids(self._pool), **beliefs, "step": np.array(self._step), **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Take over the beliefs on the prompts that are in this pool; its other prompts have the prior's."""
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        take_over(self._mean, self._settings.prior_mean, state["mean"], theirs, ours)
        take_over(self._variance, self._settings.prior_sd**2, state["variance"], theirs, ours)
        take_over(self._visited, 0, state["visited"], theirs, ours)
        self._step = int(state["step"])
        self._tokens.load(state, theirs, ours)

    def _variance_at(self, rows: Ints, step: int) -> Floats:
        grown = self._variance[rows] + self._settings.process_sd**2 * (step - self._visited[rows])
        limited: Floats = np.minimum(grown, self._settings.prior_sd**2)
        return limited
