"""GRESO: prompts whose groups all agreed of late are likely to agree again (arXiv 2506.02177).

A prompt with z all-right visits in a row, and none since that was mixed, is kept
with probability max(p_easy^z, 0.01), one with z all-wrong visits with
max(p_hard^z, 0.01), any other for certain. After a first epoch p_easy falls by
0.01 in every step whose share of all-right groups reaches its target, and rises
otherwise; likewise p_hard.

GRESO knows of a prompt how long its streak is and nothing else. As a forecast:
with the probability of being kept the success rate can be anything, uniformly;
otherwise it is still 1, or 0. Then E[p (1 - p)], which is
p_success (1 - p_success) - p_sd^2, is a sixth of the probability of being kept,
and from it the acquisition rule `greso` draws.
"""

import numpy as np
from numpy.typing import NDArray

from models.difficulty.base import State, encode_ids, match_ids, take_over
from models.difficulty.tokens import TokenForecaster
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import GresoSettings

LEAST_KEPT = 0.01
_MOVE = 0.01
_LIMITS = (0.05, 0.95)
_EASY_SHARE = 1.0 / 3.0
"""Of the target share of groups that agree, this part is for all-right ones."""


class Greso:
    """Streaks of agreeing groups over the prompts of a pool."""

    def __init__(self, settings: GresoSettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._streak = np.zeros(len(pool), np.int64)  # positive: all-right visits in a row; negative: all-wrong ones
        self._kept_easy = self._kept_hard = settings.keep
        self._groups = 0
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Moments of the success rate that a streak leaves possible; draws nothing."""
        kept, easy = self.kept(rows), self._streak[rows] > 0
        mean = kept / 2.0 + (1.0 - kept) * easy
        square = kept / 3.0 + (1.0 - kept) * easy
        return Forecast(mean, np.sqrt(square - mean**2), self._tokens.forecast(rows))

    def kept(self, rows: Ints) -> Floats:
        """[N] probability that GRESO does not skip each prompt."""
        streak = self._streak[rows]
        base = np.where(streak > 0, self._kept_easy, self._kept_hard)
        kept: Floats = np.maximum(base ** np.abs(streak), LEAST_KEPT)
        return kept

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Lengthen or end the streaks of visited prompts, and adapt; there is no loss."""
        comparable = observation.valid > 1
        rows, successes = observation.rows[comparable], observation.successes[comparable]
        easy, hard = successes == observation.valid[comparable], successes == 0
        before = self._streak[rows]
        self._streak[rows] = np.where(easy, np.maximum(before, 0) + 1, np.where(hard, np.minimum(before, 0) - 1, 0))
        if len(rows) and self._groups >= len(self._pool):
            self._adapt(easy, hard)
        self._groups += len(rows)
        self._tokens.observe(observation.rows, observation.mean_tokens)
        return {"kept_easy": self._kept_easy, "kept_hard": self._kept_hard}

    def state_dict(self) -> State:
        """Streaks of every prompt, and what was adapted."""
        adapted = np.array([self._kept_easy, self._kept_hard, self._groups], np.float64)
        own = {"streak": self._streak.copy(), "adapted": adapted}
        return {"prompt_ids": encode_ids(self._pool), **own, **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Take over the streaks of the prompts that are in this pool; its other prompts have none."""
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        take_over(self._streak, 0, state["streak"], theirs, ours)
        self._kept_easy, self._kept_hard = map(float, state["adapted"][:2])
        self._groups = int(state["adapted"][2])
        self._tokens.load(state, theirs, ours)

    def _adapt(self, easy: NDArray[np.bool_], hard: NDArray[np.bool_]) -> None:
        target = self._settings.agreeing * _EASY_SHARE
        self._kept_easy = _moved(self._kept_easy, float(easy.mean()), target)
        self._kept_hard = _moved(self._kept_hard, float(hard.mean()), self._settings.agreeing - target)


def _moved(kept: float, share: float, target: float) -> float:
    low, high = _LIMITS
    return min(max(kept + (_MOVE if share < target else -_MOVE), low), high)
