"""The interface of every predictor."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.records import Forecast, Ints, Observation, Pool

State = dict[str, NDArray[Any]]
"""Named arrays, as safetensors holds them."""


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


def encode_ids(pool: Pool) -> NDArray[np.uint8]:
    """[pool, 32] `prompt_id`s as ASCII bytes, since safetensors holds no strings."""
    return np.array(pool.prompt_ids, dtype="S32").view(np.uint8).reshape(len(pool), 32)


def match_ids(pool: Pool, encoded: NDArray[np.uint8]) -> tuple[Ints, Ints]:
    """Entries of an encoded id list that are in the pool, and the pool's rows of each."""
    row_of = {prompt_id: row for row, prompt_id in enumerate(pool.prompt_ids)}
    ids = [bytes(row).rstrip(b"\0").decode() for row in encoded]
    theirs = [entry for entry, prompt_id in enumerate(ids) if prompt_id in row_of]
    return np.array(theirs, np.int64), np.array([row_of[ids[entry]] for entry in theirs], np.int64)


def take_over(ours_values: NDArray[Any], fresh: Any, stored: NDArray[Any], theirs: Ints, ours: Ints) -> None:
    """Set our rows `ours` to the stored entries `theirs`, and all other rows to `fresh`."""
    ours_values[:] = fresh
    ours_values[ours] = stored[theirs]
