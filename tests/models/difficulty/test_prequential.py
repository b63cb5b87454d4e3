"""Prequential judgement: against loops over pairs and rollouts, and the bootstrap against repeated histories."""

import math
from dataclasses import fields

import numpy as np
import pytest
from scipy.stats import spearmanr

from models.acquisition.informative import chance_informative
from models.difficulty.metrics import auc_of_levels, forecast_quality, levels
from models.difficulty.prequential import Groups, Tally, calibration, chance_of, judge
from models.records import Floats, Forecast


def make_groups(rng: np.random.Generator, prompts: int = 30, visits: int = 4, spread: float = 1.0) -> Groups:
    """Groups of prompts that differ; a third was explored, the rest acquired; some are of later rounds."""
    truth = 1 / (1 + np.exp(-spread * rng.normal(size=prompts)))
    row = np.repeat(np.arange(prompts, dtype=np.int32), visits)
    decision = (rng.uniform(size=len(row)) < 1 / 3).astype(np.int8)
    weight = np.where(decision == 1, 6.0, 1.0) * (rng.uniform(size=len(row)) < 0.8)
    successes = rng.binomial(8, truth[row]).astype(np.int16)
    one_run, valid = np.zeros(len(row), np.int32), np.full(len(row), 8, np.int16)
    return Groups(one_run, row, successes, valid, weight.astype(np.float32), decision)


def forecasts(rng: np.random.Generator, groups: Groups) -> tuple[Floats, Floats]:
    p = np.round(np.clip(groups.successes / groups.valid + rng.normal(0, 0.3, len(groups.row)), 0.02, 0.98), 2)
    return p, 1 - p**8 - (1 - p) ** 8


@pytest.mark.parametrize("seed", range(3))
def test_area_is_the_share_of_pairs_that_are_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, positive, weight = rng.integers(0, 6, 40), rng.uniform(size=40) < 0.4, rng.uniform(size=40)
    won = pairs = 0.0
    for i in np.flatnonzero(positive):
        for j in np.flatnonzero(~positive):
            pairs += weight[i] * weight[j]
            won += weight[i] * weight[j] * ((score[i] > score[j]) + 0.5 * (score[i] == score[j]))
    assert auc_of_levels(levels(score.astype(float)), positive, weight) == pytest.approx(won / pairs)
    assert math.isnan(auc_of_levels(score, np.ones(40, np.bool_), weight))


def test_slices_hold_the_groups_they_name_and_no_others() -> None:
    rng = np.random.default_rng(0)
    groups = make_groups(rng)
    p, chance = forecasts(rng, groups)
    found = judge(p, chance, groups, rng, resamples=5)
    weights = {
        "candidates": groups.weight.astype(float),
        "explored": (groups.decision == 1).astype(float),
        "acquired": (groups.decision == 0).astype(float),
    }
    for name, weight in weights.items():
        expected = forecast_quality(*(values[weight > 0] for values in (p, groups.successes, groups.valid, weight)))
        assert {key: found[name][key].value for key in expected} == pytest.approx(expected, rel=1e-6)


def test_slices_without_groups_are_absent() -> None:
    none = Groups(*(np.empty(0, kind) for kind in (np.int32, np.int32, np.int16, np.int16, np.float32, np.int8)))
    assert judge(np.empty(0), np.empty(0), none, np.random.default_rng(0)) == {}
    assert calibration(np.empty(0), none) == []


