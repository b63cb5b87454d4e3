"""Mean: hand-computed rates of all visits and of a window of them."""

import numpy as np
import pytest
from scipy.stats import beta

from models.difficulty.mean import Mean
from models.records import Observation, Pool
from models.settings import MeanSettings


def make_mean(window: int) -> Mean:
    return Mean(MeanSettings(window=window), Pool(("a", "b", "c")))


def visit(predictor: Mean, row: int, *outcomes: tuple[int, int]) -> None:
    """Successes and valid rollouts of one visit after the other."""
    for successes, valid in outcomes:
        groups = Observation(np.array([row]), np.array([successes]), np.array([valid]), np.array([9.0]))
        predictor.observe(groups, seed=0)


def test_all_visits_count_by_their_rollouts() -> None:
    predictor = make_mean(window=0)
    visit(predictor, 0, (8, 8), (0, 8), (1, 2))
    forecast = predictor.forecast(np.arange(2), seed=0)
    assert forecast.p_success == pytest.approx([10 / 20, 1 / 2])
    assert forecast.p_sd == pytest.approx([beta(10, 10).std(), beta(1, 1).std()])


def test_visits_before_the_window_are_forgotten() -> None:
    predictor = make_mean(window=2)
    visit(predictor, 0, (8, 8), (8, 8), (1, 8), (2, 4))
    visit(predictor, 1, (3, 8))
    assert predictor.forecast(np.arange(3), seed=0).p_success == pytest.approx([4 / 14, 4 / 10, 1 / 2])


def test_a_window_of_many_visits_is_the_mean_of_all() -> None:
    long, all_ = make_mean(window=50), make_mean(window=0)
    for predictor in (long, all_):
        visit(predictor, 2, (3, 8), (5, 7), (8, 8))
    assert (
        long.forecast(np.arange(3), seed=0).p_success.tolist() == all_.forecast(np.arange(3), seed=0).p_success.tolist()
    )


@pytest.mark.parametrize(("window", "expected"), [(1, 8 / 10), (2, 8 / 18), (4, 10 / 26)])
def test_a_state_of_another_window_brings_the_visits_that_fit(window: int, expected: float) -> None:
    before, after = make_mean(window=3), make_mean(window=window)
    visit(before, 0, (4, 8), (2, 8), (0, 8), (7, 8))
    after.load_state_dict(before.state_dict())
    assert after.forecast(np.array([0]), seed=0).p_success == pytest.approx([expected])
