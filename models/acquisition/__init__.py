"""The acquisition rules by name."""

import numpy as np
from numpy.typing import NDArray

from models.acquisition.band import band
from models.acquisition.base import Candidates, Rule, choose
from models.acquisition.boltzmann import boltzmann
from models.acquisition.gps import gps
from models.acquisition.greso import greso
from models.acquisition.informative import informative
from models.acquisition.nearest import nearest
from models.acquisition.per_token import per_token
from models.acquisition.thompson import thompson
from models.acquisition.uniform import uniform
from models.records import Forecast, Ints, Pool, Selection
from models.settings import AcquisitionSettings

RULES: dict[str, Rule] = {
    "band": band,
    "boltzmann": boltzmann,
    "gps": gps,
    "greso": greso,
    "informative": informative,
    "nearest": nearest,
    "per_token": per_token,
    "thompson": thompson,
    "uniform": uniform,
}


def select(
    forecast: Forecast,
    rows: Ints,
    *,
    pool: Pool,
    previous: Ints,
    settings: AcquisitionSettings,
    rng: np.random.Generator,
    group_size: int = 8,
) -> Selection:
    """Decide on every available candidate.

    Args:
        forecast: of the N candidates.
        rows: [N] their pool rows.
        previous: pool rows of the batch before.
        group_size: rollouts that each chosen prompt gets (k).

    Raises:
        ValueError: a forecast is not finite.
    """
    if len(rows) == 0:
        nothing = np.empty(0)
        return Selection(rows, nothing, nothing, nothing, (), np.empty(0, np.int64))
    wrong = ~(np.isfinite(forecast.p_success) & np.isfinite(forecast.p_sd))
    if wrong.any():
        raise ValueError(f"the forecast of prompt {pool.prompt_ids[rows[wrong.argmax()]]} is not finite")
    candidates = Candidates(
        forecast=forecast,
        embeddings=_embeddings_of(pool, rows),
        previous=None if pool.embeddings is None else pool.embeddings[previous],
        group_size=group_size,
    )
    return choose(RULES[settings.name], candidates, rows, settings, rng)


def _embeddings_of(pool: Pool, rows: Ints) -> NDArray[np.float32] | None:
    """[N, dim]; the pool's own array where the rows are all of it in order, since a copy may take gigabytes."""
    if pool.embeddings is None or np.array_equal(rows, np.arange(len(pool))):
        return pool.embeddings
    return pool.embeddings[rows]
