"""Whether what one predictor has learned can be taken over by another."""

from typing import Any

from numpy.typing import NDArray

from models.difficulty.base import State


def fits(state: State, fresh: State) -> bool:
    """Whether a state holds every array of a fresh one, in the shapes that the settings gave it.

    A first dimension that counts prompts may differ: those of the pool, or
    those observed last, of which a fresh predictor has none.
    """
    pool = len(fresh.get("prompt_ids", ()))
    return all(name in state and _matches(state[name], array, pool) for name, array in fresh.items())


def _matches(stored: NDArray[Any], fresh: NDArray[Any], pool: int) -> bool:
    if fresh.ndim and len(fresh) in (0, pool):
        return stored.ndim == fresh.ndim and stored.shape[1:] == fresh.shape[1:]
    return stored.shape == fresh.shape
