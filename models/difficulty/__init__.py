"""The predictors by name."""

from models.difficulty.base import Predictor
from models.difficulty.foreroll import Foreroll
from models.difficulty.gps import Gps
from models.difficulty.mopps import Mopps
from models.records import Pool
from models.settings import ForerollSettings, GpsSettings, MoppsSettings, PredictorSettings


def build_predictor(settings: PredictorSettings, pool: Pool, *, seed: int) -> Predictor:
    """A fresh predictor for a pool.

    Args:
        seed: of the initial weights, where there are any.
    """
    match settings:
        case MoppsSettings():
            return Mopps(settings, pool)
        case GpsSettings():
            return Gps(settings, pool, seed=seed)
        case ForerollSettings():
            return Foreroll(settings, pool, seed=seed)
