"""What steps say of forecasts: against loops over repeated groups and random orders, and against a known selection."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from models.difficulty.by_step import informative_shares, judge_steps
from models.difficulty.metrics import best_half, candidate_weights
from models.difficulty.prequential import Groups
from models.records import Floats


def make_groups(rng: np.random.Generator, weight: Floats, successes: Floats | None = None) -> Groups:
    size = len(weight)
    outcome = rng.integers(0, 5, size) if successes is None else successes
    return Groups(
        run=np.zeros(size, np.int32),
        row=np.arange(size, dtype=np.int32),
        successes=outcome.astype(np.int16),
        valid=np.full(size, 4, np.int16),
        weight=weight.astype(np.float32),
        decision=np.zeros(size, np.int8),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_better_half_is_what_random_order_among_equals_gives_on_average(seed: int) -> None:
    """Whole weights are repetitions, of which half are taken; the half ends among the eight groups in the middle."""
    rng = np.random.default_rng(seed)
    score, positive = np.repeat([0.9, 0.5, 0.1], [2, 8, 2])[rng.permutation(12)], rng.uniform(size=12) < 0.5
    times = 2 * rng.integers(0, 3, 12)
    scores, wins = np.repeat(score, times), np.repeat(positive, times)
    found = []
    for _ in range(4000):
        order = np.lexsort((rng.uniform(size=len(scores)), -scores))
        found.append(wins[order[: len(scores) // 2]].sum())
    won, half = best_half(score, positive, times.astype(float))
    assert half == len(scores) / 2
    assert won == pytest.approx(np.mean(found), abs=4 * np.std(found) / math.sqrt(len(found)))
    assert np.std(found) > 0.1


def test_the_better_half_of_distinct_scores_is_that_of_a_sort() -> None:
    rng = np.random.default_rng(1)
    score, positive = rng.uniform(size=10), rng.uniform(size=10) < 0.5
    assert best_half(score, positive, np.ones(10)) == (positive[np.argsort(-score)[:5]].sum(), 5.0)
    assert best_half(np.ones(1), np.ones(1, np.bool_), np.full(1, 3.0)) == (1.5, 1.5)
    assert best_half(np.empty(0), np.empty(0, np.bool_), np.empty(0)) == (0.0, 0.0)


def test_who_cannot_tell_groups_apart_has_the_share_of_all_in_whatever_order_they_come() -> None:
    positive = np.array([True, True, True, False])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        won, half = best_half(np.full(4, 0.5), positive[order], np.ones(4))
        assert won / half == pytest.approx(0.75)


def test_weights_undo_a_selection_that_left_the_informative_out() -> None:
    """Candidates of known outcome are selected with unequal chances; means over selections give all candidates'."""
    rng = np.random.default_rng(2)
    size, draws = 60, 1500
    chance, positive = np.linspace(0.05, 0.95, size), np.arange(size) % 3 > 0
    propensity = np.where(positive, 0.3, 0.9)
    truth, half = best_half(chance, positive, np.ones(size))
    plain, weighted = np.zeros(2), np.zeros(2)
    for _ in range(draws):
        kept = rng.uniform(size=size) < propensity
        weights = candidate_weights(propensity[kept], np.zeros(kept.sum(), np.int64))
        weighted += best_half(chance[kept], positive[kept], weights)
        plain += best_half(chance[kept], positive[kept], np.ones(kept.sum()))
    assert weighted[0] / weighted[1] == pytest.approx(truth / half, abs=0.015)
    assert plain[0] / plain[1] < truth / half - 0.2


def test_each_step_is_judged_by_its_own_groups_and_their_weights() -> None:
    """Against the same groups repeated as often as they weigh, one step at a time."""
    rng = np.random.default_rng(3)
    sizes = [6, 0, 8, 1, 5]
    weight = rng.integers(0, 4, sum(sizes)).astype(float)
    weight[-5:] = 0  # a step of which no first round is left
    groups = make_groups(rng, weight)
    p, chance = rng.uniform(size=len(weight)), rng.integers(0, 3, len(weight)) / 3
    found, shares = judge_steps(p, chance, groups, sizes), informative_shares(groups, sizes)
    won = half = 0.0
    for step, (end, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True)):
        often = np.repeat(np.arange(end - size, end), weight[end - size : end].astype(int))
        mixed = (groups.successes[often] > 0) & (groups.successes[often] < 4)
        one = best_half(chance[often], mixed, np.ones(len(often)))
        won, half = won + one[0], half + one[1]
        if len(often) == 0:
            assert math.isnan(found.expected[step]) and math.isnan(shares[step]) and math.isnan(found.spearman[step])
            continue
        assert found.expected[step] == pytest.approx(chance[often].mean())
        assert shares[step] == pytest.approx(mixed.mean())
        if len(set(groups.successes[often])) > 1:
            rank = spearmanr(p[often], groups.successes[often]).statistic
            assert found.spearman[step] == pytest.approx(rank)
    assert found.best_half == pytest.approx(won / half)
    assert len(found.spearman) == len(shares) == len(sizes)


def test_groups_count_by_who_selected_them() -> None:
    propensity = np.array([0.25, 0.5, np.nan, 1.0, np.nan])
    assert candidate_weights(propensity, np.array([0, 1, 0, 0, 0])).tolist() == [4.0, 0.0, 1.0, 1.0, 1.0]
