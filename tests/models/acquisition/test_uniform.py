"""Uniform: every candidate is drawn equally often."""

import numpy as np
import pytest

from models.acquisition.base import Candidates
from models.acquisition.uniform import uniform
from models.records import Forecast
from models.settings import AcquisitionSettings


def make_candidates(p_success: list[float]) -> Candidates:
    size = len(p_success)
    return Candidates(Forecast(np.array(p_success), np.full(size, 0.1), np.full(size, 1.0)), None, None)


def test_uniform_draws_every_candidate_equally_often() -> None:
    """4000 draws of 3 of 12; 31.3 is the 0.1 % point of chi-square with 11 degrees of freedom."""
    candidates, counts = make_candidates([0.01] * 6 + [0.5] * 6), np.zeros(12)
    for seed in range(4000):
        ranking = uniform(candidates, 3, AcquisitionSettings(), np.random.default_rng(seed))
        counts[ranking.chosen] += 1
        assert ranking.inclusion is not None and ranking.inclusion.tolist() == [0.25] * 12
    assert ((counts - 1000) ** 2 / 1000).sum() < 31.3


@pytest.mark.parametrize(("slots", "inclusion"), [(0, 0.0), (2, 1.0)])
def test_no_slots_include_nobody_and_as_many_as_candidates_everybody(slots: int, inclusion: float) -> None:
    ranking = uniform(make_candidates([0.3, 0.7]), slots, AcquisitionSettings(), np.random.default_rng(0))
    assert sorted(ranking.chosen) == list(range(slots))
    assert ranking.inclusion is not None and ranking.inclusion.tolist() == [inclusion] * 2
