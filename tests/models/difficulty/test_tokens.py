"""Expected response tokens: hand-computed shrunk means."""

import numpy as np
import pytest

from models.difficulty.tokens import TokenForecaster
from models.records import Pool


def test_nothing_observed_gives_nan() -> None:
    assert np.isnan(TokenForecaster(Pool(("a", "b"))).forecast(np.array([1, 0]))).all()


def test_own_mean_is_shrunk_to_the_mean_over_all_visits() -> None:
    tokens = TokenForecaster(Pool(("a", "b", "c")))
    tokens.observe(np.array([0, 1]), np.array([10.0, 40.0]))
    tokens.observe(np.array([0]), np.array([16.0]))
    overall = (10 + 40 + 16) / 3
    expected = [(10 + 16 + overall) / 3, (40 + overall) / 2, overall]
    assert tokens.forecast(np.arange(3)) == pytest.approx(expected)
