"""SEC: categories of prompts as the arms of a bandit (arXiv 2505.14970).

After each step the value of every category that was visited moves towards the
mean absolute advantage of its groups, which for success rates r, with
advantages in standard deviations, is

    Q <- Q + alpha (mean of 2 sqrt(r (1 - r)) - Q)

and its success rate likewise. All prompts of a category are forecast alike:
p_success is that rate, and p_sd such that
2 sqrt(p_success (1 - p_success) - p_sd^2) = Q, by which the acquisition rule
`boltzmann` draws.
"""

import math

import numpy as np
from numpy.typing import NDArray

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.tokens import TokenForecaster
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import SecSettings

_UNSEEN_RATE = 0.5
_UNSEEN_VALUE = 2.0 * math.sqrt(1.0 / 6.0)
"""Value of a success rate that can be anything, uniformly."""


class Sec:
    """Value and success rate of each category."""

    def __init__(self, settings: SecSettings, pool: Pool) -> None:
        """Start with all categories alike.

        Raises:
            ValueError: the pool has no categories.
        """
        if len(pool.categories) != len(pool):
            raise ValueError("predictor sec needs the categories of the pool's prompts")
        self._settings = settings
        self._pool = pool
        self._names, self._arms = np.unique(np.array(pool.categories, dtype=np.str_), return_inverse=True)
        self._value = np.full(len(self._names), _UNSEEN_VALUE)
        self._rate = np.full(len(self._names), _UNSEEN_RATE)
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Rate and spread of each prompt's category; draws nothing."""
        arms = self._arms[rows]
        spread = np.sqrt(np.maximum(self._rate * (1.0 - self._rate) - self._value**2 / 4.0, 0.0))
        return Forecast(self._rate[arms], spread[arms], self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Move value and rate of the visited categories; there is no loss."""
        arms, rates = self._arms[observation.rows], observation.successes / observation.valid
        self._move(self._value, arms, 2.0 * np.sqrt(rates * (1.0 - rates)))
        self._move(self._rate, arms, rates)
        self._tokens.observe(observation.rows, observation.mean_tokens)
        return {}

    def state_dict(self) -> State:
        """Value and rate of every category, by name."""
        own = {"names": encode_names(self._names), "value": self._value.copy(), "rate": self._rate.copy()}
        return {"prompt_ids": encode_ids(self._pool), **own, **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Take over the categories that this pool has; its others are as if never visited."""
        entry_of = {name: entry for entry, name in enumerate(decode_names(state["names"]))}
        for arm, name in enumerate(self._names):
            entry = entry_of.get(str(name))
            self._value[arm] = _UNSEEN_VALUE if entry is None else state["value"][entry]
            self._rate[arm] = _UNSEEN_RATE if entry is None else state["rate"][entry]
        self._tokens.load(state, *match_ids(self._pool, state["prompt_ids"]))

    def _move(self, values: Floats, arms: Ints, seen: Floats) -> None:
        groups = np.bincount(arms, minlength=len(values))
        visited = groups > 0
        mean = np.bincount(arms, seen, minlength=len(values))[visited] / groups[visited]
        values[visited] += self._settings.rate * (mean - values[visited])


def encode_names(names: NDArray[np.str_]) -> NDArray[np.uint8]:
    """[categories, width] names as UTF-8 bytes filled up with zeros."""
    encoded = np.array([str(name).encode() for name in names], dtype=np.bytes_)
    return encoded.view(np.uint8).reshape(len(names), encoded.itemsize)


def decode_names(encoded: NDArray[np.uint8]) -> list[str]:
    """The names that `encode_names` encoded."""
    return [bytes(row).rstrip(b"\0").decode() for row in encoded]
