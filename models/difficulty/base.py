"""The interface of every predictor."""

from typing import Protocol

import numpy as np

from models.records import Forecast, Ints, Observation

State = dict[str, np.ndarray]


class Predictor(Protocol):
    """Forecasts success on the prompts of one pool, and learns from observed groups.

    Prompts are named by their row in the pool. All randomness comes from the
    `seed` arguments, so that a predictor restored from its state goes on to the
    same bytes.
    """

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Forecast the prompts at `rows`; changes nothing."""
        ...

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Learn from one step's groups; returns the parts of the loss, by name."""
        ...

    def state_dict(self) -> State:
        """All that `load_state_dict` needs, as named arrays; prompts are named by `prompt_id`."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore a state, also one of another pool: prompts that are not in this pool are left out."""
        ...
