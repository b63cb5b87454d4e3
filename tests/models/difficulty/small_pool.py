"""A small pool, outcomes on it, and what every predictor must do with them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from models.difficulty.base import Predictor
from models.records import Floats, Forecast, Ints, Observation, Pool
from storage.checkpoints import load_arrays, save_arrays

DIM = 16
NONE = np.empty(0, np.int64)


def make_pool(size: int = 60, prefix: str = "p") -> Pool:
    """Random unit embeddings, the same ones as the policy's states, and a few words each."""
    embeddings = np.random.default_rng(1).standard_normal((size, DIM)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return Pool(
        tuple(f"{prefix}{row}" for row in range(size)),
        embeddings,
        texts=tuple(f"add {row} and {7 * row}" for row in range(size)),
        hidden=lambda rows: embeddings[rows],
    )


def make_observation(seed: int, pool_size: int = 60, groups: int = 8) -> Observation:
    """Groups of one to eight rollouts, half of which succeed."""
    rng = np.random.default_rng(seed)
    rows, valid = rng.choice(pool_size, groups, replace=False), rng.integers(1, 9, groups)
    return Observation(
        rows, rng.binomial(valid, 0.5), valid, rng.uniform(5, 20, groups), mean_logprobs=rng.uniform(-2, 0, groups)
    )


def make_truth(pool: Pool) -> Floats:
    """Success probabilities that are a logistic function of the embeddings."""
    assert pool.embeddings is not None
    truth: Floats = 1.0 / (1.0 + np.exp(-6.0 * pool.embeddings @ np.random.default_rng(2).standard_normal(DIM)))
    return truth


def train(predictor: Predictor, truth: Floats, seen: Ints, steps: int) -> dict[str, float]:
    """Batches of 16 prompts out of `seen`, with 8 rollouts each; returns the last parts of the loss."""
    rng, parts = np.random.default_rng(0), {}
    for step in range(steps):
        rows = rng.choice(seen, 16, replace=False)
        groups = Observation(rows, rng.binomial(8, truth[rows]), np.full(16, 8), np.full(16, 9.0))
        parts = predictor.observe(groups, seed=step)
    return parts


def rank_correlation_on_unseen(predictor: Predictor, truth: Floats, steps: int) -> float:
    """Spearman of forecast and truth on the last 200 prompts, after `steps` batches of the others.

    Chance is 0 with a standard deviation of 0.07.
    """
    rows = np.arange(len(truth))
    train(predictor, truth, rows[:-200], steps)
    found: float = spearmanr(predictor.forecast(rows[-200:], seed=0).p_success, truth[-200:]).statistic
    return found


def bits(forecast: Forecast) -> tuple[bytes, ...]:
    return tuple(values.tobytes() for values in (forecast.p_success, forecast.p_sd, forecast.expected_tokens))


def check_resuming(make: Callable[[int], Predictor], observed: int, folder: Path) -> None:
    """Saved after `observed` batches, loaded into another, and continued: the same bytes as uninterrupted.

    Args:
        make: a predictor of `make_pool()`, by the seed of its weights.
    """
    whole, restored = make(0), make(9)
    for step in range(observed):
        whole.observe(make_observation(step), seed=step)
    restored.observe(make_observation(77), seed=77)  # what it knew before is gone
    save_arrays(folder / "predictor", whole.state_dict())
    restored.load_state_dict(load_arrays(folder / "predictor"))
    for step in range(observed, observed + 2):
        parts = [predictor.observe(make_observation(step), seed=step) for predictor in (whole, restored)]
        assert parts[0] == parts[1]
    assert bits(restored.forecast(np.arange(60), seed=1)) == bits(whole.forecast(np.arange(60), seed=1))
    expected, found = whole.state_dict(), restored.state_dict()
    assert expected.keys() == found.keys()
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)


def check_manners(predictor: Predictor) -> None:
    """Forecasts are of probabilities and never certain; no groups teach nothing; states are copies.

    Forecasting changes nothing, and works on no rows.
    """
    predictor.observe(make_observation(0), seed=0)
    forecast = predictor.forecast(np.arange(60), seed=1)
    assert ((forecast.p_success > 0.0) & (forecast.p_success < 1.0)).all()
    assert (forecast.p_sd**2 <= forecast.p_success * (1.0 - forecast.p_success)).all() and (forecast.p_sd > 0.0).all()
    first = bits(predictor.forecast(np.arange(60), seed=1))
    assert bits(predictor.forecast(np.arange(60), seed=1)) == first
    assert len(predictor.forecast(NONE, seed=1).p_success) == 0
    assert predictor.observe(Observation(NONE, NONE, NONE, np.empty(0)), seed=1) == {}
    state = predictor.state_dict()
    before = {name: value.copy() for name, value in state.items()}
    assert bits(predictor.forecast(np.arange(60), seed=1)) == first
    predictor.observe(make_observation(1), seed=1)
    assert all(np.array_equal(state[name], before[name]) for name in before)
    predictor.load_state_dict(state)
    assert bits(predictor.forecast(np.arange(60), seed=1)) == first
