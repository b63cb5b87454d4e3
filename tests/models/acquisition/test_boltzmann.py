"""Boltzmann sampling: one slot is a softmax, and temperature decides how sharp it is."""

import numpy as np
import pytest
from scipy.special import softmax

from models.acquisition.base import Candidates
from models.acquisition.boltzmann import boltzmann
from models.records import Forecast
from models.settings import AcquisitionSettings


def make_candidates(p_success: list[float], p_sd: float = 0.0) -> Candidates:
    mean = np.array(p_success)
    return Candidates(Forecast(mean, np.full(len(mean), p_sd), mean), None, None)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_one_slot_is_drawn_from_the_softmax_of_the_values(temperature: float) -> None:
    candidates, counts = make_candidates([0.5, 0.2, 0.9, 0.05]), np.zeros(4)
    settings = AcquisitionSettings(temperature=temperature)
    for seed in range(5000):
        counts[boltzmann(candidates, 1, settings, np.random.default_rng(seed)).chosen] += 1
    value = 2 * np.sqrt(np.array([0.5, 0.2, 0.9, 0.05]) * np.array([0.5, 0.8, 0.1, 0.95]))
    assert counts / 5000 == pytest.approx(softmax(value / temperature), abs=4 * 0.5 / 5000**0.5)


def test_utility_is_the_mean_absolute_advantage() -> None:
    ranking = boltzmann(make_candidates([0.5, 0.25]), 1, AcquisitionSettings(), np.random.default_rng(0))
    group = np.array([1.0, 0.0, 0.0, 0.0])
    assert ranking.utility == pytest.approx([1.0, np.abs((group - group.mean()) / group.std()).mean()])


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_extreme_temperatures_rank_or_draw_uniformly(temperature: float) -> None:
    candidates = make_candidates([0.5, 0.1, 0.45, 0.0])
    ranking = boltzmann(candidates, 2, AcquisitionSettings(temperature=temperature), np.random.default_rng(0))
    assert ranking.inclusion is not None and np.isfinite(ranking.inclusion).all()
    if temperature < 1:
        assert ranking.chosen.tolist() == [0, 2]
        assert ranking.inclusion == pytest.approx([1.0, 0.0, 1.0, 0.0])
