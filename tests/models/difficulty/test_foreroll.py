from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import spearmanr

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.records import Observation, PastRuns, Pool
from models.settings import ForerollSettings

SIZE = 300


def make_pool(*, past: PastRuns | None = None, size: int = SIZE) -> tuple[Pool, np.ndarray]:
    """Prompts whose embedding tells most of their logit."""
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(SIZE, 8)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    logits = 5.0 * embeddings[:, 0] + rng.normal(size=SIZE)
    ids = tuple(f"{row:032x}" for row in range(size))
    return Pool(ids, embeddings[:size], past=past), logits[:size]


def groups(logits: np.ndarray, rows: np.ndarray, seed: int = 0) -> Observation:
    """Eight rollouts of each row; hard prompts have long responses."""
    successes = np.random.default_rng(seed).binomial(8, expit(logits[rows]))
    return Observation(rows, successes, np.full(len(rows), 8), 300.0 - 50.0 * logits[rows])


def taught(pool: Pool, logits: np.ndarray, steps: int = 5) -> Predictor:
    predictor = build_predictor(ForerollSettings(), pool, seed=0)
    for step in range(steps):
        rows = np.random.default_rng(step).choice(len(pool), 32, replace=False)
        predictor.observe(groups(logits, rows, step), seed=step)
    return predictor


def test_learns_of_prompts_it_never_saw() -> None:
    pool, logits = make_pool()
    predictor = build_predictor(ForerollSettings(), pool, seed=0)
    predictor.observe(groups(logits, np.arange(150)), seed=0)
    forecast = predictor.forecast(np.arange(150, SIZE), seed=0)
    assert spearmanr(forecast.p_success, logits[150:]).statistic > 0.7
    assert spearmanr(forecast.expected_tokens, -logits[150:]).statistic > 0.7


def test_a_prompts_own_record_outweighs_its_text() -> None:
    pool, logits = make_pool()
    predictor = taught(pool, logits)
    row = np.array([int(np.argmax(logits))])
    before = predictor.forecast(row, seed=0)
    for seed in range(4):
        predictor.observe(Observation(row, np.array([0]), np.array([8]), np.array([100.0])), seed=seed)
    after = predictor.forecast(row, seed=0)
    assert before.p_success[0] > 0.7 and after.p_success[0] < 0.2
    assert after.p_sd[0] < before.p_sd[0]


