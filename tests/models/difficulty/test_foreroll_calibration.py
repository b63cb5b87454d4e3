import numpy as np
import pytest
from scipy.special import expit

from models.difficulty.foreroll_calibration import Calibration

GROUPS = 6
"""Explored in a step: five per cent of 128."""


def test_explored_groups_tell_how_forecasts_are_off() -> None:
    """Logits that are lower and less spread than forecast, by as much as is left to be known of each prompt."""
    rng, calibration = np.random.default_rng(0), Calibration()
    level, slope = -0.4, -0.15
    for _ in range(200):
        mean, left = rng.normal(-1.0, 1.5, GROUPS), rng.uniform(0.5, 1.0, GROUPS)
        logits = mean + left * (level + slope * mean) + rng.normal(0.0, 1.0, GROUPS)
        successes = rng.binomial(8, expit(logits))
        calibration.learn(mean, np.ones(GROUPS), left, successes, np.full(GROUPS, 8))
        calibration.move()
    mean = np.array([-3.0, 0.0, 2.0])
    assert calibration.mended(mean, np.ones(3)) - mean == pytest.approx(level + slope * mean, abs=0.2)
    assert calibration.mended(mean, np.full(3, 0.5)) - mean == pytest.approx((level + slope * mean) / 2, abs=0.1)
    assert calibration.mended(mean, np.zeros(3)).tolist() == mean.tolist()


def test_forecasts_that_are_right_are_left_alone() -> None:
    rng, calibration = np.random.default_rng(1), Calibration()
    added = []
    for _ in range(200):
        mean = rng.normal(-1.0, 1.5, GROUPS)
        successes = rng.binomial(8, expit(mean + rng.normal(0.0, 1.0, GROUPS)))
        calibration.learn(mean, np.ones(GROUPS), np.ones(GROUPS), successes, np.full(GROUPS, 8))
        calibration.move()
        added.append(calibration.mended(np.array([-1.0]), np.ones(1))[0] + 1.0)
    assert np.sqrt(np.mean(np.square(added))) < 0.12


def test_one_group_is_learned_from_as_an_integral_over_line_and_logit_says() -> None:
    """The posterior mean of a + b m, where a, b and the prompt's own doubt are Gaussian, on a grid of both parts."""
    calibration, mean, variance = Calibration(), np.array([-1.5]), np.array([1.2])
    calibration.learn(mean, variance, np.ones(1), np.array([7]), np.array([8]))
    added = calibration.mended(mean, np.ones(1)) - mean
    spread = 0.2**2 + (0.1 * 1.5) ** 2  # of a + b m before the group
    line = np.linspace(-2.0, 2.0, 801)[:, None]
    own = np.linspace(-8.0, 8.0, 1601)[None, :]
    logit = mean + line + own
    density = expit(logit) ** 7 * expit(-logit) * np.exp(-(line**2) / (2 * spread) - own**2 / (2 * variance))
    assert added == pytest.approx([(density * line).sum() / density.sum()], rel=0.1)


def test_no_explored_groups_change_nothing() -> None:
    calibration, nothing = Calibration(), np.empty(0)
    calibration.learn(np.array([0.7]), np.ones(1), np.ones(1), np.array([0]), np.array([8]))
    before = calibration.state()
    calibration.learn(nothing, nothing, nothing, nothing.astype(np.int64), nothing.astype(np.int64))
    for name, array in calibration.state().items():
        np.testing.assert_allclose(array, before[name], rtol=1e-12)


def test_no_groups_turn_the_order_of_forecasts_round() -> None:
    """Hundreds in one batch, all the contrary of what was forecast."""
    rng, calibration = np.random.default_rng(0), Calibration()
    mean = rng.normal(0.0, 2.0, 300)
    for _ in range(5):
        calibration.learn(mean, np.full(300, 9.0), np.ones(300), np.where(mean < 0, 8, 0), np.full(300, 8))
        low, high = calibration.mended(np.array([-2.0, 2.0]), np.ones(2))
        assert low < high
