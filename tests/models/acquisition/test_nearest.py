"""Nearest: hand-computed utilities and ties."""

import numpy as np
import pytest

from models.acquisition.base import Candidates
from models.acquisition.nearest import nearest
from models.records import Forecast
from models.settings import AcquisitionSettings


def make_candidates(p_success: list[float]) -> Candidates:
    size = len(p_success)
    return Candidates(Forecast(np.array(p_success), np.full(size, 0.1), np.full(size, 1.0)), None, None)


def test_nearest_ranks_by_the_square_of_the_distance_and_ties_by_position() -> None:
    ranking = nearest(make_candidates([0.75, 0.5, 0.25, 0.9, 0.3]), 4, AcquisitionSettings(), np.random.default_rng(0))
    assert ranking.chosen.tolist() == [1, 4, 0, 2]
    assert ranking.utility == pytest.approx([-0.0625, 0.0, -0.0625, -0.16, -0.04])
    assert np.isnan(ranking.diversity).all() and ranking.inclusion is None


def test_nearest_follows_the_target() -> None:
    settings = AcquisitionSettings(target=0.8)
    assert nearest(make_candidates([0.5, 0.9, 0.75]), 2, settings, np.random.default_rng(0)).chosen.tolist() == [2, 1]
