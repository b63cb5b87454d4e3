"""The Gaussian process: against the exact process where references are all prompts, and bounded where they are few."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from models.difficulty import build_predictor
from models.difficulty.gp import Gp
from models.difficulty.logit_normal import linearised, success_moments
from models.records import Observation, Pool
from models.settings import GpSettings

DIM = 6


def make_pool(size: int) -> Pool:
    embeddings = np.random.default_rng(1).standard_normal((size, DIM)).astype(np.float32)
    return Pool(tuple(map(str, range(size))), embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True))


def make_observation(rows: NDArray[np.int64], rates: NDArray[np.float64], seed: int) -> Observation:
    rng, groups = np.random.default_rng(seed), len(rows)
    return Observation(rows, rng.binomial(8, rates), np.full(groups, 8), np.ones(groups))


def kernel(pool: Pool, amplitude: float, bias_sd: float) -> NDArray[np.float64]:
    """Prior covariance of all logits, by its definition."""
    assert pool.embeddings is not None
    e = pool.embeddings.astype(np.float64)
    squares = ((e[:, None] - e[None]) ** 2).sum(axis=2)
    length = np.median(squares[np.triu_indices(len(e), 1)])
    found: NDArray[np.float64] = bias_sd**2 + amplitude**2 * np.exp(-squares / (2 * length))
    return found


def test_with_every_prompt_a_reference_it_is_the_exact_process() -> None:
    """Two batches by the textbook formulas over all N logits; an unchanging policy."""
    pool, rates = make_pool(30), np.linspace(0.05, 0.95, 30)
    predictor = Gp(GpSettings(references=30, keep=1.0, amplitude=1.2, bias_sd=0.7), pool, seed=0)
    mean, covariance = np.zeros(30), kernel(pool, 1.2, 0.7)
    for step, rows in enumerate((np.array([3, 9, 27]), np.array([0, 9, 12, 20]))):
        groups = make_observation(rows, rates[rows], step)
        predictor.observe(groups, seed=step)
        variance = np.diag(covariance)[rows]
        seen, error = linearised(mean[rows], variance, groups.successes, groups.valid)
        gain = covariance[:, rows] @ np.linalg.inv(covariance[np.ix_(rows, rows)] + np.diag(error))
        mean, covariance = mean + gain @ (seen - mean[rows]), covariance - gain @ covariance[rows]
    forecast = predictor.forecast(np.arange(30), seed=0)
    p_success, p_sd = success_moments(mean, np.diag(covariance))
    assert forecast.p_success == pytest.approx(p_success, abs=2e-3)
    assert forecast.p_sd == pytest.approx(p_sd, abs=2e-3)


def test_before_any_group_every_doubt_is_the_priors_however_few_the_references() -> None:
    pool = make_pool(200)
    for references in (1, 5, 200):
        predictor = Gp(GpSettings(references=references, amplitude=1.2, bias_sd=0.7), pool, seed=0)
        expected = success_moments(np.zeros(200), np.full(200, 1.2**2 + 0.7**2))[1]
        assert predictor.forecast(np.arange(200), seed=0).p_sd == pytest.approx(expected, rel=1e-3)


def test_a_policy_that_moves_is_forgotten_as_slowly_as_asked() -> None:
    pool, none = make_pool(50), np.empty(0, np.int64)
    rows = np.arange(20)
    doubts = []
    for keep in (1.0, 0.9, 0.5):
        predictor = Gp(GpSettings(references=50, keep=keep), pool, seed=0)
        predictor.observe(make_observation(rows, np.full(20, 0.9), 0), seed=0)
        for _ in range(10):
            predictor.observe(Observation(none, none, none, np.empty(0)), seed=0)
        forecast = predictor.forecast(np.arange(50), seed=0)
        doubts.append((abs(float(forecast.p_success.mean()) - 0.5), float(-forecast.p_sd.mean())))
    assert doubts == sorted(doubts, reverse=True)
    assert doubts[-1][0] < 0.05


def test_it_learns_of_prompts_it_never_saw_with_few_references() -> None:
    pool = make_pool(600)
    assert pool.embeddings is not None
    truth = 1.0 / (1.0 + np.exp(-5.0 * pool.embeddings @ np.random.default_rng(2).standard_normal(DIM)))
    predictor, rng = Gp(GpSettings(references=60), pool, seed=0), np.random.default_rng(0)
    for step in range(30):
        rows = rng.choice(400, 16, replace=False)
        predictor.observe(make_observation(rows, truth[rows], step), seed=step)
    unseen = np.arange(400, 600)
    assert spearmanr(predictor.forecast(unseen, seed=0).p_success, truth[unseen]).statistic > 0.85


def test_memory_is_bounded_by_references_and_not_by_what_was_observed() -> None:
    pool = make_pool(300)
    predictor = Gp(GpSettings(references=20), pool, seed=0)
    sizes = []
    for step in range(12):
        rows = np.random.default_rng(step).choice(300, 64, replace=False)
        predictor.observe(make_observation(rows, np.full(64, 0.5), step), seed=step)
        sizes.append(sum(value.nbytes for name, value in predictor.state_dict().items() if name != "prompt_ids"))
    assert len(set(sizes)) == 1
    assert predictor.state_dict()["covariance"].shape == (21, 21)
    assert predictor._features.shape == (300, 21)


def test_duplicates_and_zero_vectors_are_no_trouble() -> None:
    embeddings = np.zeros((12, DIM), np.float32)
    embeddings[4:] = 1.0 / DIM**0.5
    predictor = Gp(GpSettings(references=12), Pool(tuple(map(str, range(12))), embeddings), seed=0)
    predictor.observe(make_observation(np.array([0, 4, 5]), np.array([0.1, 0.9, 0.9]), 0), seed=0)
    forecast = predictor.forecast(np.arange(12), seed=0)
    assert np.ptp(forecast.p_success[:4]) < 1e-5 and np.ptp(forecast.p_success[4:]) < 1e-5
    assert forecast.p_success[0] < forecast.p_success[4]


def test_references_come_from_the_seed() -> None:
    pool = make_pool(40)
    one, same, other = (Gp(GpSettings(references=5), pool, seed=seed).state_dict()["references"] for seed in (0, 0, 1))
    assert one.tobytes() == same.tobytes() != other.tobytes()


def test_pool_without_embeddings_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^predictor gp needs embeddings of the pool's prompts$"):
        build_predictor(GpSettings(), Pool(("a", "b")), seed=0)
