"""When a counterfactual value is given, and each reason why it is refused."""

import re

import numpy as np
import pytest

from models.acquisition.counterfactual import Counterfactual, counterfactual_value
from models.acquisition.off_policy import StepSums, weigh_step

SIZE, SLOTS = 100, 20


def make_log(
    steps: int = 20, propensity: float = 0.5, *, logged: float | None = None, share: float = 0.9, seed: int = 0
) -> list[StepSums]:
    """A selector of 20 candidates for certain, of which the run acquired each with a propensity, and logged another."""
    rng = np.random.default_rng(seed)
    inclusion = np.where(np.arange(SIZE) < SLOTS, 1.0, 0.0)
    stated = np.full(SIZE, propensity if logged is None else logged)
    return [
        weigh_step(
            inclusion,
            stated,
            rng.uniform(size=SIZE) < propensity,
            (rng.uniform(size=SIZE) < share).astype(np.float64),
            np.full(SIZE, share),
        )
        for _ in range(steps)
    ]


def is_refused(value: Counterfactual) -> bool:
    assert (value.refusal != "") == (value.snips is None) == (value.doubly_robust is None)
    return value.refusal != ""


def test_well_explored_logs_give_both_estimates() -> None:
    value = counterfactual_value(make_log())
    assert not is_refused(value)
    assert (value.steps, value.groups) == (20, 200.0)
    for estimate in (value.snips, value.doubly_robust):
        assert estimate is not None and estimate.low < 0.9 < estimate.high


def test_no_logs_are_refused() -> None:
    nothing = np.empty(0)
    empty = weigh_step(nothing, nothing, nothing > 0, nothing, nothing)
    for steps in ([], [empty] * 20):
        assert counterfactual_value(steps).refusal == "the history holds no candidates with a logged propensity"


def test_a_wish_for_prompts_that_could_not_be_acquired_is_refused_with_its_share() -> None:
    steps = make_log()
    inclusion, propensity = np.ones(20), np.where(np.arange(20) < 4, 0.0, 1.0)
    steps[7] = weigh_step(inclusion, propensity, propensity > 0, np.ones(20), np.ones(20))
    value = counterfactual_value(steps)
    assert is_refused(value)
    assert value.refusal.startswith("1.0% of its batches would be prompts that the run could not have acquired")


def test_too_few_steps_are_refused() -> None:
    assert "9 logged steps are too few" in counterfactual_value(make_log(steps=9)).refusal
    assert not is_refused(counterfactual_value(make_log(steps=10, propensity=0.6)))


def test_too_little_exploration_is_refused_whatever_came_out() -> None:
    """20 steps of 20 prompts at a propensity of 1 in 10 are worth 40.0 groups; at 0.13 they are worth 52."""
    for share in (0.0, 0.5, 1.0):
        for seed in range(5):
            value = counterfactual_value(make_log(propensity=0.1, share=share, seed=seed))
            assert "too little was explored: the logs are worth 40.0 groups" in value.refusal
    assert not is_refused(counterfactual_value(make_log(propensity=0.26, share=0.99)))


def test_a_few_rare_candidates_among_certain_ones_count_although_none_was_met() -> None:
    """10 of 20 at a propensity of 1 in 1,000: what was acquired weighs alike, and yet says nothing of the others."""
    inclusion, propensity = np.ones(20), np.where(np.arange(20) < 10, 1.0, 0.001)
    step = weigh_step(inclusion, propensity, propensity == 1.0, np.ones(20), np.ones(20))
    assert "too little was explored" in counterfactual_value([step] * 30).refusal


def test_propensities_that_do_not_fit_what_was_acquired_are_refused() -> None:
    value = counterfactual_value(make_log(propensity=0.6, logged=0.3))
    assert is_refused(value) and "do not fit what was acquired: its inverse weights sum to 2.0" in value.refusal
    assert not any(is_refused(counterfactual_value(make_log(seed=seed))) for seed in range(200))


def test_an_interval_too_wide_to_say_anything_is_refused_with_its_width() -> None:
    """104 groups of a share of 0.5 span 2 * 2.16 * 0.049 at least, by the variance that is foreseen."""
    value = counterfactual_value(make_log(propensity=0.26, share=0.5))
    assert is_refused(value) and value.groups == pytest.approx(104.0)
    said = re.fullmatch(
        r"the 95 % interval would span (0\.\d\d), and one wider than 0\.2 says nothing: .*", value.refusal
    )
    assert said and 0.21 <= float(said[1]) < 0.3
