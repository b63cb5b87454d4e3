"""GRESO's filter: candidates are skipped as often as the predictor says, and the batch is filled."""

import numpy as np
import pytest

from models.acquisition.base import Candidates
from models.acquisition.greso import greso
from models.difficulty.greso import Greso
from models.records import Forecast, Observation, Pool
from models.settings import AcquisitionSettings, GresoSettings


def make_candidates(p_success: list[float], p_sd: list[float] | float) -> Candidates:
    mean = np.array(p_success)
    return Candidates(Forecast(mean, np.broadcast_to(p_sd, mean.shape).astype(float), mean), None, None)


def test_a_candidate_is_kept_for_certain_when_it_promises_as_much_as_an_unknown_one() -> None:
    candidates = make_candidates([0.5, 0.5, 0.5, 0.0, 0.25], [0.0, 1 / 12**0.5, 0.4, 0.0, (1 / 6 - 1 / 16) ** 0.5])
    ranking = greso(candidates, 2, AcquisitionSettings(), np.random.default_rng(0))
    assert ranking.utility == pytest.approx([1.0, 1.0, 0.54, 0.01, 0.5])


def test_prompts_are_skipped_as_often_as_the_predictor_greso_says() -> None:
    """Streaks of 0, 1, 2 and 3 visits; one slot for every candidate, so that those kept come first."""
    predictor = Greso(GresoSettings(), Pool(tuple(map(str, range(400)))))
    for visits in range(3):
        rows = np.arange(400)[np.arange(400) % 4 > visits]
        predictor.observe(Observation(rows, np.full(len(rows), 8), np.full(len(rows), 8), np.ones(len(rows))), seed=0)
        predictor._groups = 0  # no epoch passes
    kept = predictor.kept(np.arange(400))
    assert sorted(set(kept)) == [0.125, 0.25, 0.5, 1.0]
    candidates = Candidates(predictor.forecast(np.arange(400), seed=0), None, None)
    early = np.zeros(400)
    for seed in range(500):
        early[greso(candidates, 150, AcquisitionSettings(), np.random.default_rng(seed)).chosen] += 1
    shares = [early[np.arange(400) % 4 == streak].mean() for streak in range(4)]
    assert np.array(shares[1:]) / shares[0] == pytest.approx([0.5, 0.25, 0.125], abs=0.02)


def test_where_too_few_are_kept_skipped_ones_fill_up() -> None:
    candidates = make_candidates([0.0] * 8 + [0.5] * 2, 0.0)
    for seed in range(50):
        ranking = greso(candidates, 5, AcquisitionSettings(), np.random.default_rng(seed))
        assert len(set(ranking.chosen.tolist())) == 5 and {8, 9} <= set(ranking.chosen.tolist())