def test_past_runs_are_useful_before_the_first_batch() -> None:
    _, logits = make_pool()
    runs = [groups(logits + ability, np.arange(0, SIZE, 2), seed) for seed, ability in enumerate((-1.0, 0.0, 1.0))]
    run = np.repeat(np.arange(3), SIZE // 2)
    joined = [np.concatenate([getattr(one, name) for one in runs]) for name in ("rows", "successes", "valid")]
    past = PastRuns(run, np.zeros_like(run), *joined, np.full(len(run), 100.0))
    warm, _ = make_pool(past=past)
    forecast = build_predictor(ForerollSettings(), warm, seed=0).forecast(np.arange(SIZE), seed=0)
    assert spearmanr(forecast.p_success[::2], logits[::2]).statistic > 0.9
    assert spearmanr(forecast.p_success[1::2], logits[1::2]).statistic > 0.6
    assert abs(forecast.p_success.mean() - expit(logits).mean()) < 0.1


def test_lengths_of_past_runs_are_forecast_before_the_first_batch_and_soon_give_way() -> None:
    """Hard prompts have long responses; the new policy writes three times as much."""
    _, logits = make_pool()
    rows = np.arange(0, SIZE, 2)
    zeros, lengths = np.zeros(len(rows), np.int64), 300.0 - 50.0 * logits[rows]
    lengths[:5] = np.nan
    past = PastRuns(zeros, zeros, rows, groups(logits, rows).successes, zeros + 8, lengths)
    warm, _ = make_pool(past=past)
    predictor = build_predictor(ForerollSettings(), warm, seed=0)
    unseen = np.arange(1, SIZE, 2)
    expected = predictor.forecast(unseen, seed=0).expected_tokens
    assert spearmanr(expected, -logits[unseen]).statistic > 0.7 and abs(expected.mean() - np.nanmean(lengths)) < 20.0
    for step in range(30):
        some = np.random.default_rng(step).choice(SIZE, 32, replace=False)
        longer = 3.0 * (300.0 - 50.0 * logits[some])
        predictor.observe(replace(groups(logits, some, step), mean_tokens=longer), seed=step)
    later = predictor.forecast(unseen, seed=0).expected_tokens
    assert 2.4 < later.mean() / (300.0 - 50.0 * logits[unseen]).mean() < 3.5


def test_follows_a_policy_that_improves() -> None:
    pool, logits = make_pool()
    predictor = taught(pool, logits)
    for step in range(15):
        rows = np.random.default_rng(100 + step).choice(SIZE, 32, replace=False)
        predictor.observe(groups(logits + 2.0, rows, step), seed=step)
    forecast = predictor.forecast(np.arange(SIZE), seed=0)
    assert abs(forecast.p_success.mean() - expit(logits + 2.0).mean()) < 0.06


def test_doubt_is_as_large_as_errors_are() -> None:
    pool, logits = make_pool()
    forecast = taught(pool, logits, steps=8).forecast(np.arange(SIZE), seed=0)
    standardised = (forecast.p_success - expit(logits)) / forecast.p_sd
    assert 0.7 < np.sqrt(np.mean(standardised**2)) < 1.4


def test_restored_state_goes_on_to_the_same_bytes() -> None:
    pool, logits = make_pool()
    first = taught(pool, logits)
    second = build_predictor(ForerollSettings(), pool, seed=0)
    second.load_state_dict(first.state_dict())
    for predictor in (first, second):
        predictor.observe(groups(logits, np.arange(40), 9), seed=9)
    for name, value in first.state_dict().items():
        np.testing.assert_array_equal(value, second.state_dict()[name], err_msg=name)
    one, two = (predictor.forecast(np.arange(SIZE), seed=0) for predictor in (first, second))
    np.testing.assert_array_equal(one.p_success, two.p_success)


def test_a_state_of_another_pool_keeps_the_records_of_known_prompts() -> None:
    pool, _ = make_pool()
    first = build_predictor(ForerollSettings(), pool, seed=0)
    for seed in range(4):
        first.observe(Observation(np.array([3]), np.array([8]), np.array([8]), np.array([100.0])), seed=seed)
    smaller, _ = make_pool(size=100)
    second = build_predictor(ForerollSettings(), smaller, seed=0)
    second.load_state_dict(first.state_dict())
    p_success = second.forecast(np.arange(100), seed=0).p_success
    assert np.argmax(p_success) == 3


def test_a_bare_pool_and_a_repeated_row_are_fine() -> None:
    predictor = build_predictor(ForerollSettings(), Pool(("a", "b")), seed=0)
    assert np.isnan(predictor.forecast(np.arange(2), seed=0).expected_tokens).all()
    twice = Observation(np.array([1, 1]), np.array([8, 7]), np.array([8, 8]), np.array([50.0, 70.0]))
    predictor.observe(twice, seed=0)
    p_success = predictor.forecast(np.arange(2), seed=0).p_success
    assert p_success[1] > 0.8 > p_success[0]


def test_what_is_known_of_a_prompt_survives_a_change_of_pool() -> None:
    pool, logits = make_pool()
    trained = taught(pool, logits, steps=12)
    ids = pool.prompt_ids
    assert pool.embeddings is not None
    kept = np.arange(0, SIZE, 2)
    fresh = tuple(f"{row:032x}" for row in range(1000, 1050))
    rng = np.random.default_rng(5)
    strangers = rng.normal(size=(50, 8)).astype(np.float32)
    strangers /= np.linalg.norm(strangers, axis=1, keepdims=True)
    other = Pool((*(ids[row] for row in kept), *fresh), np.concatenate([pool.embeddings[kept], strangers]))
    moved = build_predictor(ForerollSettings(), other, seed=0)
    moved.load_state_dict(trained.state_dict())
    visited = np.flatnonzero(trained.state_dict()["own_visits"][kept] > 0)
    before, after = trained.forecast(kept[visited], seed=0), moved.forecast(visited, seed=0)
    assert len(visited) > 80
    assert np.abs(before.p_success - after.p_success).mean() < 0.05
    assert np.abs(before.p_success - after.p_success).max() < 0.2
    assert np.abs(before.expected_tokens / after.expected_tokens - 1.0).mean() < 0.05
    unseen = moved.forecast(np.arange(len(kept), len(other)), seed=0)
    assert np.isfinite(unseen.p_success).all() and np.isfinite(unseen.expected_tokens).all()
    assert unseen.p_sd.mean() > after.p_sd.mean() + 0.05


def test_a_batch_is_learned_from_under_the_variance_that_it_tells() -> None:
    """Groups that end all alike, some each way, tell of a larger variance, which prompts not visited have then, too."""
    pool, _ = make_pool()
    predictor = build_predictor(ForerollSettings(), pool, seed=0)
    before = predictor.state_dict()["own_var"]
    rows = np.arange(100)
    successes = np.where(np.random.default_rng(0).random(100) < 0.5, 8, 0)
    metrics = predictor.observe(Observation(rows, successes, np.full(100, 8), np.full(100, 100.0)), seed=0)
    after = predictor.state_dict()["own_var"]
    assert metrics["own_scale"] > 1.05
    np.testing.assert_allclose(after[100:] / before[100:], metrics["own_scale"], rtol=0.01)


@pytest.mark.parametrize("fade", [0.0, 0.05])
def test_whether_own_effects_fade_is_learned(fade: float) -> None:
    """Prompts that no text tells apart, each visited in every eighth step."""
    rng, size, steps = np.random.default_rng(0), 400, 64
    pool = Pool(tuple(f"{row:032x}" for row in range(size)))
    predictor = build_predictor(ForerollSettings(), pool, seed=0)
    effects, found = rng.normal(0.0, 2.0, size), []
    for step in range(steps):
        rows = np.arange(step % 8, size, 8)
        found.append(predictor.observe(groups(effects, rows, step), seed=step)["fade"])
        effects = (1 - fade) * effects + np.sqrt(1 - (1 - fade) ** 2) * rng.normal(0.0, 2.0, size)
    assert 0.025 < np.mean(found[-20:]) < 0.05 if fade else np.mean(found[-20:]) < 0.008


def test_prompts_passed_over_are_forecast_by_what_exploration_shows_of_them() -> None:
    """Prompts alike in all that can be seen, but harder where the rule never looks: only explored groups can tell."""
    size, errors = 600, {}
    pool = Pool(tuple(f"{row:032x}" for row in range(size)))
    logits = np.where(np.arange(size) < 200, 0.0, -2.0)
    for told in (False, True):
        predictor, rng = build_predictor(ForerollSettings(), pool, seed=0), np.random.default_rng(0)
        for step in range(40):
            rows = np.r_[rng.choice(200, 60, replace=False), rng.choice(np.arange(200, size), 3, replace=False)]
            observation = replace(groups(logits, rows, step), explored=np.arange(63) >= 60 if told else None)
            predictor.observe(observation, seed=step)
        unseen = np.flatnonzero(predictor.state_dict()["own_visits"] == 0)
        errors[told] = float(predictor.forecast(unseen, seed=0).p_success.mean() - expit(-2.0))
    assert 0.0 < errors[True] < errors[False] - 0.05


@pytest.mark.parametrize(
    "settings",
    [ForerollSettings(), ForerollSettings(own_sd=1e4), ForerollSettings(text_sd=1e4), ForerollSettings(drift=100.0)],
)
@pytest.mark.parametrize("largest", [10**6, 2**31])
def test_moments_are_finite_whatever_the_groups(settings: ForerollSettings, largest: int) -> None:
    """Huge groups, one rollout, the same prompts over and over, and rates that jump from 0 to 1."""
    pool, _ = make_pool(size=3)
    predictor = build_predictor(settings, pool, seed=0)
    for step in range(60):
        valid = np.array([1, 8, largest])
        successes = valid * (step % 2)
        predictor.observe(Observation(np.arange(3), successes, valid, np.full(3, np.nan)), seed=step)
        forecast = predictor.forecast(np.arange(3), seed=step)
        assert np.isfinite(forecast.p_success).all() and np.isfinite(forecast.p_sd).all()
        assert (forecast.p_sd >= 0).all() and (np.abs(forecast.p_success - 0.5) <= 0.5).all()
