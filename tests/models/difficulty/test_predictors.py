"""What every predictor promises: forecasts that can be used, and a state that is all there is."""

from pathlib import Path

import numpy as np
import pytest

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.metrics import forecast_quality
from models.records import Forecast, Observation, Pool
from models.settings import (
    DpsSettings,
    GpSettings,
    GresoSettings,
    KalmanSettings,
    LastSettings,
    MeanSettings,
    MoppsSettings,
    PredictorSettings,
    SecSettings,
)
from storage.checkpoints import load_arrays, save_arrays

SIZE, DIM = 40, 8
SETTINGS: list[PredictorSettings] = [
    LastSettings(),
    MeanSettings(),
    MeanSettings(window=0),
    MoppsSettings(),
    KalmanSettings(),
    DpsSettings(),
    GpSettings(references=16),
    GresoSettings(),
    SecSettings(),
]
EACH = pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: f"{one.name}{getattr(one, 'window', '')}")
OWN_MEMORY = [one for one in SETTINGS if one.name not in ("gp", "sec")]
"""Those that remember each prompt by itself."""


def make_pool(ids: list[str] | None = None) -> Pool:
    """Prompts whose embedding and category follow from their id."""
    names = ids or [f"p{row}" for row in range(SIZE)]
    rows = [np.random.default_rng(int(name[1:])).standard_normal(DIM) for name in names]
    embeddings = np.array([row / np.linalg.norm(row) for row in rows], np.float32)
    return Pool(tuple(names), embeddings, tuple("abc"[int(name[1:]) % 3] for name in names))


def make_observation(seed: int, groups: int = 8) -> Observation:
    rng = np.random.default_rng(seed)
    rows, valid = rng.choice(SIZE, groups, replace=False), rng.integers(1, 9, groups)
    return Observation(rows, rng.binomial(valid, rng.uniform(size=groups)), valid, rng.uniform(5, 20, groups))


def make_trained(settings: PredictorSettings, steps: int = 12) -> Predictor:
    predictor = build_predictor(settings, make_pool(), seed=0)
    for step in range(steps):
        predictor.observe(make_observation(step), seed=step)
    return predictor


def bits(forecast: Forecast) -> tuple[bytes, ...]:
    return tuple(values.tobytes() for values in (forecast.p_success, forecast.p_sd, forecast.expected_tokens))


def everything(predictor: Predictor) -> Forecast:
    return predictor.forecast(np.arange(SIZE), seed=3)


@EACH
@pytest.mark.parametrize("steps", [0, 1, 60])
def test_forecasts_are_never_certain_and_always_finite(settings: PredictorSettings, steps: int) -> None:
    forecast = everything(make_trained(settings, steps))
    assert ((forecast.p_success > 0.0) & (forecast.p_success < 1.0)).all()
    assert (np.isfinite(forecast.p_sd) & (forecast.p_sd >= 0.0)).all()
    spread = forecast.p_success * (1.0 - forecast.p_success)
    assert (forecast.p_sd**2 <= spread).all()  # no distribution on [0, 1] is wider
    assert np.isnan(forecast.expected_tokens).all() == (steps == 0)


@EACH
def test_prompts_that_nothing_is_known_of_are_a_toss_up(settings: PredictorSettings) -> None:
    forecast = everything(build_predictor(settings, make_pool(), seed=0))
    assert forecast.p_success == pytest.approx(np.full(SIZE, 0.5))
    assert (forecast.p_sd > 0.2).all()


@EACH
def test_prompts_that_always_succeed_are_forecast_above_those_that_always_fail(settings: PredictorSettings) -> None:
    predictor = build_predictor(settings, make_pool(["p0", "p1", "p2"]), seed=0)
    for step in range(6):
        outcomes = np.array([8, 0, 4])
        predictor.observe(Observation(np.arange(3), outcomes, np.full(3, 8), np.full(3, 9.0)), seed=step)
    right, wrong, mixed = predictor.forecast(np.arange(3), seed=0).p_success
    assert wrong < 0.35 < mixed < 0.65 < right


@pytest.mark.parametrize("settings", OWN_MEMORY, ids=lambda one: f"{one.name}{getattr(one, 'window', '')}")
def test_one_rollout_is_weaker_evidence_than_eight(settings: PredictorSettings) -> None:
    """MoPPS's public code counts a visit of one rollout as one of many."""
    predictor = build_predictor(settings, make_pool(["p0", "p1", "p2", "p3"]), seed=0)
    outcomes, valid = np.array([1, 8, 0, 0]), np.array([1, 8, 1, 8])
    predictor.observe(Observation(np.arange(4), outcomes, valid, np.full(4, 9.0)), seed=0)
    right_once, right, wrong_once, wrong = predictor.forecast(np.arange(4), seed=0).p_success
    assert wrong < wrong_once <= 0.5 <= right_once < right