def test_ranks_are_compared_within_runs_and_weighted_by_their_groups() -> None:
    """One who knows how able each model is, and nothing of the prompts, ranks no better than chance."""
    rng = np.random.default_rng(5)
    row = np.tile(np.arange(60, dtype=np.int32), 3)
    run = np.repeat(np.array([0, 1, 2], np.int32), 60)
    ability = np.array([0.2, 0.5, 0.8])[run]
    successes, full = rng.binomial(8, ability).astype(np.int16), np.full(180, 8, np.int16)
    p = ability + rng.normal(0, 0.01, 180)
    groups = Groups(run, row, successes, full, np.ones(180, np.float32), np.full(180, -1, np.int8))
    keeps = np.delete(np.arange(180), np.s_[20:60])  # 20 groups of the first run, 60 of the others
    parts = Groups(*(getattr(groups, one.name)[keeps] for one in fields(Groups)))
    found = judge(p[keeps], -abs(p[keeps] - 0.5), parts, rng, resamples=20)["candidates"]
    rates = parts.successes / 8
    each = [spearmanr(p[keeps][parts.run == one], rates[parts.run == one]).statistic for one in range(3)]
    assert found["spearman"].value == pytest.approx(np.average(each, weights=[20, 60, 60]))
    assert spearmanr(p, successes).statistic > 0.8 and abs(found["spearman"].value) < 0.25
    assert found["spearman"].low < found["spearman"].value < found["spearman"].high
    assert abs(found["auc"].value - 0.5) < 0.15


def test_a_run_in_which_ranks_are_undefined_counts_for_nothing() -> None:
    run, rates = np.array([0, 0, 0, 1, 1, 2], np.int32), np.array([1, 4, 6, 8, 8, 3], np.int16)
    groups = Groups(
        run,
        np.arange(6, dtype=np.int32),
        rates,
        np.full(6, 8, np.int16),
        np.ones(6, np.float32),
        np.full(6, -1, np.int8),
    )
    p = np.array([0.1, 0.2, 0.3, 0.5, 0.6, 0.9])
    assert judge(p, p, groups, np.random.default_rng(0), resamples=20)["candidates"]["spearman"].value == 1.0


def test_intervals_are_as_wide_as_histories_of_other_prompts_differ() -> None:
    """Prompts' groups are alike, so the spread of the Brier score is that of prompts, and not of groups."""
    scores, widths = [], []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        groups = make_groups(rng, prompts=60, visits=10, spread=2.5)
        groups.weight[:] = 1.0
        p = np.full(len(groups.row), 0.5)
        p[groups.row % 2 == 0] = 0.2
        brier = judge(p, p, groups, rng, resamples=60)["candidates"]["brier"]
        scores.append(brier.value)
        widths.append(brier.high - brier.low)
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.std(scores), rel=0.25)


def test_the_same_seed_gives_the_same_intervals() -> None:
    groups = make_groups(np.random.default_rng(1))
    p, chance = forecasts(np.random.default_rng(2), groups)
    first, second = (judge(p, chance, groups, np.random.default_rng(3), resamples=20) for _ in range(2))
    assert first == second


def test_chance_is_that_of_each_groups_own_size() -> None:
    forecast = Forecast(np.array([0.3, 0.5, 0.9]), np.array([0.1, 0.2, 0.05]), np.full(3, np.nan))
    found = chance_of(forecast, np.array([2, 8, 2]))
    assert found[[0, 2]] == pytest.approx(chance_informative(forecast, 2)[[0, 2]])
    assert found[1] == pytest.approx(chance_informative(forecast, 8)[1])


def test_calibration_bins_are_weighted_means() -> None:
    groups = Groups(
        run=np.zeros(3, np.int32),
        row=np.array([0, 1, 2], np.int32),
        successes=np.array([2, 6, 8], np.int16),
        valid=np.array([8, 8, 8], np.int16),
        weight=np.array([1.0, 3.0, 4.0], np.float32),
        decision=np.full(3, -1, np.int8),
    )
    found = calibration(np.array([0.42, 0.46, 0.99]), groups)
    assert found[0] == pytest.approx(((0.42 + 3 * 0.46) / 4, (0.25 + 3 * 0.75) / 4, 0.5))
    assert found[1] == pytest.approx((0.99, 1.0, 0.5))


def test_a_tally_joins_what_was_added_in_order() -> None:
    tally = Tally()
    tally.add(a=np.array([1, 2]))
    tally.add(a=np.array([3]))
    assert tally.column("a").tolist() == [1, 2, 3]
    tally.add(a=np.array([4]))
    assert tally.column("a").tolist() == [1, 2, 3, 4]
