"""Which predictor's state another can take over."""

import numpy as np
import pytest

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.states import fits
from models.records import Observation, Pool
from models.settings import (
    DepoSettings,
    DotsSettings,
    DpsSettings,
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

GPS = GpsSettings(width=8, latent=4, z_samples=2)


def make_predictor(settings: PredictorSettings, pool: int = 6, dim: int = 3) -> Predictor:
    embeddings = np.eye(pool, dim, dtype=np.float32)
    ids, categories = tuple(f"p{row}" for row in range(pool)), tuple("ab"[row % 2] for row in range(pool))
    return build_predictor(settings, Pool(ids, embeddings, categories, hidden=lambda rows: embeddings[rows]), seed=0)


def trained(settings: PredictorSettings, pool: int = 6) -> Predictor:
    predictor = make_predictor(settings, pool)
    observation = Observation(np.arange(4), np.array([0, 1, 2, 2]), np.full(4, 2), np.full(4, 9.0))
    predictor.observe(observation, seed=1)
    return predictor


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (GPS, GPS),
        (GPS, GpsSettings(width=8, latent=4, z_samples=5, lr=0.1, kl_weight=0.0)),
        (MoppsSettings(), MoppsSettings(decay=0.9, prior_alpha=3.0)),
        (DepoSettings(width=8), DepoSettings(width=8, warmup_batches=0)),
        (DotsSettings(width=8), DotsSettings(width=8, reference=2)),
        (PclSettings(width=8), PclSettings(width=8, loss="binomial")),
        (KalmanSettings(), KalmanSettings(process_sd=0.5)),
        (DpsSettings(), DpsSettings(decay=0.9)),
        (GpSettings(references=4), GpSettings(references=4, amplitude=1.0)),
        (GresoSettings(), GresoSettings(agreeing=0.5)),
        (LastSettings(), LastSettings(prior_alpha=2.0)),
        (MeanSettings(), MeanSettings(prior_beta=2.0)),
        (SecSettings(), SecSettings(rate=0.1)),
    ],
    ids=lambda one: one.name,
)
@pytest.mark.parametrize("pool", [6, 9])
def test_a_state_that_fits_can_be_loaded(before: PredictorSettings, after: PredictorSettings, pool: int) -> None:
    state, ours = trained(before).state_dict(), make_predictor(after, pool)
    assert fits(state, ours.state_dict())
    ours.load_state_dict(state)
    assert ours.state_dict()["visits"].sum() == 4


@pytest.mark.parametrize(
    ("before", "after", "dim"),
    [
        (GPS, GpsSettings(width=9, latent=4), 3),
        (GPS, GpsSettings(width=8, latent=5), 3),
        (GPS, GPS, 2),
        (GPS, MoppsSettings(), 3),
        (MoppsSettings(), GPS, 3),
        (GPS, GpsSettings(width=8, latent=4, encoder="transformer"), 3),
        (DepoSettings(width=8), DepoSettings(width=10), 3),
        (GpSettings(references=4), GpSettings(references=5), 3),
    ],
)
def test_a_state_of_another_shape_or_predictor_does_not_fit(
    before: PredictorSettings, after: PredictorSettings, dim: int
) -> None:
    assert not fits(trained(before).state_dict(), make_predictor(after, dim=dim).state_dict())