@EACH
def test_forecasting_changes_nothing(settings: PredictorSettings) -> None:
    predictor = make_trained(settings)
    before = predictor.state_dict()
    assert bits(everything(predictor)) == bits(everything(predictor))
    after = predictor.state_dict()
    assert all(after[name].tobytes() == before[name].tobytes() for name in before)


@EACH
def test_a_forecast_does_not_depend_on_which_others_are_asked_for(settings: PredictorSettings) -> None:
    predictor = make_trained(settings)
    rows = np.array([7, 3, 21])
    whole, some = everything(predictor), predictor.forecast(rows, seed=3)
    assert some.p_success == pytest.approx(whole.p_success[rows], rel=1e-5)
    assert some.p_sd == pytest.approx(whole.p_sd[rows], rel=1e-5)
    assert len(predictor.forecast(np.empty(0, np.int64), seed=3).p_success) == 0


@EACH
@pytest.mark.parametrize("observed", [0, 1, 9])
def test_saved_loaded_and_continued_equals_uninterrupted_bit_for_bit(
    settings: PredictorSettings, observed: int, tmp_path: Path
) -> None:
    whole = make_trained(settings, observed)
    restored = build_predictor(settings, make_pool(), seed=9)
    restored.observe(make_observation(77), seed=77)  # what it knew before is gone
    save_arrays(tmp_path / "predictor", whole.state_dict())
    restored.load_state_dict(load_arrays(tmp_path / "predictor"))
    for step in range(observed, observed + 3):
        parts = [predictor.observe(make_observation(step), seed=step) for predictor in (whole, restored)]
        assert parts[0] == parts[1]
    assert bits(everything(restored)) == bits(everything(whole))
    expected, found = whole.state_dict(), restored.state_dict()
    assert expected.keys() == found.keys()
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)


@EACH
def test_state_is_a_copy(settings: PredictorSettings) -> None:
    predictor = make_trained(settings)
    state = predictor.state_dict()
    before = {name: value.copy() for name, value in state.items()}
    predictor.observe(make_observation(99), seed=99)
    assert all(np.array_equal(state[name], before[name]) for name in before)


@EACH
def test_state_of_another_pool_is_matched_by_prompt_id(settings: PredictorSettings) -> None:
    """Six prompts of the old pool in another order, among two new ones."""
    trained = make_trained(settings)
    ids = ["p5", "p91", "p0", "p39", "p11", "p92", "p3", "p20"]
    known = [place for place, name in enumerate(ids) if int(name[1:]) < SIZE]
    moved = build_predictor(settings, make_pool(ids), seed=5)
    moved.load_state_dict(trained.state_dict())
    found = moved.forecast(np.arange(8), seed=3)
    expected = trained.forecast(np.array([int(ids[place][1:]) for place in known]), seed=3)
    assert found.p_success[known] == pytest.approx(expected.p_success, rel=1e-5)
    assert found.p_sd[known] == pytest.approx(expected.p_sd, rel=1e-4)
    assert np.isfinite(found.p_success).all() and np.isfinite(found.expected_tokens).all()


@pytest.mark.parametrize("settings", OWN_MEMORY, ids=lambda one: f"{one.name}{getattr(one, 'window', '')}")
def test_new_prompts_of_another_pool_have_the_prior(settings: PredictorSettings) -> None:
    moved = build_predictor(settings, make_pool(["p91", "p5"]), seed=5)
    moved.load_state_dict(make_trained(settings).state_dict())
    assert moved.forecast(np.array([0]), seed=3).p_success == pytest.approx([0.5])


@EACH
def test_a_step_without_groups_is_a_step(settings: PredictorSettings) -> None:
    predictor = make_trained(settings)
    none = np.empty(0, np.int64)
    before = everything(predictor).p_success
    predictor.observe(Observation(none, none, none, np.empty(0)), seed=1)
    assert np.abs(everything(predictor).p_success - before).max() < 0.3
    assert (everything(predictor).p_sd > 0.0).any()


@EACH
def test_forecasts_follow_the_outcomes_and_not_their_complement(settings: PredictorSettings) -> None:
    """A correlation with the failures would have the other sign."""
    rng, truth = np.random.default_rng(0), np.linspace(0.02, 0.98, SIZE)
    pool = make_pool()
    order = np.argsort(pool.embeddings[:, 0])  # type: ignore[index]
    rates = np.empty(SIZE)
    rates[order] = truth
    categories = tuple("abcd"[min(int(4 * rate), 3)] for rate in rates)
    predictor = build_predictor(settings, Pool(pool.prompt_ids, pool.embeddings, categories), seed=0)
    for step in range(20):
        rows = rng.choice(SIZE, 16, replace=False)
        groups = Observation(rows, rng.binomial(8, rates[rows]), np.full(16, 8), np.full(16, 9.0))
        predictor.observe(groups, seed=step)
    successes = np.round(50 * rates).astype(np.int64)
    quality = forecast_quality(everything(predictor).p_success, successes, np.full(SIZE, 50))
    assert quality["spearman"] > 0.4
