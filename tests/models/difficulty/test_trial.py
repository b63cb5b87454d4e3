"""A predictor on trial: cheats are caught, whatever they do with what they are given."""

import numpy as np
import pytest

from models.difficulty.mean import Mean
from models.difficulty.trial import Trial
from models.errors import ModelError
from models.records import Forecast, Ints, Observation, Pool
from models.settings import MeanSettings

POOL = Pool(("a", "b", "c"))
ROWS = np.array([0, 2])
SEEN = Observation(ROWS, np.array([8, 0]), np.array([8, 8]), np.array([5.0, 6.0]))


class LearnsWhileForecasting(Mean):
    """Counts how often it was asked, and forecasts by that."""

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        self._successes[rows] += 1
        return super().forecast(rows, seed=seed)


class RewritesItsForecasts(Mean):
    """Hands out an array that it keeps, and puts the outcomes there as soon as it knows them."""

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        self.given = super().forecast(rows, seed=seed)
        return self.given

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        self.given.p_success[:] = observation.successes / observation.valid
        return super().observe(observation, seed=seed)


def test_an_honest_predictor_goes_through_with_its_own_forecasts() -> None:
    trial, alone = Trial("mean", Mean(MeanSettings(), POOL)), Mean(MeanSettings(), POOL)
    for _ in range(3):
        assert trial.forecast(ROWS, seed=0).p_success == pytest.approx(alone.forecast(ROWS, seed=0).p_success)
        trial.observe(SEEN, seed=0)
        alone.observe(SEEN, seed=0)


def test_learning_while_it_forecasts_is_caught() -> None:
    with pytest.raises(ModelError, match="predictor sly changed while it forecast"):
        Trial("sly", LearnsWhileForecasting(MeanSettings(), POOL)).forecast(ROWS, seed=0)


def test_rewriting_a_forecast_is_caught_and_gains_nothing() -> None:
    trial = Trial("sly", RewritesItsForecasts(MeanSettings(), POOL))
    frozen = trial.forecast(ROWS, seed=0)
    with pytest.raises(ModelError, match="changed its p_success after it had seen the outcomes"):
        trial.observe(SEEN, seed=0)
    assert frozen.p_success.tolist() == [0.5, 0.5]


def test_outcomes_come_after_forecasts_only() -> None:
    trial = Trial("mean", Mean(MeanSettings(), POOL))
    with pytest.raises(AssertionError):
        trial.observe(SEEN, seed=0)
    trial.forecast(ROWS, seed=0)
    with pytest.raises(AssertionError):
        trial.forecast(ROWS, seed=0)
