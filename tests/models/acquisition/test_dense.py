"""The dense simulator: which group stands for a prompt, what an oracle gets, and what choosers see."""

from itertools import pairwise

import numpy as np
import pytest

from models.acquisition.dense import DenseHistory, simulate
from models.difficulty.mean import Mean
from models.records import Observation, PastRuns, Pool
from models.settings import AcquisitionSettings, MeanSettings

POOL = Pool(tuple(f"{row:032x}" for row in range(40)))


def make_history(steps: int = 20) -> PastRuns:
    """Every prompt in every second step, in no order; the first ten always mixed, the others always right."""
    row, step = (values.ravel() for values in np.meshgrid(np.arange(40), np.arange(2, 2 * steps + 2, 2)))
    order = np.random.default_rng(0).permutation(len(row))
    row, step = row[order], step[order]
    successes = np.where(row < 10, 4, 8)
    return PastRuns(np.zeros_like(row), step, row, successes, np.full(len(row), 8), 100.0 + step)


def test_the_latest_group_up_to_a_step_stands_for_a_prompt_and_before_it_the_first() -> None:
    row, step = np.array([1, 0, 1, 1]), np.array([7, 5, 3, 9])
    told = PastRuns(np.zeros(4, np.int64), step, row, np.arange(4), np.full(4, 8), np.zeros(4))
    history = DenseHistory(told, 3)
    assert history.rows.tolist() == [0, 1]
    expected = {1: [1, 2], 3: [1, 2], 6: [1, 2], 7: [1, 0], 8: [1, 0], 9: [1, 3]}
    for at, successes in expected.items():
        assert history.successes[history.at(at, np.array([0, 1]))].tolist() == successes


def test_a_learner_beats_chance_and_an_oracle_misses_nothing_where_nothing_changes() -> None:
    history = DenseHistory(make_history(), len(POOL))
    results = {}
    for rule in ("informative", "uniform"):
        settings = AcquisitionSettings(name=rule, batch_size=5, cooldown=1)  # type: ignore[arg-type]
        results[rule] = simulate(history, Mean(MeanSettings(), POOL), POOL, settings, seed=0)
    assert results["uniform"].hit_rate == pytest.approx(0.25, abs=0.1)
    assert results["informative"].hit_rate > 0.5
    for one in results.values():
        assert one.oracle == 1.0 and one.groups == 100
        assert one.regret == pytest.approx(1.0 - one.hit_rate)


def test_a_greedy_oracle_can_be_beaten_by_luck() -> None:
    """Prompts 0 and 1 are mixed in both steps, 2 and 3 in the first alone, 4 and 5 never; one step of rest."""
    row, step = np.tile(np.arange(6), 2), np.repeat([1, 2], 6)
    successes = np.array([4, 4, 4, 4, 8, 8, 4, 4, 8, 8, 8, 8])
    told = PastRuns(np.zeros(12, np.int64), step, row, successes, np.full(12, 8), np.full(12, 10.0))
    settings = AcquisitionSettings(name="uniform", batch_size=2, cooldown=1)
    pool, history = Pool(POOL.prompt_ids[:6]), DenseHistory(told, 6)
    results = [simulate(history, Mean(MeanSettings(), pool), pool, settings, seed=at) for at in range(400)]
    assert {one.oracle for one in results} == {0.5}
    assert max(one.hit_rate for one in results) == 1.0
    assert min(one.regret for one in results) == -0.5


def test_tokens_are_those_of_all_rollouts_and_everything_is_seeded() -> None:
    history = DenseHistory(make_history(steps=1), len(POOL))
    settings = AcquisitionSettings(name="uniform", batch_size=5)
    first, second = (simulate(history, Mean(MeanSettings(), POOL), POOL, settings, seed=3) for _ in range(2))
    assert first == second and first.tokens == 5 * 8 * 102.0


def test_a_predictor_sees_the_outcomes_of_its_choices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Observation] = []
    monkeypatch.setattr(Mean, "observe", lambda self, observation, seed: seen.append(observation) or {})
    settings = AcquisitionSettings(name="nearest", batch_size=5, cooldown=3)
    result = simulate(DenseHistory(make_history(), len(POOL)), Mean(MeanSettings(), POOL), POOL, settings, seed=0)
    assert [len(set(one.rows.tolist())) for one in seen] == [5] * 20
    for before, after in pairwise(seen):
        assert not set(before.rows.tolist()) & set(after.rows.tolist())
    assert result.distinct == len({row for one in seen for row in one.rows.tolist()})
    assert all(one.explored is not None and one.explored.tolist() == [False] * 4 + [True] for one in seen)
