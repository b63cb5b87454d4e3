"""The predictors by name."""

from models.difficulty.base import Predictor
from models.difficulty.dps import Dps
from models.difficulty.gp import Gp
from models.difficulty.gps import Gps
from models.difficulty.greso import Greso
from models.difficulty.kalman import Kalman
from models.difficulty.last import Last
from models.difficulty.mean import Mean
from models.difficulty.mopps import Mopps
from models.difficulty.sec import Sec
from models.records import Pool
from models.settings import (
    DpsSettings,
    GpSettings,
    GpsSettings,
    GresoSettings,
    KalmanSettings,
    LastSettings,
    MeanSettings,
    MoppsSettings,
    PredictorSettings,
    SecSettings,
)


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
        case LastSettings():
            return Last(settings, pool)
        case MeanSettings():
            return Mean(settings, pool)
        case KalmanSettings():
            return Kalman(settings, pool)
        case DpsSettings():
            return Dps(settings, pool)
        case GpSettings():
            return Gp(settings, pool, seed=seed)
        case GresoSettings():
            return Greso(settings, pool)
        case SecSettings():
            return Sec(settings, pool)
