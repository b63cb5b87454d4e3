import math
import statistics

import pytest

from models.policy.advantages import EPSILON, group_advantages


def test_advantages_are_standard_scores_with_the_sample_deviation():
    rewards = [1.0, 0.0, 0.5, 0.0]
    mean, std = statistics.mean(rewards), statistics.stdev(rewards)
    expected = [(reward - mean) / (std + EPSILON) for reward in rewards]
    assert group_advantages(rewards, normalise_std=True) == pytest.approx(expected, rel=1e-12)


def test_without_normalisation_advantages_are_differences_from_the_mean():
    assert group_advantages([1.0, 0.0, 0.0, 0.0], normalise_std=False) == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1e-300, -7.3])
@pytest.mark.parametrize("normalise_std", [True, False])
def test_equal_rewards_give_exact_zeros(reward, normalise_std):
    assert group_advantages([reward] * 7, normalise_std=normalise_std) == [0.0] * 7


def test_rewards_that_differ_by_one_rounding_are_not_equal():
    low, high = 0.1, math.nextafter(0.1, 1.0)
    first, second = group_advantages([low, high], normalise_std=False)
    assert first <= 0.0 < second


@pytest.mark.parametrize("invalid", [None, math.nan, math.inf])
def test_an_invalid_reward_gets_no_advantage_and_moves_no_statistic(invalid):
    with_invalid = group_advantages([1.0, invalid, 0.0, 0.0], normalise_std=True)
    without = group_advantages([1.0, 0.0, 0.0], normalise_std=True)
    assert with_invalid[1] is None
    assert [with_invalid[0], *with_invalid[2:]] == without


@pytest.mark.parametrize("rewards", [[], [1.0], [None, None], [math.nan, 1.0, None]])
def test_a_group_with_fewer_than_two_valid_rewards_is_not_trained_on(rewards):
    assert group_advantages(rewards, normalise_std=True) == [None] * len(rewards)


def test_zeros_of_an_equal_group_skip_its_invalid_member():
    assert group_advantages([1.0, None, 1.0], normalise_std=True) == [0.0, None, 0.0]
