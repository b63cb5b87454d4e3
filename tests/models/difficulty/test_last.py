"""Last: hand-computed rates of the last visit."""

import numpy as np
import pytest
from scipy.stats import beta

from models.difficulty.last import Last
from models.records import Observation, Pool
from models.settings import LastSettings


def make_last(**settings: float) -> Last:
    return Last(LastSettings(**settings), Pool(("a", "b", "c")))  # type: ignore[arg-type]


def observe(predictor: Last, rows: list[int], successes: list[int], valid: list[int]) -> None:
    groups = Observation(np.array(rows), np.array(successes), np.array(valid), np.full(len(rows), 9.0))
    predictor.observe(groups, seed=0)


def test_only_the_last_visit_counts_and_is_shrunk() -> None:
    predictor = make_last()
    observe(predictor, [0, 1], [8, 3], [8, 8])
    observe(predictor, [0], [0], [8])
    forecast = predictor.forecast(np.arange(3), seed=0)
    posteriors = [beta(1, 9), beta(4, 6), beta(1, 1)]
    assert forecast.p_success == pytest.approx([0.1, 0.4, 0.5])
    assert forecast.p_sd == pytest.approx([posterior.std() for posterior in posteriors])


def test_the_prior_is_what_is_added() -> None:
    predictor = make_last(prior_alpha=3.0, prior_beta=1.0)
    observe(predictor, [0], [1], [4])
    assert predictor.forecast(np.array([0, 1]), seed=0).p_success == pytest.approx([4 / 8, 3 / 4])


def test_one_rollout_is_counted_as_one() -> None:
    predictor = make_last()
    observe(predictor, [0, 1], [1, 0], [1, 1])
    assert predictor.forecast(np.array([0, 1]), seed=0).p_success == pytest.approx([2 / 3, 1 / 3])
