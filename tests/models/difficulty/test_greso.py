"""GRESO: hand-counted streaks, the chances to be kept, and how they adapt."""

import numpy as np
import pytest

from models.difficulty.greso import Greso
from models.records import Observation, Pool
from models.settings import GresoSettings


def make_greso(size: int = 4, **settings: float) -> Greso:
    return Greso(GresoSettings(**settings), Pool(tuple(map(str, range(size)))))  # type: ignore[arg-type]


def observe(predictor: Greso, rows: list[int], successes: list[int], valid: int = 8) -> dict[str, float]:
    groups = Observation(np.array(rows), np.array(successes), np.full(len(rows), valid), np.ones(len(rows)))
    return predictor.observe(groups, seed=0)


@pytest.mark.parametrize(
    ("visits", "kept"),
    [
        ([], 1.0),
        ([8], 0.5),
        ([8, 8, 8], 0.125),
        ([0, 0], 0.25),
        ([0] * 9, 0.01),
        ([8, 8, 5], 1.0),
        ([8, 8, 5, 8], 0.5),
        ([8, 8, 0], 0.5),
        ([0, 0, 8, 8], 0.25),
    ],
)
def test_a_streak_of_agreeing_visits_halves_the_chance_to_be_kept(visits: list[int], kept: float) -> None:
    predictor = make_greso(size=100)  # a first epoch so long that nothing adapts
    for successes in visits:
        observe(predictor, [2], [successes])
    assert predictor.kept(np.array([2])) == pytest.approx([kept])


@pytest.mark.parametrize("successes", [1, 7])
def test_a_single_success_or_failure_ends_a_streak(successes: int) -> None:
    """Thresholds on a mean score, 0.11 and 0.98 in the public code, would call one success of ten all-wrong."""
    predictor = make_greso()
    observe(predictor, [0], [0])
    observe(predictor, [0], [successes], valid=10 if successes == 1 else 8)
    assert predictor.kept(np.array([0])) == pytest.approx([1.0])


def test_a_single_valid_rollout_says_nothing_of_agreement() -> None:
    predictor = make_greso()
    observe(predictor, [0], [1], valid=1)
    assert predictor.kept(np.array([0])) == pytest.approx([1.0])


@pytest.mark.parametrize("visits", [[8], [0], [8] * 3, [0] * 9])
def test_the_chance_to_be_kept_is_in_the_forecast(visits: list[int]) -> None:
    predictor = make_greso(size=100)
    for successes in visits:
        observe(predictor, [0], [successes])
    forecast = predictor.forecast(np.array([0, 1]), seed=0)
    spread = forecast.p_success * (1 - forecast.p_success) - forecast.p_sd**2
    assert 6 * spread == pytest.approx(predictor.kept(np.array([0, 1])))
    rng = np.random.default_rng(0)
    kept = rng.uniform(size=400_000) < predictor.kept(np.array([0]))
    draws = np.where(kept, rng.uniform(size=400_000), float(visits[-1] == 8))
    assert forecast.p_success[0] == pytest.approx(draws.mean(), abs=2e-3)
    assert forecast.p_sd[0] == pytest.approx(draws.std(), abs=2e-3)


def test_chances_adapt_after_an_epoch_each_towards_its_own_target() -> None:
    """Targets of a quarter: 1/12 all right, 2/12 all wrong. The pool of four is seen once in the first two steps."""
    predictor = make_greso()
    for _ in range(2):
        assert observe(predictor, [0, 1], [8, 4]) == {"kept_easy": 0.5, "kept_hard": 0.5}
    parts = observe(predictor, [0, 1], [8, 4])  # half all right, none all wrong
    assert parts == pytest.approx({"kept_easy": 0.49, "kept_hard": 0.51})
    parts = observe(predictor, [2, 3], [0, 4])  # none all right, half all wrong
    assert parts == pytest.approx({"kept_easy": 0.5, "kept_hard": 0.5})


def test_chances_stay_within_their_limits() -> None:
    predictor = make_greso(keep=0.93)
    for _ in range(200):
        parts = observe(predictor, [0, 1, 2, 3], [8, 8, 8, 8])
    assert parts == pytest.approx({"kept_easy": 0.05, "kept_hard": 0.95})
