"""The predictors that settings can name; one is imported when it is built, because some need torch."""

from collections.abc import Callable
from typing import Any

from models.difficulty.base import Predictor
from models.records import Pool
from models.settings import GpsSettings, MoppsSettings, PredictorSettings


def _gps(settings: GpsSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.gps import Gps

    return Gps(settings, pool, seed=seed)


def _mopps(settings: MoppsSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.mopps import Mopps

    return Mopps(settings, pool)


PREDICTORS: dict[str, Callable[[Any, Pool, int], Predictor]] = {
    "gps": _gps,
    "mopps": _mopps,
}


def build_predictor(settings: PredictorSettings, pool: Pool, *, seed: int) -> Predictor:
    """A fresh predictor for a pool.

    Args:
        seed: of the initial weights, where there are any.
    """
    return PREDICTORS[settings.name](settings, pool, seed)
