"""The predictors by name."""

from models.difficulty.base import Predictor
from models.difficulty.depo import Depo
from models.difficulty.dots import Dots
from models.difficulty.gps import Gps
from models.difficulty.mopps import Mopps
from models.difficulty.pcl import Pcl
from models.records import Pool
from models.settings import DepoSettings, DotsSettings, GpsSettings, MoppsSettings, PclSettings, PredictorSettings


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
        case DepoSettings():
            return Depo(settings, pool, seed=seed)
        case DotsSettings():
            return Dots(settings, pool, seed=seed)
        case PclSettings():
            return Pcl(settings, pool, seed=seed)
