"""The predictors that settings can name; one is imported when it is built, because some need torch."""

from collections.abc import Callable
from typing import Any

from models.difficulty.base import Predictor
from models.records import Pool
from models.settings import (
    DepoSettings,
    DotsSettings,
    DpsSettings,
    ForerollSettings,
    GpSettings,
    GpsSettings,
    GresoSettings,
    KalmanSettings,
    LastSettings,
    MeanSettings,
    MoppsSettings,
    PclSettings,
    PredictorSettings,
    SecSettings,
)


def _depo(settings: DepoSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.depo import Depo

    return Depo(settings, pool, seed=seed)


def _dots(settings: DotsSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.dots import Dots

    return Dots(settings, pool, seed=seed)


def _dps(settings: DpsSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.dps import Dps

    return Dps(settings, pool)


def _foreroll(settings: ForerollSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.foreroll import Foreroll

    return Foreroll(settings, pool, seed=seed)


def _gp(settings: GpSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.gp import Gp

    return Gp(settings, pool, seed=seed)


def _gps(settings: GpsSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.gps import Gps

    return Gps(settings, pool, seed=seed)


def _greso(settings: GresoSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.greso import Greso

    return Greso(settings, pool)


def _kalman(settings: KalmanSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.kalman import Kalman

    return Kalman(settings, pool)


def _last(settings: LastSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.last import Last

    return Last(settings, pool)


def _mean(settings: MeanSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.mean import Mean

    return Mean(settings, pool)


def _mopps(settings: MoppsSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.mopps import Mopps

    return Mopps(settings, pool)


def _pcl(settings: PclSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.pcl import Pcl

    return Pcl(settings, pool, seed=seed)


def _sec(settings: SecSettings, pool: Pool, seed: int) -> Predictor:
    from models.difficulty.sec import Sec

    return Sec(settings, pool)


PREDICTORS: dict[str, Callable[[Any, Pool, int], Predictor]] = {
    "depo": _depo,
    "dots": _dots,
    "dps": _dps,
    "foreroll": _foreroll,
    "gp": _gp,
    "gps": _gps,
    "greso": _greso,
    "kalman": _kalman,
    "last": _last,
    "mean": _mean,
    "mopps": _mopps,
    "pcl": _pcl,
    "sec": _sec,
}


def build_predictor(settings: PredictorSettings, pool: Pool, *, seed: int) -> Predictor:
    """A fresh predictor for a pool.

    Args:
        seed: of the initial weights, where there are any.
    """
    return PREDICTORS[settings.name](settings, pool, seed)
