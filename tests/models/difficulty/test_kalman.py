"""The Kalman filter against exact filtering on a grid, and what time does to a belief."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, norm

from models.difficulty.kalman import Kalman
from models.records import Observation, Pool
from models.settings import KalmanSettings


def make_kalman(**settings: float) -> Kalman:
    return Kalman(KalmanSettings(**settings), Pool(("a", "b", "c")))  # type: ignore[arg-type]


def observe(predictor: Kalman, rows: list[int], successes: list[int], valid: int = 8) -> None:
    groups = Observation(
        np.array(rows, np.int64), np.array(successes, np.int64), np.full(len(rows), valid), np.ones(len(rows))
    )
    predictor.observe(groups, seed=0)


def filter_on_grid(outcomes: list[int | None], process_sd: float, prior_sd: float) -> tuple[float, float]:
    """Mean and sd of the success rate one step after the outcomes, by brute force over 1,201 logits."""
    x = np.linspace(-12, 12, 1201)
    belief = norm.pdf(x, 0, prior_sd)
    move = norm.pdf(x[:, None] - x[None], 0, process_sd)
    move /= move.sum(axis=0)
    for outcome in outcomes:
        if outcome is not None:
            belief = belief * binom.pmf(outcome, 8, expit(x))
        belief = move @ belief
        belief /= belief.sum()
    mean = float((belief * expit(x)).sum())
    return mean, float(np.sqrt((belief * (expit(x) - mean) ** 2).sum()))


@pytest.mark.parametrize(
    "outcomes", [[4], [2, 3], [6, 7, 6, 5], [1, 2, None, None, 2, 4, 5, 6], [4, None, None, None, None, None, 3]]
)
def test_forecasts_are_nearly_those_of_exact_filtering(outcomes: list[int | None]) -> None:
    predictor = make_kalman(process_sd=0.3, prior_sd=2.0)
    for outcome in outcomes:
        observe(predictor, [] if outcome is None else [1], [] if outcome is None else [outcome])
    forecast = predictor.forecast(np.array([1]), seed=0)
    mean, sd = filter_on_grid(outcomes, 0.3, 2.0)
    assert forecast.p_success == pytest.approx([mean], abs=0.012)
    assert forecast.p_sd == pytest.approx([sd], abs=0.015)


def test_doubt_grows_with_the_steps_since_the_last_visit_and_no_further_than_the_priors() -> None:
    predictor = make_kalman(process_sd=0.4)
    observe(predictor, [0], [4])
    doubts = []
    for _ in range(60):
        doubts.append(float(predictor.forecast(np.array([0]), seed=0).p_sd[0]))
        observe(predictor, [2], [1])
    assert all(later > earlier for earlier, later in pairwise(doubts[:20]))
    unknown = predictor.forecast(np.array([1]), seed=0).p_sd[0]
    assert max(doubts) == pytest.approx(unknown, rel=1e-6)


def test_an_unchanging_policy_makes_doubt_shrink_with_every_visit() -> None:
    predictor = make_kalman(process_sd=0.0)
    doubts = []
    for _ in range(30):
        observe(predictor, [0], [4])
        doubts.append(float(predictor.forecast(np.array([0]), seed=0).p_sd[0]))
    assert doubts == sorted(doubts, reverse=True)
    assert doubts[-1] == pytest.approx(0.5 / np.sqrt(240), rel=0.05)


def test_a_policy_that_moves_is_followed_sooner_the_more_it_moves() -> None:
    found = {}
    for process_sd in (0.05, 0.5):
        predictor = make_kalman(process_sd=process_sd)
        for outcome in [1] * 20 + [7] * 3:
            observe(predictor, [0], [outcome])
        found[process_sd] = float(predictor.forecast(np.array([0]), seed=0).p_success[0])
    assert found[0.05] < 0.35 and found[0.5] > 0.6


def test_innovations_have_unit_variance_when_the_model_is_true() -> None:
    """Logits do the random walk that the filter expects; groups of 64 make the linearisation's error small."""
    rng, size = np.random.default_rng(0), 2000
    predictor = Kalman(KalmanSettings(process_sd=0.2, prior_sd=1.0), Pool(tuple(map(str, range(size)))))
    logits, rows = rng.normal(0, 1, size), np.arange(size)
    for _ in range(10):
        logits += rng.normal(0, 0.2, size)
        groups = Observation(rows, rng.binomial(64, expit(logits)), np.full(size, 64), np.ones(size))
        parts = predictor.observe(groups, seed=0)
    assert parts["innovation"] == pytest.approx(1.0, abs=0.15)
