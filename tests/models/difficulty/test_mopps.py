"""MoPPS: the Beta posterior against hand-computed counts and scipy."""

import numpy as np
import pytest
from scipy.stats import beta

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.records import Observation, Pool
from models.settings import MoppsSettings


def make_pool(*ids: str) -> Pool:
    return Pool(ids or ("a", "b", "c", "d"))


def make_predictor(pool: Pool | None = None, decay: float = 0.5) -> Predictor:
    return build_predictor(MoppsSettings(decay=decay), pool or make_pool(), seed=0)


def observe(predictor: Predictor, rows: list[int], successes: list[int], valid: list[int]) -> None:
    tokens = np.arange(len(rows), dtype=np.float64) + 10.0
    predictor.observe(Observation(np.array(rows), np.array(successes), np.array(valid), tokens), seed=0)


def test_visited_prompts_decay_towards_the_prior_and_count_and_others_keep_theirs() -> None:
    predictor = make_predictor()
    observe(predictor, [1], [6], [8])  # alpha 0.5*1 + 0.5*1 + 6 = 7, beta 3
    observe(predictor, [1, 2], [2, 0], [8, 8])  # 1: alpha 3.5 + 0.5 + 2 = 6, beta 1.5 + 0.5 + 6 = 8; 2: alpha 1, beta 9
    forecast = predictor.forecast(np.arange(4), seed=0)
    posteriors = [beta(1, 1), beta(6, 8), beta(1, 9), beta(1, 1)]
    assert forecast.p_success == pytest.approx([posterior.mean() for posterior in posteriors])
    assert forecast.p_sd == pytest.approx([posterior.std() for posterior in posteriors])


def test_priors_written_as_whole_numbers_are_not_truncated_later() -> None:
    predictor = build_predictor(MoppsSettings(prior_alpha=3, prior_beta=1), make_pool(), seed=0)
    observe(predictor, [0], [1], [2])  # alpha 4, beta 2
    observe(predictor, [0], [1], [1])  # alpha 0.5 * 4 + 0.5 * 3 + 1 = 4.5, beta 0.5 * 2 + 0.5 * 1 = 1.5
    assert predictor.forecast(np.array([0]), seed=0).p_success == pytest.approx([4.5 / 6])


def test_one_rollout_is_counted_as_one() -> None:
    predictor = make_predictor(decay=1.0)
    observe(predictor, [0, 1], [1, 0], [1, 1])
    forecast = predictor.forecast(np.array([0, 1]), seed=0)
    assert forecast.p_success == pytest.approx([2 / 3, 1 / 3])
    assert forecast.p_sd == pytest.approx([beta(2, 1).std(), beta(1, 2).std()])


def test_each_group_counts_its_own_valid_rollouts() -> None:
    predictor = make_predictor(decay=1.0)
    observe(predictor, [0, 1], [3, 3], [3, 6])
    assert predictor.forecast(np.array([0, 1]), seed=0).p_success == pytest.approx([4 / 5, 4 / 8])


def test_without_memory_only_the_last_visit_counts() -> None:
    predictor = make_predictor(decay=0.0)
    observe(predictor, [0], [8], [8])
    observe(predictor, [0], [0], [8])
    assert predictor.forecast(np.array([0]), seed=0).p_success == pytest.approx([1 / 10])


def test_restored_predictor_goes_on_as_the_uninterrupted_one() -> None:
    whole = make_predictor()
    observe(whole, [0, 3], [5, 1], [8, 7])
    restored = make_predictor()
    observe(restored, [2], [8], [8])  # what it knew before is gone
    restored.load_state_dict(whole.state_dict())
    for predictor in (whole, restored):
        observe(predictor, [3, 2], [2, 2], [8, 8])
    expected, found = whole.forecast(np.arange(4), seed=0), restored.forecast(np.arange(4), seed=0)
    for name in ("p_success", "p_sd", "expected_tokens"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes()


def test_state_of_another_pool_is_matched_by_prompt_id() -> None:
    first = make_predictor()
    observe(first, [0, 1], [8, 0], [8, 8])
    second = make_predictor(make_pool("x", "b", "a"))
    second.load_state_dict(first.state_dict())
    forecast = second.forecast(np.arange(3), seed=0)
    assert forecast.p_success == pytest.approx([1 / 2, 1 / 10, 9 / 10])
    assert forecast.expected_tokens == pytest.approx([10.5, (11 + 10.5) / 2, (10 + 10.5) / 2])
