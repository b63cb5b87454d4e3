"""The rules that are one line: nearest and uniform."""

import numpy as np
import pytest

from models.acquisition.base import Candidates, smallest
from models.acquisition.nearest import nearest
from models.acquisition.uniform import uniform
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


def test_smallest_keeps_the_order_of_equal_values() -> None:
    values = np.tile([1.0, 0.0], 500)
    assert smallest(values, 600).tolist() == [*range(1, 1000, 2), *range(0, 200, 2)]


def test_uniform_draws_every_candidate_equally_often() -> None:
    """4000 draws of 3 of 12; 31.3 is the 0.1 % point of chi-square with 11 degrees of freedom."""
    candidates, counts = make_candidates([0.01] * 6 + [0.5] * 6), np.zeros(12)
    for seed in range(4000):
        ranking = uniform(candidates, 3, AcquisitionSettings(), np.random.default_rng(seed))
        counts[ranking.chosen] += 1
        assert ranking.inclusion is not None and ranking.inclusion.tolist() == [0.25] * 12
    assert ((counts - 1000) ** 2 / 1000).sum() < 31.3
