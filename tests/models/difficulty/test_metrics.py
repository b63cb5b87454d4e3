"""Forecast quality: against scipy, and against loops over single rollouts."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from models.difficulty.metrics import expected_calibration_error, forecast_quality, ratio_error, weighted_spearman
from models.records import Floats, Ints


def make_groups(seed: int, size: int = 40) -> tuple[Floats, Ints, Ints]:
    """Forecasts with ties, and outcomes of groups of unequal size."""
    rng = np.random.default_rng(seed)
    p_success = np.round(rng.uniform(size=size), 1)
    valid = rng.integers(1, 9, size)
    return p_success, rng.binomial(valid, p_success), valid


def expand(p_success: Floats, successes: Ints, valid: Ints) -> tuple[Floats, Floats]:
    """Forecast and outcome of every single rollout."""
    outcomes = [[1.0] * s + [0.0] * (n - s) for s, n in zip(successes, valid, strict=True)]
    return np.repeat(p_success, valid), np.concatenate(outcomes)


@pytest.mark.parametrize("seed", range(5))
def test_scores_agree_with_scipy_and_with_a_loop_over_rollouts(seed: int) -> None:
    p_success, successes, valid = make_groups(seed)
    found = forecast_quality(p_success, successes, valid)
    p, y = expand(p_success, successes, valid)
    assert found["spearman"] == pytest.approx(spearmanr(p_success, successes / valid).statistic)
    assert found["brier"] == pytest.approx(np.mean((p - y) ** 2))
    likelihood = np.where(y == 1, np.clip(p, 1e-6, 1 - 1e-6), 1 - np.clip(p, 1e-6, 1 - 1e-6))
    assert found["nll"] == pytest.approx(-np.log(likelihood).mean())
    bins = np.minimum(np.floor(p * 10), 9)
    gaps = [(bins == b).mean() * abs(np.mean(p[bins == b]) - np.mean(y[bins == b])) for b in set(bins)]
    assert found["ece"] == pytest.approx(sum(gaps))


@pytest.mark.parametrize("seed", range(3))
def test_whole_weights_are_repetitions(seed: int) -> None:
    p_success, successes, valid = make_groups(seed)
    times = np.random.default_rng(seed).integers(1, 5, len(p_success))
    repeated = forecast_quality(*(np.repeat(values, times) for values in (p_success, successes, valid)))
    assert forecast_quality(p_success, successes, valid, times.astype(float)) == pytest.approx(repeated)


def test_inverse_propensities_undo_a_selection_that_flatters() -> None:
    """Good forecasts are sampled 10 times as often; weighted totals over many draws give the pool's Brier."""
    rng = np.random.default_rng(0)
    p_success, truth = np.full(2000, 0.5), np.where(np.arange(2000) < 1000, 0.5, 1.0)
    propensity = np.where(np.arange(2000) < 1000, 0.5, 0.05)
    successes = rng.binomial(8, truth)
    sampled = rng.uniform(size=2000) < propensity
    valid = np.full(2000, 8)
    groups = (p_success[sampled], successes[sampled], valid[sampled])
    gaps = [forecast_quality(*groups, weights)["ece"] for weights in (None, 1 / propensity[sampled])]
    assert gaps[0] < 0.1 and gaps[1] == pytest.approx(0.25, abs=0.04)


def test_constants_have_no_rank_correlation() -> None:
    one = np.ones(3)
    assert math.isnan(weighted_spearman(np.full(3, 0.5), np.array([0.0, 0.5, 1.0]), one))
    assert math.isnan(weighted_spearman(np.array([0.1, 0.5, 0.9]), one, one))


def test_no_groups_have_no_scores() -> None:
    empty = np.empty(0, np.int64)
    assert all(math.isnan(value) for value in forecast_quality(np.empty(0), empty, empty).values())


def test_certain_and_wrong_stays_finite() -> None:
    quality = forecast_quality(np.array([1.0, 0.0]), np.array([0, 8]), np.array([8, 8]))
    assert quality["brier"] == 1.0 and quality["ece"] == 1.0 and quality["spearman"] == pytest.approx(-1.0)
    assert quality["nll"] == pytest.approx(-math.log(1e-6))


def test_calibration_error_cancels_within_a_bin_only() -> None:
    rates, rollouts = np.array([0.2, 0.6]), np.full(2, 4.0)
    assert expected_calibration_error(np.array([0.42, 0.42]), rates, rollouts) == pytest.approx(0.02)
    assert expected_calibration_error(np.array([0.38, 0.42]), rates, rollouts) == pytest.approx(0.18)


def test_certain_success_falls_into_the_last_bin() -> None:
    rates, rollouts = np.array([1.0, 0.95]), np.full(2, 20.0)
    assert expected_calibration_error(np.array([0.95, 1.0]), rates, rollouts) == pytest.approx(0.0, abs=1e-12)


def test_the_error_of_a_ratio_is_that_of_a_bootstrap_over_units() -> None:
    rng = np.random.default_rng(4)
    weights = rng.integers(1, 30, 400).astype(np.float64)
    totals = weights * rng.normal(0.3, 1.0, 400) + rng.normal(0.0, 2.0, 400)
    drawn = rng.integers(0, 400, (4000, 400))
    ratios = totals[drawn].sum(axis=1) / weights[drawn].sum(axis=1)
    assert ratio_error(totals, weights) == pytest.approx(ratios.std(), rel=0.06)
    assert ratio_error(totals[:1], weights[:1]) == np.inf and ratio_error(weights, weights) == 0.0
