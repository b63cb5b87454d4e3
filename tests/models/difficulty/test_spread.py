"""The spread of point forecasts: it finds the error that a simulation puts in."""

import numpy as np
import pytest

from models.difficulty.spread import LEAST, Spread


def make_outcomes(share: float, groups: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forecasts p, and successes of 2 to 8 rollouts whose true probability is Beta around p with sd² = share p(1-p)."""
    rng = np.random.default_rng(seed)
    p, valid = rng.uniform(0.1, 0.9, groups), rng.integers(2, 9, groups)
    strength = 1.0 / share - 1.0
    return p, rng.binomial(valid, rng.beta(p * strength, (1.0 - p) * strength)), valid


def test_before_any_outcome_the_spread_at_even_odds_is_that_of_the_uniform_distribution() -> None:
    assert Spread().p_sd(np.array([0.5])) == pytest.approx(12**-0.5)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_spread_is_the_true_one_whatever_the_noise_of_few_rollouts(share: float) -> None:
    spread = Spread()
    for seed in range(60):
        spread.observe(*make_outcomes(share, seed=seed))
    p = np.array([0.2, 0.5, 0.9])
    assert spread.p_sd(p) ** 2 == pytest.approx(share * p * (1.0 - p), rel=0.1)


def test_sums_equal_a_loop() -> None:
    p, successes, valid = make_outcomes(0.3, groups=20)
    valid[3] = successes[3] = 1  # one rollout says nothing of the group's own probability
    spread = Spread()
    spread.observe(p, successes, valid)
    error, variance = 0.9 * 16 / 12, 0.9 * 16 / 4
    for one, s, n in zip(p, successes, valid, strict=True):
        if n > 1:
            error += (s / n - one) ** 2 - s / n * (1 - s / n) / (n - 1)
            variance += one * (1 - one)
    assert spread.p_sd(np.array([0.3])) == pytest.approx((error / variance * 0.21) ** 0.5)


def test_no_forecast_is_certain_and_none_is_wilder_than_a_coin() -> None:
    sure, wild = Spread(), Spread()
    for _ in range(100):
        sure.observe(np.full(50, 0.5), np.tile([3, 4, 5, 4, 4], 10), np.full(50, 8))
        wild.observe(np.full(50, 0.9), np.zeros(50, np.int64), np.full(50, 8))
    p = np.array([0.5])
    assert sure.p_sd(p) == pytest.approx(LEAST**0.5 / 2) and wild.p_sd(p) == pytest.approx(0.5)


def test_state_restores_the_spread() -> None:
    first, second = Spread(), Spread()
    first.observe(*make_outcomes(0.1))
    second.load(first.state())
    p = np.array([0.4])
    assert second.p_sd(p) == first.p_sd(p) != Spread().p_sd(p)
